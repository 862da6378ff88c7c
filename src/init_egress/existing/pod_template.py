"""The Pod that would come in an existing one's place, as its controller, or its author, writes it.

Controllers make Pods of the template in their own spec (kubernetes/kubernetes:
pkg/controller/controller_utils.go, GetPodFromTemplate) and add a little that only they know; what
of that Istio, the rule or a selector may read is taken from the existing Pod.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from init_egress.existing import controllers
from init_egress.kube.client import ApiClient
from init_egress.kube.errors import NotFound, Unreadable
from init_egress.kube.kinds import (
    DAEMON_SET,
    JOB,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
)
from init_egress.kube.manifest import Manifest
from init_egress.kube.objects import (
    OwnerReference,
    StoredPod,
    TemplatedController,
    TemplatedSpec,
)

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_TEMPLATED = {
    (resource.api_version, resource.kind): resource
    for resource in (REPLICA_SET, STATEFUL_SET, DAEMON_SET, JOB, REPLICATION_CONTROLLER)
}
"""The kinds that make Pods of nothing but the template in their own spec."""
_REVISION = "controller-revision-hash"
_ADDED_BY_CONTROLLERS = (
    _REVISION,
    "pod-template-generation",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
)


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
            "no controller would recreate it, and how its author wrote it isn't stored"
            f" (no annotation {LAST_APPLIED})"
        )
    try:
        written = json.loads(text)
        metadata = {k: v for k, v in written["metadata"].items() if k in ("labels", "annotations")}
        spec = {k: v for k, v in written["spec"].items() if k != "nodeName"}
    except _NOT_AS_KUBECTL_WRITES as error:
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
    resource = _TEMPLATED.get((controller.api_version, controller.kind))
    if resource is None or not controller.is_valid:
        raise TemplateUnknown(
            f"{controllers.title(controller)} creates it, and where that has its Pod template is"
            " not known"
        )
    title = f"{controller.kind} {controller.name}"
    namespace = pod.metadata.namespace
    try:
        found = bulk.read(
            resource, controller.name, namespace, TemplatedController, uid=controller.uid
        )
    except NotFound:
        raise TemplateUnknown(f"{title}, which made it, is gone") from None
    except Unreadable as error:
        raise TemplateUnknown(f"{title}, which made it: {error}") from error
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
    if resource is STATEFUL_SET:
        spec = {**spec, "volumes": _volumes(spec, found.spec, pod.metadata.name)}
    return TemplatePod(
        f"the template of {title}",
        {**_HEADER, "metadata": metadata, "spec": spec},
        found.status.update_revision,
    )


# Whoever may write the Pod may write the annotation: any text, JSON of any shape and depth.
_NOT_AS_KUBECTL_WRITES = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
_HEADER = {"apiVersion": "v1", "kind": "Pod"}


def _added(of_the_pod: Mapping[str, str], found: TemplatedController) -> dict[str, str]:
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


def _volumes(spec: Mapping[str, object], of_set: TemplatedSpec, name: str) -> list[object]:
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
