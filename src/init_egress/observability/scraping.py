"""What Prometheus can scrape on the cluster: the webhook's replicas, and the exporter.

Each replica of the webhook is a target of its own: through the Service, scrapes of one counter
would reach different replicas. The Service is a target too, since it answers while any replica is
ready. The exporter runs with every backend, while a metrics relation exists.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from init_egress.backends import webhook_deployment
from init_egress.backends.reconciler import ReconcileReport
from init_egress.backends.render import render
from init_egress.backends.webhook_deployment import Image
from init_egress.existing.survey import judge_all
from init_egress.exporter.snapshot import FILE, AuditCounts, BackendEffect, Snapshot, decode
from init_egress.kube.application import Application
from init_egress.kube.client import ApiClient
from init_egress.kube.cluster import Cluster
from init_egress.kube.kinds import CONFIG_MAP, DEPLOYMENT, SERVICE
from init_egress.kube.manifest import Manifest, mapping, name_of
from init_egress.kube.paging import UnreadableObject
from init_egress.kube.scope import Scope
from init_egress.rule.policy import Policy

logger = logging.getLogger(__name__)

PORT = 8080
AUDIT_PERIOD = 240.0
"""Seconds: once for each update-status (by default every 5 minutes), not for each event."""


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


@dataclass(frozen=True)
class ExporterValues:
    """What the exporter's template is filled with.

    Attributes:
        name: of the Deployment, the Service and the rest.
        namespace: the model's.
        image: where the image is; it is the webhook's.
        selector: the labels of its Pod.
        snapshot: the mounted file, JSON.
        registry: the credentials of a private registry, base64, else empty.
    """

    name: str
    namespace: str
    image: str
    selector: Mapping[str, str]
    snapshot: str
    registry: str = ""


def targets(cluster: Cluster, application: Application) -> tuple[Target, ...]:
    """All targets that exist now.

    Raises:
        ClusterError: the cluster cannot be read.
    """
    found: list[Target] = []
    if cluster.get(SERVICE, application.webhook_name, application.model):
        found.append(Target(Component.SERVICE, _service(application.webhook_name, application)))
        pods = cluster.labelled_pods(application.model, webhook_deployment.selector(application))
        found += [
            Target(Component.REPLICA, _at(address), name)
            for name, address in map(_name_and_address, pods)
            if address
        ]
    if cluster.get(SERVICE, application.exporter_name, application.model):
        found.append(Target(Component.EXPORTER, _service(application.exporter_name, application)))
    return tuple(found)


def update(
    cluster: Cluster,
    application: Application,
    image: Image | None,
    report: ReconcileReport | None,
    policy: Policy | None,
    now: datetime,
) -> tuple[Target, ...]:
    """Update the exporter, or remove it if it is not needed; return the targets.

    Args:
        cluster: where.
        application: the application that is scraped.
        image: the image of the webhook and the exporter; None to remove the exporter.
        report: the result of this reconcile; None if the charm could not act.
        policy: what the operator configured; None if it is invalid.
        now: the time.

    Raises:
        ClusterError: the cluster cannot be changed.
    """
    if image is None:
        _remove_if_present(cluster, application)
    else:
        _apply(cluster, application, image, _snapshot(cluster, application, report, policy, now))
    return targets(cluster, application)


def _snapshot(
    cluster: Cluster,
    application: Application,
    report: ReconcileReport | None,
    policy: Policy | None,
    now: datetime,
) -> Snapshot:
    audit = _last_audit(cluster, application)
    if policy and (audit is None or now.timestamp() - audit.at >= AUDIT_PERIOD):
        audit = audited(ApiClient.connect(), policy, now)
    if report is None:
        return Snapshot("none", BackendEffect.FAILED, now.timestamp(), audit)
    effect = BackendEffect(report.verification.effect.value)
    return Snapshot(report.plan.backend.kind.value, effect, now.timestamp(), audit)


def audited(bulk: ApiClient, policy: Policy, now: datetime) -> AuditCounts:
    """Count all unfinished Pods by verdict.

    Raises:
        ClusterError: the cluster cannot be read.
    """
    verdicts: Counter[str] = Counter()
    stuck = 0
    for seen in judge_all(bulk, policy, Scope(), now, _log_unreadable):
        if seen.pod.is_finished or seen.pod.is_going:
            continue
        verdicts[seen.decision.verdict.value] += 1
        stuck += seen.stuck is not None and seen.stuck.for_want_of_network
    return AuditCounts(now.timestamp(), dict(verdicts), stuck)


def _apply(cluster: Cluster, application: Application, image: Image, snapshot: Snapshot) -> None:
    exporter = ExporterValues(
        name=application.exporter_name,
        namespace=application.model,
        image=image.reference,
        selector={"istio-init-egress/exporter": application.name},
        snapshot=snapshot.encode(),
        registry=webhook_deployment.registry(image),
    )
    context = {"exporter": exporter, "labels": application.of_exporter.labels}
    cluster.apply(render(["exporter/workload.yaml.j2"], context))


def _log_unreadable(pod: UnreadableObject) -> None:
    logger.warning("can't read Pod %s, which is not counted: %s", pod, pod.reason)


def remove(cluster: Cluster, application: Application) -> None:
    """Remove the exporter.

    Raises:
        ClusterError: the cluster cannot be changed.
    """
    cluster.prune(application.of_exporter)


def _remove_if_present(cluster: Cluster, application: Application) -> None:
    """Remove the exporter if it exists. This runs at each event, so it reads one object first."""
    if cluster.get(DEPLOYMENT, application.exporter_name, application.model):
        remove(cluster, application)


def _last_audit(cluster: Cluster, application: Application) -> AuditCounts | None:
    """The audit that the exporter shows now; None if there is none, or it cannot be read."""
    stored = cluster.get(CONFIG_MAP, application.exporter_name, application.model) or {}
    try:
        return decode(str(mapping(stored.get("data"))[FILE])).audit
    except (KeyError, ValueError):
        return None


def _service(name: str, application: Application) -> str:
    return f"{name}.{application.model}.svc:{PORT}"


def _name_and_address(pod: Manifest) -> tuple[str, str]:
    address = mapping(pod.get("status")).get("podIP")
    return name_of(pod), str(address or "")


def _at(address: str) -> str:
    return f"[{address}]:{PORT}" if ":" in address else f"{address}:{PORT}"
