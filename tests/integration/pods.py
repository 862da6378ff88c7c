"""The Pods that the tests create, and how to read what the API server made of them."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.integration import names

INIT_CONTAINER = "fetch"
EXCLUDE_RANGES = "traffic.sidecar.istio.io/excludeOutboundIPRanges"
INJECTION_STATUS = "sidecar.istio.io/status"
PROXY_ID = 1337
INJECTED_NAMESPACE_LABELS = {"istio-injection": "enabled"}

_IMAGE = os.environ.get("POD_IMAGE") or "registry.k8s.io/pause:3.10"
"""Never pulled where the API server takes dry runs; else the Pod is deleted as soon as created."""


class Injection(Enum):
    """What Istio did to a Pod that asked for an ordinary sidecar."""

    CUTS_OFF = "Istio injects an ordinary sidecar, and its CNI plugin redirects"
    NONE = "Istio does not inject Pods here"
    ISTIO_INIT = "Istio injects istio-init here, before which init containers have their network"
    NATIVE = "Istio injects native sidecars here, even where a Pod asks for none"


@dataclass(frozen=True)
class StoredPod:
    """A Pod as the API server returned it.

    Attributes:
        annotations: its annotations.
        init_containers: `securityContext` of each init container, by name.
    """

    annotations: Mapping[str, str]
    init_containers: Mapping[str, Mapping[str, Any]]

    @classmethod
    def from_dict(cls, pod: Mapping[str, Any]) -> StoredPod:
        """Read a decoded Pod."""
        return cls(
            annotations=pod["metadata"].get("annotations") or {},
            init_containers={
                container["name"]: container.get("securityContext") or {}
                for container in pod["spec"].get("initContainers") or ()
            },
        )

    @property
    def ranges(self) -> tuple[str, ...]:
        """The ranges that are excluded from redirection."""
        value = self.annotations.get(EXCLUDE_RANGES, "")
        return tuple(value.split(",")) if value else ()

    @property
    def user(self) -> int | None:
        """The user that the init container runs as; None where it names none."""
        return self.init_containers[INIT_CONTAINER].get("runAsUser")

    @property
    def proxy_user(self) -> int:
        """The user of Istio's own containers, whose traffic is never redirected."""
        return self.init_containers.get("istio-validation", {}).get("runAsUser") or PROXY_ID

    @property
    def injection(self) -> Injection:
        """What Istio did to the Pod, which is a `plain_pod`."""
        if INJECTION_STATUS not in self.annotations:
            return Injection.NONE
        if "istio-init" in self.init_containers:
            return Injection.ISTIO_INIT
        if "istio-proxy" in self.init_containers:
            return Injection.NATIVE
        return Injection.CUTS_OFF


def plain_pod() -> dict[str, Any]:
    """A Pod as its author submits it: one init container that needs the network.

    Istio injects a native sidecar where it can, behind which nothing is cut off; the annotation
    has it inject the ordinary one, so that there is something to remedy.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "needs-network-",
            "annotations": {"sidecar.istio.io/nativeSidecar": "false"},
        },
        "spec": {
            "automountServiceAccountToken": False,
            "initContainers": [{"name": INIT_CONTAINER, "image": _IMAGE}],
            "containers": [{"name": "app", "image": _IMAGE}],
        },
    }


def injected_pod() -> dict[str, Any]:
    """The same Pod with all that the rule reads of an injection that cuts it off.

    It serves where Istio isn't, or does otherwise. The annotation keeps an Istio that is there
    from injecting it once more; a label would keep the charm's policy away as well.
    """
    pod = plain_pod()
    proxy = {"runAsUser": PROXY_ID, "runAsGroup": PROXY_ID}
    pod["metadata"]["annotations"] = {INJECTION_STATUS: "{}", "sidecar.istio.io/inject": "false"}
    pod["spec"]["initContainers"].insert(
        0, {"name": "istio-validation", "image": _IMAGE, "securityContext": proxy}
    )
    pod["spec"]["containers"].append(
        {
            "name": "istio-proxy",
            "image": _IMAGE,
            "args": ["proxy", "sidecar"],
            "securityContext": proxy,
        }
    )
    return pod


def opted_out(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The same Pod, left alone by the charm: it shows what everyone else makes of it."""
    labelled = copy.deepcopy(dict(pod))
    labelled["metadata"]["labels"] = {names.SKIP_LABEL: "true"}
    return labelled
