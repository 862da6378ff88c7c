"""Pods compared: what the rule says that a Pod becomes, and all that a backend could change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import jsonpatch
import msgspec

from init_egress.rule import istio
from init_egress.rule.patch import PatchOperation
from tests.testbed.control_plane import Manifest


def patched(pod: Manifest, patch: Iterable[PatchOperation]) -> Manifest:
    """The Pod after a JSON patch, by an implementation that is not ours."""
    operations = msgspec.to_builtins(tuple(patch))
    return jsonpatch.apply_patch(pod, operations)


def shape(pod: Manifest) -> dict[str, object]:
    """All of a Pod that a backend could have changed, without what is named at random."""
    text = re.sub(r"kube-api-access-\w+", "kube-api-access", json.dumps(pod))
    stable: Manifest = json.loads(text)
    metadata, spec = stable["metadata"], stable["spec"]
    for container in spec["containers"] + spec.get("initContainers", []):
        # Istio tells its proxy the Pod's labels, a probe's own among them.
        container["env"] = [
            e for e in container.get("env", []) if e["name"] != "ISTIO_METAJSON_LABELS"
        ]
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k != istio.PROBE_LABEL}
    return {"labels": labels, "annotations": metadata.get("annotations"), "spec": spec}
