"""The Juju application, as its objects on the cluster are named and labelled."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

APPLICATION_LABEL = "istio-init-egress/application"
MODEL_LABEL = "istio-init-egress/model"

# Kyverno accepts policy names of up to 63 characters; a binding's name is the policy's and more.
_OBJECT_NAME_LIMIT = 45
# A Service's name is a DNS label of 63 characters, and the Secrets' names are longer than it.
_WORKLOAD_NAME_LIMIT = 40


@dataclass(frozen=True)
class Application:
    """The application that the objects belong to.

    Attributes:
        name: the Juju application's name.
        model: the Juju model's name, which is its namespace's name too.
    """

    name: str
    model: str

    @property
    def object_name(self) -> str:
        """The policies' name: readable, unique among models, short enough for every kind."""
        # Neither part can hold a dot, so two applications never share a name.
        full = f"{self.name}.{self.model}"
        if len(full) <= _OBJECT_NAME_LIMIT:
            return full
        return f"{self.name[: _OBJECT_NAME_LIMIT - 9].rstrip('-')}.{_digest(full)}"

    @property
    def webhook_name(self) -> str:
        """The name of the webhook's Deployment, Service and so on; it holds no dot."""
        return self._workload_name("webhook")

    @property
    def exporter_name(self) -> str:
        """The name of the exporter's Deployment, Service and so on; it holds no dot."""
        return self._workload_name("exporter")

    @property
    def labels(self) -> dict[str, str]:
        """The labels by which the application's objects are found."""
        return {APPLICATION_LABEL: self.name, MODEL_LABEL: self.model}

    @property
    def of_exporter(self) -> Application:
        """The application as the exporter's objects are labelled: pruning a backend spares them.

        A Juju application's name can't hold a dot, so no other application has this name.
        """
        return replace(self, name=f"{self.name}.exporter")

    def _workload_name(self, part: str) -> str:
        full = f"{self.name}-{part}"
        if len(full) <= _WORKLOAD_NAME_LIMIT:
            return full
        return f"{self.name[:20].rstrip('-')}-{_digest(full)}-{part}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
