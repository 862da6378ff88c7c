"""The Pod that would come in an existing one's place, as its controller, or its author, writes it.

Controllers make Pods of the template in their own spec (kubernetes/kubernetes:
pkg/controller/controller_utils.go, GetPodFromTemplate) and add a little that only they know; what
of that Istio, the rule or a selector may read is taken from the existing Pod.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from init_egress.backends.manifests import Manifest
from init_egress.existing.survey import OwnerReference, StoredMeta, StoredPod
from init_egress.kube.client import NotFound
from init_egress.kube.paging import ApiClient

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_PLURALS = {
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("apps/v1", "DaemonSet"): "daemonsets",
    ("batch/v1", "Job"): "jobs",
    ("v1", "ReplicationController"): "replicationcontrollers",
}
_STATEFUL_SET = ("apps/v1", "StatefulSet")
_REVISION = "controller-revision-hash"
_ADDED_BY_CONTROLLERS = (
    _REVISION,
    "pod-template-generation",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
)


class _Meta(msgspec.Struct, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Template(msgspec.Struct, frozen=True):
    spec: dict[str, object]
    metadata: _Meta = _Meta()


class _Claim(msgspec.Struct, frozen=True):
    metadata: StoredMeta


class _ControllerSpec(msgspec.Struct, frozen=True, rename="camel"):
    # A ReplicationController need not have a template.
    template: _Template | None = None
    volume_claim_templates: tuple[_Claim, ...] | None = None


class _ControllerStatus(msgspec.Struct, frozen=True, rename="camel"):
    update_revision: str = ""


class _Controller(msgspec.Struct, frozen=True):
    spec: _ControllerSpec
    status: _ControllerStatus = _ControllerStatus()


class TemplateUnknown(Exception):
    """How the Pod would be written can't be told; the message says why."""


@dataclass(frozen=True)
class TemplatePod:
    """A Pod as it would be submitted.

    Attributes:
        source: where that is read.
        pod: the Pod, for a server-side dry run: it has a generated name.
        revision: the revision of its template, where the controller counts them.
    """

    source: str
    pod: Manifest
    revision: str = ""

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels, before admission."""
        return self._map("labels")

    @property
    def annotations(self) -> Mapping[str, str]:
        """Its annotations, before admission."""
        return self._map("annotations")

    def _map(self, key: str) -> Mapping[str, str]:
        metadata = self.pod.get("metadata")
        found = metadata.get(key) if isinstance(metadata, dict) else None
        return found if isinstance(found, dict) else {}


def pod_from_template(bulk: ApiClient, pod: StoredPod) -> TemplatePod:
    """Find out how a Pod would be written if it were created now.

    Args:
        bulk: where.
        pod: the existing Pod.

    Raises:
        Untold: its controller, or how its author wrote it, isn't known.
        ClusterError: the cluster can't be asked.
    """
    controller = pod.metadata.controller
    return _as_applied(pod) if controller is None else _of_template(bulk, pod, controller)


def _as_applied(pod: StoredPod) -> TemplatePod:
    text = pod.annotations.get(LAST_APPLIED)
    if text is None:
        raise TemplateUnknown(
            "nobody would create it anew, and how its author wrote it isn't stored"
            f" (no annotation {LAST_APPLIED})"
        )
    try:
        written = json.loads(text)
        metadata = {k: v for k, v in written["metadata"].items() if k in ("labels", "annotations")}
        spec = {k: v for k, v in written["spec"].items() if k != "nodeName"}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TemplateUnknown(f"its annotation {LAST_APPLIED} can't be read: {error!r}") from error
    return TemplatePod(
        "what was last applied of it by kubectl",
        {
            **_HEADER,
            "metadata": {"generateName": f"{pod.metadata.name}-", **metadata},
            "spec": spec,
        },
    )


def _of_template(bulk: ApiClient, pod: StoredPod, controller: OwnerReference) -> TemplatePod:
    title = f"{controller.kind} {controller.name}"
    key = controller.api_version, controller.kind
    if key not in _PLURALS:
        raise TemplateUnknown(
            f"{title} makes it, and how a {controller.kind} does that isn't known here"
        )
    prefix = "apis" if "/" in controller.api_version else "api"
    namespace = pod.metadata.namespace
    path = f"/{prefix}/{controller.api_version}/namespaces/{namespace}/{_PLURALS[key]}"
    try:
        found = bulk.get(f"{path}/{controller.name}", _Controller, title)
    except NotFound:
        raise TemplateUnknown(f"{title}, which made it, is gone") from None
    template = found.spec.template
    if template is None:
        raise TemplateUnknown(f"{title} has no template")
    metadata = {
        "generateName": f"{controller.name}-",
        "labels": {**(template.metadata.labels or {}), **_added(pod.labels, found)},
        "annotations": {**(template.metadata.annotations or {}), **_added(pod.annotations, found)},
        "ownerReferences": [_reference(controller)],
    }
    spec = template.spec
    if key == _STATEFUL_SET:
        spec = {**spec, "volumes": _volumes(spec, found.spec, pod.metadata.name)}
    return TemplatePod(
        f"the template of {title}",
        {**_HEADER, "metadata": metadata, "spec": spec},
        found.status.update_revision,
    )


_HEADER = {"apiVersion": "v1", "kind": "Pod"}


def _added(of_the_pod: Mapping[str, str], found: _Controller) -> dict[str, str]:
    """What the controller added to the existing Pod, and would add again."""
    added = {key: of_the_pod[key] for key in _ADDED_BY_CONTROLLERS if key in of_the_pod}
    if _REVISION in added and found.status.update_revision:
        added[_REVISION] = found.status.update_revision
    return added


def _reference(controller: OwnerReference) -> Manifest:
    return {
        "apiVersion": controller.api_version,
        "kind": controller.kind,
        "name": controller.name,
        "uid": controller.uid,
        "controller": True,
    }


def _volumes(spec: Mapping[str, object], of_set: _ControllerSpec, name: str) -> list[object]:
    """The template's volumes, and one for each claim of the StatefulSet, which goes before them.

    pkg/controller/statefulset/stateful_set_utils.go, updateStorage.
    """
    claims = [claim.metadata.name for claim in of_set.volume_claim_templates or ()]
    written = spec.get("volumes")
    rest = [v for v in written if v["name"] not in claims] if isinstance(written, list) else []
    claimed = [
        {"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}"}}
        for claim in claims
    ]
    return [*claimed, *rest]


def is_of_another_revision(pod: StoredPod, drafted: TemplatePod) -> bool:
    """Whether the template's revision, where it is counted, is another than the Pod's."""
    own = pod.labels.get(_REVISION)
    return bool(own and drafted.revision) and own != drafted.revision
