"""What the charm shows to Prometheus, on a real API server, with Pods that answer scrapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from lightkube import Client
from lightkube.resources.core_v1 import Pod
from ops import testing

from init_egress.backends import reconciler
from init_egress.backends.backend import Timeouts
from init_egress.exporter.snapshot import FILE, Snapshot, decode
from init_egress.kube.kinds import CONFIG_MAP, DEPLOYMENT, OURS, POD
from init_egress.observability import scraping
from tests.functional.unit import MODEL, Unit, objects
from tests.testbed.control_plane import ControlPlane
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.istio import Istiod
from tests.testbed.process import wait_until
from tests.testbed.workloads import Workloads

IMAGE = "example.com/istio-init-egress-webhook:1"
EXPORTER = "istio-init-egress-exporter"
METRICS = testing.Relation("metrics-endpoint", interface="prometheus_scrape")
EXPORTERS = [
    f"{kind} {EXPORTER}"
    for kind in ("ConfigMap", "Deployment", "NetworkPolicy", "Service", "ServiceAccount")
]


@pytest.fixture
def scraped(unit: Unit, client: Client, tmp_path: Path) -> Unit:
    """A unit that has the image and is scraped."""
    path = tmp_path / "image.yaml"
    path.write_text(yaml.safe_dump({"registrypath": IMAGE, "username": "", "password": ""}))
    image = testing.Resource(name="webhook-image", path=path)
    return unit.having(resources={image}, relations={*unit.state.relations, METRICS})


@pytest.fixture
def node(workloads: Workloads) -> Workloads:
    """A node that knows the image."""
    workloads.entry_points[IMAGE] = ["python3"]
    return workloads


def jobs(unit: Unit) -> dict[str, Any]:
    """What Prometheus is told to scrape, by the job's name."""
    data = unit.state.get_relation(METRICS.id).local_app_data
    return {job["job_name"]: job for job in json.loads(data["scrape_jobs"])}


def snapshot(client: Client) -> Snapshot:
    """What the exporter is given."""
    return decode(client.get(CONFIG_MAP, EXPORTER, namespace=MODEL)["data"][FILE])


def scrape(address: str, path: str) -> str:
    with httpx2.Client(trust_env=False) as web:
        return web.get(f"http://{address}{path}").raise_for_status().text


def exporters(client: Client) -> list[str]:
    """The exporter's objects that there are."""
    name = {"istio-init-egress/application": "istio-init-egress.exporter"}
    return sorted(
        f"{kind.__name__} {item.metadata.name}"
        for kind in (k for k in OURS if f"{k.__name__} {EXPORTER}" in EXPORTERS)
        for item in client.list(kind, labels={**name}, namespace=MODEL)  # type: ignore
    )


def test_what_the_charm_saw_can_be_scraped_with_a_backend_that_runs_nothing(
    scraped: Unit, node: Workloads, istiod: Istiod, namespace: MakeNamespace, client: Client
) -> None:
    team = namespace({"istio-injection": "enabled", "suite": "monitoring"})

    status = scraped.configured(backend="native", namespace_selector="suite=monitoring")

    assert f"verified in {team}" in status.message
    assert exporters(client) == EXPORTERS
    (job,) = jobs(scraped).values()
    assert job["job_name"] == "charm"
    assert job["static_configs"][0]["targets"] == [f"{EXPORTER}.{MODEL}.svc:8080"]
    (pod,) = wait_until(lambda: _ready(node, "exporter"), "the exporter is ready")
    text = scrape(f"{pod}:8080", "/metrics")
    assert 'istio_init_egress_backend_effect{backend="native",effect="arrives"} 1.0' in text
    assert "istio_init_egress_audit_stuck_pods 0.0" in text


def test_each_replica_of_the_webhook_is_a_target_that_answers(
    scraped: Unit, node: Workloads, client: Client
) -> None:
    scraped.configured(backend="webhook", namespace_selector="suite=nowhere")

    found = jobs(scraped)
    assert found.keys() == {"webhook-replica", "webhook-service", "charm"}
    replicas = found["webhook-replica"]["static_configs"]
    addresses = [address for config in replicas for address in config["targets"]]
    assert len(set(addresses)) == 2
    assert {config["labels"]["replica"] for config in replicas} == {
        pod.metadata.name
        for pod in node.pods()
        if pod.metadata and "webhook" in str(pod.metadata.name)
    }
    for address in addresses:
        text = scrape(address, found["webhook-replica"]["metrics_path"])
        assert "istio_init_egress_reviews_total{" in text
        assert "build_info" in scrape(address, found["webhook-service"]["metrics_path"])

    scraped.configured(backend="native")
    assert jobs(scraped).keys() == {"charm"}


def test_a_charm_that_cannot_act_says_so_and_keeps_its_last_audit(
    scraped: Unit, cluster: ControlPlane, client: Client
) -> None:
    scraped.configured(backend="native")
    before = snapshot(client)
    assert before.effect.value in ("arrives", "unverified")
    assert before.audit

    assert scraped.configured(remedy="magic").name == "blocked"

    assert snapshot(client).effect.value == "failed"
    assert snapshot(client).audit == before.audit


