"""What is written to, and read from, the relations of those who watch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import ops
import pytest
from cosl import LZMABase64
from ops import testing

import charm as charm_module
from charm import IstioInitEgressCharm
from init_egress.kube.client import ApiClient
from init_egress.kube.errors import ClusterError, Unreachable
from init_egress.observability import relations, scraping
from init_egress.observability.relations import scrape_jobs
from init_egress.observability.scraping import Component, Target
from init_egress.telemetry.loki import Destination

UUID = "20ce8299-3634-4bef-8bd8-5ace6c8816b4"
TARGETS = (
    Target(Component.SERVICE, "webhook.kubeflow.svc:8080"),
    Target(Component.REPLICA, "10.1.0.1:8080", "webhook-a"),
    Target(Component.REPLICA, "[fd00::2]:8080", "webhook-b"),
    Target(Component.EXPORTER, "exporter.kubeflow.svc:8080"),
)
TOPOLOGY = {
    "model": "kubeflow",
    "model_uuid": UUID,
    "application": "egress",
    "unit": "egress/0",
    "charm_name": "istio-init-egress",
}
LABELS = {
    "juju_model": "kubeflow",
    "juju_model_uuid": UUID,
    "juju_application": "egress",
    "juju_charm": "istio-init-egress",
}
METRICS = testing.Relation("metrics-endpoint", interface="prometheus_scrape")
GRAFANA = testing.Relation("grafana-dashboard", interface="grafana_dashboard")
LOKI = testing.Relation("logging", interface="loki_push_api")
PUSH = "http://loki-0.loki-endpoints.cos.svc.cluster.local:3100/loki/api/v1/push"


class _Unreached:
    """A cluster of which the targets are known, and nothing else can be had."""

    targets: tuple[Target, ...] = TARGETS

    def __getattr__(self, name: str) -> Any:
        raise Unreachable(f"can't {name}")


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> _Unreached:
    """No cluster can be had here; what there is to scrape is said by the test."""
    unreached = _Unreached()
    monkeypatch.setattr(ApiClient, "connect", lambda: unreached)
    monkeypatch.setattr(scraping, "update", lambda cluster, *_: cluster.targets)
    return unreached


@pytest.fixture
def context() -> testing.Context[IstioInitEgressCharm]:
    return testing.Context(IstioInitEgressCharm, app_name="egress", unit_id=0)


def state(
    *relations: testing.RelationBase, leader: bool = True, uuid: str = UUID
) -> testing.State:
    return testing.State(
        leader=leader,
        model=testing.Model(name="kubeflow", uuid=uuid, type="kubernetes"),
        relations=relations,
        resources={testing.Resource(name="webhook-image", path="/nowhere")},
    )


def after(
    context: testing.Context[IstioInitEgressCharm],
    relation: testing.Relation,
    event: str = "relation_changed",
    **kwargs: Any,
) -> testing.Relation:
    """The relation after one of its events."""
    out = context.run(getattr(context.on, event)(relation), state(relation, **kwargs))
    found = out.get_relation(relation.id)
    assert isinstance(found, testing.Relation)
    return found


def decoded(data: Mapping[str, str]) -> dict[str, Any]:
    return {key: json.loads(value) for key, value in data.items()}


# --- metrics-endpoint ----------------------------------------------------------------------------


@pytest.mark.parametrize("event", ["relation_created", "relation_changed"])
def test_jobs_rules_and_topology_are_written_for_prometheus(
    context: testing.Context[IstioInitEgressCharm], event: str
) -> None:
    data = decoded(after(context, METRICS, event).local_app_data)

    assert data.keys() == {"scrape_metadata", "scrape_jobs", "alert_rules"}
    assert data["scrape_metadata"] == TOPOLOGY
    assert [(job["job_name"], job["metrics_path"]) for job in data["scrape_jobs"]] == [
        ("webhook-replica", "/metrics"),
        ("webhook-service", "/metrics/service"),
        ("charm", "/metrics"),
    ]
    rules = [rule for group in data["alert_rules"]["groups"] for rule in group["rules"]]
    assert all(rule["labels"].items() >= LABELS.items() for rule in rules)
    # "Is expected to send alert rules where the expressions lack Juju topology label selectors."
    assert not any("juju_" in rule["expr"] for rule in rules)


def test_each_unit_tells_its_name_and_address_leader_or_not(
    context: testing.Context[IstioInitEgressCharm],
) -> None:
    for leader in (True, False):
        data = after(context, METRICS, leader=leader).local_unit_data
        assert data["prometheus_scrape_unit_name"] == "egress/0"
        assert data["prometheus_scrape_unit_address"]


def test_two_replicas_are_told_apart_by_a_label_for_the_requirer_overwrites_instance() -> None:
    static: Any = scrape_jobs(TARGETS)[0]["static_configs"]
    assert static == [
        {
            "targets": ["10.1.0.1:8080"],
            "labels": {"component": "webhook-replica", "replica": "webhook-a"},
        },
        {
            "targets": ["[fd00::2]:8080"],
            "labels": {"component": "webhook-replica", "replica": "webhook-b"},
        },
    ]


def test_where_nothing_can_be_scraped_there_is_neither_a_job_nor_an_alert(
    context: testing.Context[IstioInitEgressCharm], cluster: _Unreached
) -> None:
    cluster.targets = ()
    data = decoded(after(context, METRICS).local_app_data)
    assert data["scrape_jobs"] == []
    assert data["alert_rules"] == {}


def test_without_a_webhook_there_are_only_the_alerts_about_what_the_charm_saw(
    context: testing.Context[IstioInitEgressCharm], cluster: _Unreached
) -> None:
    cluster.targets = TARGETS[-1:]
    data = decoded(after(context, METRICS).local_app_data)
    assert [job["job_name"] for job in data["scrape_jobs"]] == ["charm"]
    (group,) = data["alert_rules"]["groups"]
    assert "istio_init_egress_charm" in group["name"]


def test_what_was_told_stays_while_the_cluster_does_not_answer(
    context: testing.Context[IstioInitEgressCharm], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = after(context, METRICS)

    def unreachable(*_: object) -> None:
        raise Unreachable("no answer")

    monkeypatch.setattr(scraping, "update", unreachable)
    assert after(context, told).local_app_data == told.local_app_data


def test_nothing_is_exported_unless_somebody_scrapes(
    context: testing.Context[IstioInitEgressCharm], monkeypatch: pytest.MonkeyPatch
) -> None:
    images: list[object] = []

    def update(_: object, __: object, image: object, *___: object) -> tuple[Target, ...]:
        images.append(image)
        return ()

    monkeypatch.setattr(scraping, "update", update)
    monkeypatch.setattr(IstioInitEgressCharm, "_image", lambda _: "an image")

    context.run(context.on.update_status(), state())
    after(context, METRICS, "relation_broken")
    after(context, METRICS)

    assert images == [None, None, "an image"]


# --- grafana-dashboard ---------------------------------------------------------------------------


def test_the_dashboards_are_written_for_grafana(
    context: testing.Context[IstioInitEgressCharm],
) -> None:
    data = decoded(after(context, GRAFANA).local_app_data)["dashboards"]

    (template,) = data["templates"].values()
    assert data["templates"].keys() == {"file:istio-init-egress"}
    assert template["charm"] == "istio-init-egress"
    assert template["inject_dropdowns"] is True
    assert template["juju_topology"]["application"] == "egress"
    dashboard = json.loads(LZMABase64.decompress(template["content"]))
    assert dashboard["title"] == "Istio init egress"
    assert len(dashboard["uid"]) == 40
    assert dashboard["tags"] == ["charm: istio-init-egress"]


def test_a_dashboard_that_did_not_change_makes_no_event(
    context: testing.Context[IstioInitEgressCharm],
) -> None:
    once = after(context, GRAFANA)
    assert after(context, once).local_app_data == once.local_app_data


# --- logging -------------------------------------------------------------------------------------


def logs(
    context: testing.Context[IstioInitEgressCharm], *relations: testing.Relation
) -> Destination | None:
    """Where the webhook's log lines go."""
    with context(context.on.update_status(), state(*relations)) as manager:
        found = manager.charm._observability.logs()
        manager.run()
    return found


