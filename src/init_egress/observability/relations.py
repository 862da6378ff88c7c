"""The observability relations: metrics, alerts, dashboards, logs, traces.

The relation data follow the published specifications, or the charm library where it is the only
specification:

* prometheus_scrape: https://github.com/canonical/charm-relation-interfaces/tree/main/interfaces/prometheus_scrape/v0
* grafana_dashboard: lib/charms/grafana_k8s/v0/grafana_dashboard.py in
  https://github.com/canonical/grafana-k8s-operator
* loki_push_api: lib/charms/loki_k8s/v1/loki_push_api.py in
  https://github.com/canonical/loki-k8s-operator
* tracing and certificate_transfer: by ops.tracing and charmlibs
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Sequence
from pathlib import Path

import ops
from charmlibs.interfaces.certificate_transfer import CertificateTransferRequires
from cosl import DashboardPath40UID, JujuTopology, LZMABase64
from cosl.juju_topology import InvalidUUIDError
from cosl.rules import Rules

from init_egress.observability.scraping import Component, Target
from init_egress.telemetry import loki

logger = logging.getLogger(__name__)

METRICS_ENDPOINT = "metrics-endpoint"
GRAFANA_DASHBOARD = "grafana-dashboard"
LOGGING = "logging"
CHARM_TRACING = "charm-tracing"
RECEIVE_CA_CERT = "receive-ca-cert"

_SOURCE = Path(__file__).resolve().parents[2]
RULES = _SOURCE / "prometheus_alert_rules"
DASHBOARDS = _SOURCE / "grafana_dashboards"

_RULES_OF = {Component.SERVICE: "webhook.rules", Component.EXPORTER: "charm.rules"}
_PATHS = {Component.SERVICE: "/metrics/service"}


class Observability(ops.Object):
    """Writes and reads the data of the observability relations."""

    def __init__(self, charm: ops.CharmBase) -> None:
        super().__init__(charm, "observability")
        self._charm = charm
        self._tracing = ops.tracing.Tracing(
            charm, tracing_relation_name=CHARM_TRACING, ca_relation_name=RECEIVE_CA_CERT
        )
        self._authorities = CertificateTransferRequires(charm, RECEIVE_CA_CERT)

    @property
    def events(self) -> list[ops.framework.BoundEvent]:
        """The events that require a reconcile."""
        on = self._charm.on
        events = [
            self._authorities.on.certificate_set_updated,
            self._authorities.on.certificates_removed,
        ]
        for endpoint in (METRICS_ENDPOINT, GRAFANA_DASHBOARD, LOGGING):
            named = on[endpoint]
            events += [named.relation_created, named.relation_changed, named.relation_broken]
        # Each Loki unit writes its own URL.
        return [*events, on[LOGGING].relation_departed]

    @property
    def scraped(self) -> bool:
        """Whether a metrics relation exists."""
        return bool(self._active(METRICS_ENDPOINT))

    def publish_static(self) -> None:
        """Write the data that do not depend on the cluster."""
        for relation in self._active(METRICS_ENDPOINT):
            relation.data[self._charm.unit].update(
                {
                    "prometheus_scrape_unit_address": socket.getfqdn(),
                    "prometheus_scrape_unit_name": self._charm.unit.name,
                }
            )
        topology = self._topology()
        if topology is None or not self._charm.unit.is_leader():
            return
        for relation in self._active(GRAFANA_DASHBOARD):
            self._write(relation, dashboards=dashboards(topology))
        for relation in self._active(LOGGING):
            self._write(relation, metadata=dict(topology.as_dict()), alert_rules={})

    def publish(self, targets: Sequence[Target]) -> None:
        """Write the scrape jobs and the alert rules; only the leader may call this.

        Args:
            targets: what can be scraped now.
        """
        topology = self._topology()
        if topology is None:
            return
        for relation in self._active(METRICS_ENDPOINT):
            self._write(
                relation,
                scrape_metadata=dict(topology.as_dict()),
                scrape_jobs=scrape_jobs(targets),
                alert_rules=alert_rules(targets, topology),
            )

    def logs(self) -> loki.Destination | None:
        """Where the webhook forwards its log lines; None without a usable Loki."""
        topology = self._topology()
        urls = sorted({url for relation in self._active(LOGGING) for url in _urls(relation)})
        if topology is None or not urls:
            return None
        authorities = "\n".join(sorted(self._authorities.get_all_certificates()))
        return loki.Destination(tuple(urls), topology.label_matcher_dict, authorities)

    def _topology(self) -> JujuTopology | None:
        try:
            return JujuTopology.from_charm(self._charm)
        except InvalidUUIDError as error:
            logger.warning("skipping the observability relations: %s", error.message)
            return None

    def _active(self, endpoint: str) -> list[ops.Relation]:
        """The relations of an endpoint, without one that is being broken."""
        return [relation for relation in self.model.relations[endpoint] if relation.active]

    def _write(self, relation: ops.Relation, **data: object) -> None:
        encoded = {key: json.dumps(value, sort_keys=True) for key, value in data.items()}
        relation.data[self._charm.app].update(encoded)


def scrape_jobs(targets: Sequence[Target]) -> list[dict[str, object]]:
    """The targets as Prometheus scrape jobs, one for each component.

    The requirer labels the series with the application's topology and overwrites `instance` with
    it, so the series of two replicas differ only in the label `replica`
    (PrometheusConfig.expand_wildcard_targets_into_individual_jobs in
    lib/charms/prometheus_k8s/v0/prometheus_scrape.py).
    """
    jobs: list[dict[str, object]] = []
    for component in Component:
        static = [
            {"targets": [target.address], "labels": _labels(target)}
            for target in targets
            if target.component is component
        ]
        if static:
            jobs.append(
                {
                    "job_name": component.value,
                    "metrics_path": _PATHS.get(component, "/metrics"),
                    "static_configs": static,
                }
            )
    return jobs


def alert_rules(targets: Sequence[Target], topology: JujuTopology) -> dict[str, object]:
    """The alert rules for the components that are scraped, with the topology's labels.

    The requirer injects the labels into the expressions: "Is expected to inject alert rule
    topology labels as label matchers in alert rule expressions" (the interface's README.md). An
    alert on the absence of series would fire for a component that is not deployed.
    """
    rules = Rules("promql", topology)
    for component, name in _RULES_OF.items():
        if any(target.component is component for target in targets):
            rules.add_path(RULES / name)
    return rules.as_dict()


def dashboards(topology: JujuTopology) -> dict[str, object]:
    """The dashboards, in the format of GrafanaDashboardProvider.

    That library writes a random `uuid` each time, to force a relation-changed event. Here it is
    derived from the content, so that only a changed dashboard causes an event.
    """
    templates = {f"file:{path.stem}": _dashboard(path, topology) for path in _dashboard_files()}
    return {"templates": templates, "uuid": _uid(json.dumps(templates, sort_keys=True))}


def _dashboard(path: Path, topology: JujuTopology) -> dict[str, object]:
    charm = topology.charm_name or ""
    content = json.loads(path.read_text())
    content["uid"] = _uid(charm, f"src/{DASHBOARDS.name}/{path.name}")
    content["tags"] = [f"charm: {charm}"]
    # The unit would have the data change with the leader.
    juju = topology.as_dict(excluded_keys=["unit", "charm_name"])
    return {
        "charm": charm,
        "content": LZMABase64.compress(json.dumps(content)),
        "juju_topology": {**juju, "unit": ""},
        "inject_dropdowns": True,
        "dashboard_alt_uid": _uid(charm, path.stem)[:16],
    }


def _dashboard_files() -> list[Path]:
    return sorted(DASHBOARDS.glob("*.json"))


def _uid(*parts: str) -> str:
    return DashboardPath40UID.generate(*parts)


def _labels(target: Target) -> dict[str, str]:
    labels = {"component": target.component.value}
    return {**labels, "replica": target.replica} if target.replica else labels


def _urls(relation: ops.Relation) -> list[str]:
    """The push API's URL of each remote unit; invalid ones are skipped with a warning."""
    urls: list[str] = []
    for unit in relation.units:
        written = relation.data[unit].get("endpoint", "")
        if not written:
            continue
        try:
            url = str(json.loads(written)["url"])
        except (ValueError, TypeError, KeyError):
            url = ""
        if loki.is_usable(url):
            urls.append(url)
        else:
            logger.warning(
                "%s wrote an invalid URL on relation %s: %s", unit.name, relation.name, written
            )
    return urls
