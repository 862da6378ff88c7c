"""Why an existing Pod is another than one that is created now: what has changed since.

Pure: what was read of the cluster comes in, sentences come out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from init_egress.existing.pod_template import TemplatePod, is_of_another_revision
from init_egress.existing.survey import JudgedPod
from init_egress.rule import istio
from init_egress.rule.decision import Decision
from init_egress.rule.pod import Pod
from init_egress.rule.verdict import Verdict

_READ_BY_THE_MESH = (
    "sidecar.istio.io/",
    "traffic.sidecar.istio.io/",
    "istio.io/",
    "istio-init-egress/",
)
_EXCLUDES = (istio.EXCLUDE_RANGES, istio.EXCLUDE_PORTS)


@dataclass(frozen=True)
class InForce:
    """The object that carries the rule out.

    Attributes:
        title: its kind and name.
        created: since when it is there.
        changed: when its content was changed last.
    """

    title: str
    created: datetime
    changed: datetime


@dataclass(frozen=True)
class Recreated:
    """The Pod as it would be if it were created now.

    Attributes:
        draft: how it would be submitted.
        without: what admission makes of it without the charm.
        before: the rule's decision on that.
        after: the rule's decision on what admission makes of it in the end.
    """

    draft: TemplatePod
    without: Pod
    before: Decision
    after: Decision


def differences(
    seen: JudgedPod, recreated: Recreated, labelled: datetime | None, in_force: InForce | None
) -> list[str]:
    """Say why the two differ, a sentence each; nothing if they don't.

    Args:
        seen: the existing Pod.
        recreated: the Pod that would be created now.
        labelled: when the namespace's labels that Istio reads were last written, if they were.
        in_force: what carries the rule out; None if it isn't on the cluster.
    """
    if seen.decision.verdict is recreated.after.verdict and not seen.too_late:
        return []
    reasons = [
        *_annotated(seen),
        *_injection(seen, recreated, labelled),
        *_template(seen, recreated),
        *_charm(seen, recreated, in_force),
    ]
    return reasons or [
        f"the mesh, or another webhook, makes it otherwise now: {recreated.after.reason}"
    ]


def _annotated(seen: JudgedPod) -> Iterator[str]:
    if seen.too_late:
        yield (
            "its exclude annotations were written after its network was made, and the CNI plugin"
            " reads them only then"
        )


def _injection(seen: JudgedPod, recreated: Recreated, labelled: datetime | None) -> Iterator[str]:
    then, now = istio.STATUS in seen.pod.annotations, istio.STATUS in recreated.without.annotations
    if then == now:
        return
    if then:
        yield "Istio injected it then and does not now"
        return
    created = seen.pod.metadata.creation_timestamp
    if created and labelled and created < labelled:
        yield (
            f"namespace {seen.namespace.name} was labelled for the mesh at {_time(labelled)},"
            f" after the Pod was created at {_time(created)}"
        )
        return
    yield "Istio injects it now and did not then"


def _template(seen: JudgedPod, recreated: Recreated) -> Iterator[str]:
    if is_of_another_revision(seen.pod, recreated.draft):
        yield f"{recreated.draft.source} has changed since the Pod was created"
    then, now = _init_containers(seen.pod), _init_containers(recreated.without)
    if then != now:
        yield f"its init containers are now {_listed(now)}; when it was created, {_listed(then)}"
    for title, submitted, stored in (
        ("label", recreated.draft.labels, seen.pod.labels),
        ("annotation", recreated.draft.annotations, seen.pod.annotations),
    ):
        for key, value in submitted.items():
            if key.startswith(_READ_BY_THE_MESH) and not _is_kept(key, value, stored):
                yield f"{recreated.draft.source} has {title} {key}={value}, which the Pod lacks"
    for key, value in seen.pod.labels.items():
        if key.startswith(_READ_BY_THE_MESH) and key not in recreated.without.labels:
            yield f"the Pod has label {key}={value}, which {recreated.draft.source} lacks"


def _charm(seen: JudgedPod, recreated: Recreated, in_force: InForce | None) -> Iterator[str]:
    if (
        recreated.before.verdict is not Verdict.NEEDS_REMEDY
        or istio.STATUS not in seen.pod.annotations
    ):
        return
    if recreated.after.verdict is Verdict.NEEDS_REMEDY:
        yield "no policy of the charm acts on it now"
        return
    created = seen.pod.metadata.creation_timestamp
    if in_force is None or created is None:
        return
    if created < in_force.created:
        yield (
            f"the Pod was created at {_time(created)}, before {in_force.title} was,"
            f" at {_time(in_force.created)}"
        )
    elif created < in_force.changed:
        yield (
            f"the Pod was created at {_time(created)}, before {in_force.title} was last changed,"
            f" at {_time(in_force.changed)}"
        )
    else:
        yield (
            f"{in_force.title} was there when the Pod was created at {_time(created)}, but was"
            " not in effect yet, or failed and let it pass (failure-policy=ignore), or what it"
            " wrote was taken away"
        )


def _init_containers(pod: Pod) -> list[str]:
    return [c.name for c in pod.init_containers if c.name not in istio.ISTIO_CONTAINERS]


def _is_kept(key: str, value: str, stored: Mapping[str, str]) -> bool:
    """Whether a Pod has what its template gives it; the charm and Istio add to exclude lists."""
    found = stored.get(key)
    if found is None or key not in _EXCLUDES:
        return found == value
    return {e.strip() for e in value.split(",")} <= {e.strip() for e in found.split(",")}


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}Z"