def from_loki(*endpoints: str) -> testing.Relation:
    units = {number: {"endpoint": written} for number, written in enumerate(endpoints)}
    return testing.Relation("logging", remote_app_name="loki", remote_units_data=units)


def test_the_topology_is_written_for_loki(context: testing.Context[IstioInitEgressCharm]) -> None:
    data = decoded(after(context, LOKI).local_app_data)
    assert data == {"metadata": TOPOLOGY, "alert_rules": {}}


def test_lines_go_to_each_unit_of_loki_with_the_labels_of_the_topology(
    context: testing.Context[IstioInitEgressCharm],
) -> None:
    other = PUSH.replace("loki-0", "loki-1")
    relation = from_loki(json.dumps({"url": other}), json.dumps({"url": PUSH}))
    assert logs(context, relation) == Destination((PUSH, other), LABELS)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "no json",
        "[]",
        "{}",
        "null",
        '{"url": null}',
        '{"url": ""}',
        '{"url": 1}',
        '{"url": "loki:3100"}',
        '{"url": "ftp://loki/push"}',
        '{"url": "http://loki:no/push"}',
        '{"url": "http://loki:99999/push"}',
        '{"url": "http://[::1/push"}',
        '{"url": "http://loki/a b"}',
    ],
)
def test_what_is_no_url_is_passed_over_and_the_others_are_used(
    context: testing.Context[IstioInitEgressCharm], written: str
) -> None:
    assert logs(context, from_loki(written)) is None
    both = from_loki(written, json.dumps({"url": PUSH}))
    found = logs(context, both)
    assert found
    assert found.urls == (PUSH,)


