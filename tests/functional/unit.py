"""A unit of the charm, with ops.testing in Juju's place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from httpx2 import HTTPStatusError
from lightkube import Client
from lightkube.core.client import LabelValue
from lightkube.generic_resource import GenericGlobalResource, GenericNamespacedResource
from ops import testing

from charm import IstioInitEgressCharm
from init_egress.config import Config, ConfigError, Settings
from init_egress.kube.application import APPLICATION_LABEL
from init_egress.kube.kinds import OURS, Kind

# Juju gives a path where nothing is, until somebody attaches the resource.
NO_IMAGE = testing.Resource(name="webhook-image", path="/nowhere")
Stored = GenericGlobalResource | GenericNamespacedResource
APPLICATION = "istio-init-egress"
MODEL = "kubeflow"
GATEWAY_INFO = testing.Relation(
    "gateway-info",
    remote_app_name="istio-pilot",
    remote_app_data={
        "gateway_name": "kubeflow-gateway",
        "gateway_namespace": "kubeflow",
        "gateway_up": "false",
    },
)


@dataclass(frozen=True)
class Status:
    """A unit's status, its name as Juju has it."""

    name: str
    message: str


@dataclass
class Unit:
    """A unit, which handles one event after another."""

    context: testing.Context[IstioInitEgressCharm]
    state: testing.State = field(
        default_factory=lambda: testing.State(
            leader=True,
            planned_units=1,
            model=testing.Model(name=MODEL, type="kubernetes"),
            relations={GATEWAY_INFO},
            resources={NO_IMAGE},
        )
    )

    def having(self, **changes: Any) -> Unit:
        """Change the unit's state as Juju has it, before the next event."""
        self.state = replace(self.state, **changes)
        return self

    def configured(self, **options: str) -> Status:
        """Set options, their hyphens written as underscores, and handle the event."""
        config = {key.replace("_", "-"): value for key, value in options.items()}
        self.having(config={**self.state.config, **config})
        return self.run("config_changed")

    def run(self, event: str) -> Status:
        """Handle an event; returns the unit's status afterwards."""
        self.state = self.context.run(getattr(self.context.on, event)(), self.state)
        return self.status

    def act(self, action: str, **params: Any) -> dict[str, Any]:
        """Run an action, the hyphens of its parameters written as underscores; its results.

        Raises:
            ActionFailed: the action said that it failed.
        """
        named = {key.replace("_", "-"): value for key, value in params.items()}
        self.state = self.context.run(self.context.on.action(action, params=named), self.state)
        return dict(self.context.action_results or {})

    @property
    def settings(self) -> Settings:
        """The unit's options; the defaults where they can't be used."""
        try:
            options = self.state.config.items()
            return Config.from_options({key: str(value) for key, value in options}).settings()
        except ConfigError:
            return Settings()

    @property
    def status(self) -> Status:
        """The unit's status."""
        return Status(self.state.unit_status.name, self.state.unit_status.message)


def objects(client: Client, *kinds: Kind) -> list[str]:
    """The charm's objects on the cluster, as `Kind name`."""
    return sorted(
        f"{kind.__name__} {item.metadata.name}"
        for kind in kinds or OURS
        for item in _list(client, kind)
        if item.metadata
    )


def _list(client: Client, kind: Kind) -> Iterable[Stored]:
    labels: dict[str, LabelValue] = {APPLICATION_LABEL: APPLICATION}
    try:
        if issubclass(kind, GenericNamespacedResource):
            return list(client.list(kind, labels=labels, namespace=MODEL))
        return list(client.list(kind, labels=labels))
    except HTTPStatusError as error:
        if error.response.status_code == 404:
            return []  # a kind that isn't served
        raise