def test_pods_are_audited_again_when_the_last_audit_is_old(
    scraped: Unit,
    cluster: ControlPlane,
    namespace: MakeNamespace,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scraped.configured(backend="native")
    team = namespace({"suite": "monitoring"})
    _stuck_pod(client, team)

    scraped.run("update_status")
    first = snapshot(client).audit
    monkeypatch.setattr(scraping, "AUDIT_PERIOD", 0)
    scraped.run("update_status")
    second = snapshot(client).audit

    assert first
    assert second
    assert second.stuck == first.stuck + 1
    assert second.pods["needs-remedy"] == first.pods.get("needs-remedy", 0) + 1


def test_the_exporter_outlives_a_change_of_backend_and_goes_with_the_relation(
    scraped: Unit, cluster: ControlPlane, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "TIMEOUTS", Timeouts(rollout=0))
    for backend in ("native", "webhook", "native"):
        scraped.configured(backend=backend)
        assert exporters(client) == EXPORTERS
        assert client.get(DEPLOYMENT, EXPORTER, namespace=MODEL)

    broken = scraped.context.on.relation_broken(scraped.state.get_relation(METRICS.id))
    scraped.state = scraped.context.run(broken, scraped.state)

    assert exporters(client) == []
    assert objects(client)


def test_the_last_unit_takes_the_exporter_with_it(
    scraped: Unit, cluster: ControlPlane, client: Client
) -> None:
    scraped.configured(backend="native")
    scraped.having(planned_units=0).run("remove")
    assert exporters(client) == []


def test_the_exporter_passes_pod_security_restricted(
    scraped: Unit, cluster: ControlPlane, client: Client, namespace: MakeNamespace
) -> None:
    restricted = namespace({"pod-security.kubernetes.io/enforce": "restricted"})
    scraped.configured(backend="native")
    template = client.get(DEPLOYMENT, EXPORTER, namespace=MODEL)["spec"]["template"]
    spec = {**template["spec"], "serviceAccountName": "default"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}

    assert client.create(POD.from_dict(pod), namespace=restricted, dry_run=True)["metadata"]


def test_a_loki_opens_the_way_out_for_the_webhook_alone(
    scraped: Unit, cluster: ControlPlane, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "TIMEOUTS", Timeouts(rollout=0))
    url = "http://loki-0.cos.svc:3100/loki/api/v1/push"
    loki = testing.Relation(
        "logging",
        remote_app_name="loki",
        remote_units_data={0: {"endpoint": json.dumps({"url": url})}},
    )
    scraped.configured(backend="webhook")
    without = _workload(scraped)
    scraped.having(relations={*scraped.state.relations, loki})
    scraped.run("update_status")
    with_loki = _workload(scraped)

    assert without["NetworkPolicy"]["spec"]["egress"] == []
    assert with_loki["NetworkPolicy"]["spec"]["egress"] == [{}]
    destination = json.loads(with_loki["ConfigMap"]["data"]["logs.json"])
    assert destination["urls"] == [url]
    assert "logs.json" not in without["ConfigMap"]["data"]
    arguments = with_loki["Deployment"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--logs=/etc/istio-init-egress/settings/logs.json" in arguments


def _workload(unit: Unit) -> dict[str, Any]:
    """The objects of the webhook, by kind, as they are shown."""
    unit.context.run(unit.context.on.action("show-policy"), unit.state)
    shown = yaml.safe_load_all((unit.context.action_results or {})["policy"])
    return {item["kind"]: item for item in shown}


def _ready(node: Workloads, part: str) -> list[str]:
    """The addresses of the Pods whose name holds a part, and that are ready."""
    found: list[str] = []
    for pod in node.pods():
        conditions = (pod.status.conditions if pod.status else None) or []
        ready = any(c.type == "Ready" and c.status == "True" for c in conditions)
        if ready and pod.metadata and pod.status and part in str(pod.metadata.name):
            found.append(str(pod.status.podIP))
    return found


def _stuck_pod(client: Client, namespace: str) -> None:
    """A Pod as it is stored when its init container fails for want of network."""
    pod = {
        "metadata": {"name": "stuck", "annotations": {"sidecar.istio.io/status": "{}"}},
        "spec": {
            "initContainers": [{"name": "fetch", "image": "example.com/fetch:1"}],
            "containers": [
                {"name": "istio-proxy", "image": "example.com/p:1", "args": ["proxy", "sidecar"]}
            ],
        },
    }
    client.create(POD.from_dict({"apiVersion": "v1", "kind": "Pod", **pod}), namespace=namespace)
    fetch = {
        **{"name": "fetch", "image": "i", "imageID": "", "ready": False, "restartCount": 3},
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    }
    status = {"phase": "Pending", "initContainerStatuses": [fetch]}
    client.patch(Pod.Status, "stuck", {"status": status}, namespace=namespace)