def test_authorities_are_trusted_by_whoever_sends_logs(
    context: testing.Context[IstioInitEgressCharm],
) -> None:
    data = {"certificates": json.dumps(["PEM B", "PEM A"]), "version": "1"}
    authorities = testing.Relation(
        "receive-ca-cert", interface="certificate_transfer", remote_app_data=data
    )
    found = logs(context, from_loki(json.dumps({"url": PUSH})), authorities)
    assert found
    assert found.authorities == "PEM A\nPEM B"


def test_no_authorities_yet_is_no_error(context: testing.Context[IstioInitEgressCharm]) -> None:
    for data in ({}, {"certificates": "no json"}, {"version": "1"}):
        authorities = testing.Relation("receive-ca-cert", remote_app_data=data)
        found = logs(context, from_loki(json.dumps({"url": PUSH})), authorities)
        assert found
        assert found.authorities == ""


# --- charm-tracing -------------------------------------------------------------------------------


def test_traces_are_asked_for_over_http(context: testing.Context[IstioInitEgressCharm]) -> None:
    tracing = testing.Relation("charm-tracing", interface="tracing")
    data = after(context, tracing, "relation_created").local_app_data
    assert json.loads(data["receivers"]) == ["otlp_http"]


@pytest.mark.parametrize("written", ["", "no json", "[]", '[{"protocol": {"name": "other"}}]'])
def test_wrong_data_of_a_tracing_backend_is_no_error(
    context: testing.Context[IstioInitEgressCharm], written: str
) -> None:
    tracing = testing.Relation("charm-tracing", remote_app_data={"receivers": written})
    after(context, tracing)


# --- all of them ---------------------------------------------------------------------------------

ENDPOINTS = [
    relations.METRICS_ENDPOINT,
    relations.GRAFANA_DASHBOARD,
    relations.LOGGING,
    relations.CHARM_TRACING,
    relations.RECEIVE_CA_CERT,
]
EVENTS = ["relation_created", "relation_joined", "relation_changed", "relation_departed"]


@pytest.mark.parametrize("leader", [True, False])
@pytest.mark.parametrize("event", [*EVENTS, "relation_broken"])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("data", [{}, {"endpoint": "%", "certificates": "%", "receivers": "%"}])
def test_no_event_of_any_of_them_is_an_error_whatever_the_data(
    context: testing.Context[IstioInitEgressCharm],
    endpoint: str,
    event: str,
    leader: bool,
    data: dict[str, str],
) -> None:
    relation = testing.Relation(endpoint, remote_app_data=data, remote_units_data={0: data})
    out = context.run(getattr(context.on, event)(relation), state(relation, leader=leader))
    written = out.get_relation(relation.id).local_app_data
    if not leader:
        assert not written


@pytest.mark.parametrize("endpoint", ENDPOINTS[:3])
def test_a_model_whose_identity_cannot_be_read_is_no_error(
    context: testing.Context[IstioInitEgressCharm], endpoint: str
) -> None:
    relation = testing.Relation(endpoint)
    assert not after(context, relation, uuid="not-a-uuid").local_app_data


def test_what_watches_cannot_keep_the_charm_from_its_work(
    context: testing.Context[IstioInitEgressCharm], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise ClusterError("no")

    monkeypatch.setattr(scraping, "update", failing)
    monkeypatch.setattr(charm_module.Reconciler, "reconcile", lambda _: None)
    monkeypatch.setattr(charm_module, "_reached", lambda *_: ops.ActiveStatus("all is well"))
    monkeypatch.setattr(IstioInitEgressCharm, "_inputs", lambda *_: [None] * 4)
    out = context.run(context.on.update_status(), state(METRICS))
    assert out.unit_status == testing.ActiveStatus("all is well")
