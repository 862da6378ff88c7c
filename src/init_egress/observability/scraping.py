"""What Prometheus can scrape on the cluster: the webhook's replicas, and the exporter.

With the webhook, each replica is a target of its own, since a count read now from one and now
from another goes up and down; and its Service is one, which answers while any replica is ready.
What the charm itself knows is shown by the exporter, with every backend, while somebody scrapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from init_egress.backends import webhook_deployment
from init_egress.backends.manifests import Application, ExporterValues, Manifest, render_exporter
from init_egress.backends.reconciler import ReconcileReport
from init_egress.backends.webhook_deployment import Image
from init_egress.existing.survey import Scope, judge_all
from init_egress.exporter.snapshot import FILE, AuditCounts, BackendEffect, Snapshot, decode
from init_egress.kube.client import CONFIG_MAP, DEPLOYMENT, SERVICE, Cluster
from init_egress.kube.paging import ApiClient
from init_egress.rule.decision import Policy

PORT = 8080
AUDIT_PERIOD = 240.0
"""Seconds; at each update-status, by default every 5 minutes, but not at each event of many."""


class Component(str, Enum):
    """What is scraped; the label `component` of its series."""

    REPLICA = "webhook-replica"
    SERVICE = "webhook-service"
    EXPORTER = "charm"


@dataclass(frozen=True)
class Target:
    """One address to scrape.

    Attributes:
        component: what it is.
        address: host and port.
        replica: the Pod's name, if it is one of several.
    """

    component: Component
    address: str
    replica: str = ""


def targets(cluster: Cluster, owner: Application) -> tuple[Target, ...]:
    """All that can be scraped now.

    Raises:
        ClusterError: the cluster can't be asked.
    """
    found: list[Target] = []
    if cluster.get(SERVICE, owner.workload_name, owner.model):
        found.append(Target(Component.SERVICE, _service(owner.workload_name, owner)))
        pods = cluster.labelled_pods(owner.model, webhook_deployment.selector(owner))
        found += [
            Target(Component.REPLICA, _at(address), name)
            for name, address in map(_name_and_address, pods)
            if address
        ]
    if cluster.get(SERVICE, owner.exporter_name, owner.model):
        found.append(Target(Component.EXPORTER, _service(owner.exporter_name, owner)))
    return tuple(found)


def update(
    cluster: Cluster,
    owner: Application,
    image: Image | None,
    report: ReconcileReport | None,
    policy: Policy | None,
    now: datetime,
) -> tuple[Target, ...]:
    """Show what was seen if anybody scrapes, and say what can be scraped.

    Args:
        cluster: where.
        owner: the application.
        image: the webhook's image, which is the exporter's too; None to show nothing.
        report: what was reached just now; None if the charm could not act.
        policy: what the operator configured; None if that can't be told.
        now: the time.

    Raises:
        ClusterError: the cluster can't do it.
    """
    if image is None:
        _hide(cluster, owner)
    else:
        _show(cluster, owner, image, _figures(cluster, owner, report, policy, now))
    return targets(cluster, owner)


def _figures(
    cluster: Cluster,
    owner: Application,
    report: ReconcileReport | None,
    policy: Policy | None,
    now: datetime,
) -> Snapshot:
    audit = _last_audit(cluster, owner)
    if policy and (audit is None or now.timestamp() - audit.at >= AUDIT_PERIOD):
        audit = audited(ApiClient.connect(), policy, now)
    if report is None:
        return Snapshot("none", BackendEffect.FAILED, now.timestamp(), audit)
    effect = BackendEffect(report.verification.effect.value)
    return Snapshot(report.plan.form.value, effect, now.timestamp(), audit)


def audited(bulk: ApiClient, policy: Policy, now: datetime) -> AuditCounts:
    """Count all Pods that haven't finished, by the rule's verdict.

    Raises:
        ClusterError: the cluster can't be asked.
    """
    verdicts: Counter[str] = Counter()
    stuck = 0
    for seen in judge_all(bulk, policy, Scope(), now):
        if seen.pod.is_finished or seen.pod.is_going:
            continue
        verdicts[seen.decision.verdict.value] += 1
        stuck += seen.stuck is not None and seen.stuck.for_want_of_network
    return AuditCounts(now.timestamp(), dict(verdicts), stuck)


def _show(cluster: Cluster, owner: Application, image: Image, seen: Snapshot) -> None:
    exporter = ExporterValues(
        name=owner.exporter_name,
        namespace=owner.model,
        image=image.reference,
        selector={"istio-init-egress/exporter": owner.application},
        figures=seen.encode(),
        registry=webhook_deployment.registry(image),
    )
    cluster.apply(render_exporter(exporter, _as_exporter(owner)))


def remove(cluster: Cluster, owner: Application) -> None:
    """Remove the exporter.

    Raises:
        ClusterError: the cluster can't do it.
    """
    cluster.prune(_as_exporter(owner))


def _hide(cluster: Cluster, owner: Application) -> None:
    """Remove the exporter, if it is there; asked at each event, so at the cost of one request."""
    if cluster.get(DEPLOYMENT, owner.exporter_name, owner.model):
        remove(cluster, owner)


def _as_exporter(owner: Application) -> Application:
    """The owner by which the exporter's objects are labelled: the backend's prune spares them.

    No application's name holds a dot, so it is nobody else's.
    """
    return replace(owner, application=f"{owner.application}.exporter")


def _last_audit(cluster: Cluster, owner: Application) -> AuditCounts | None:
    """The audit that is shown now; what somebody spoilt is as good as none."""
    stored = cluster.get(CONFIG_MAP, owner.exporter_name, owner.model) or {}
    try:
        return decode(str(_mapping(stored.get("data"))[FILE])).audit
    except (KeyError, ValueError):
        return None


def _service(name: str, owner: Application) -> str:
    return f"{name}.{owner.model}.svc:{PORT}"


def _name_and_address(pod: Manifest) -> tuple[str, str]:
    address = _mapping(pod.get("status")).get("podIP")
    return str(_mapping(pod.get("metadata")).get("name")), str(address or "")


def _at(address: str) -> str:
    return f"[{address}]:{PORT}" if ":" in address else f"{address}:{PORT}"


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
