"""Probes: Pods that are only ever created by server-side dry run, to see what admission does.

Each backend acts on a probe only if the probe's label names that backend, or if there is no such
label. So one backend can be tried while another is in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from init_egress.backends.render import render
from init_egress.kube.manifest import Manifest, labels_of, mapping
from init_egress.rule.istio import PROBE_LABEL
from init_egress.rule.policy import Policy

NO_BACKEND = "none"
"""The value of the probe label on which no backend acts."""

CONTAINER = "istio-init-egress-probe"
"""The name of a probe's init container."""


def probe_pod(
    policy: Policy,
    *,
    labels: Mapping[str, str] = MappingProxyType({}),
    annotations: Mapping[str, str] = MappingProxyType({}),
) -> Manifest:
    """A Pod that would need the remedy if Istio injected it.

    Args:
        policy: what the operator configured; the Pod matches its pod-selector where it can.
        labels: further labels.
        annotations: its annotations, such as one that opts out of a native sidecar.
    """
    context = {
        "labels": {**policy.pods.example(), **labels},
        "annotations": {**annotations},
        "container": CONTAINER,
    }
    return render(["probe.yaml.j2"], context)[0]


def labelled(pod: Manifest, label: str) -> Manifest:
    """The Pod as a probe.

    Args:
        pod: a Pod's manifest.
        label: the probe label of a backend (`Backend.probe_label`), or `NO_BACKEND`.
    """
    labels = {**labels_of(pod), PROBE_LABEL: label}
    return {**pod, "metadata": {**mapping(pod["metadata"]), "labels": labels}}
