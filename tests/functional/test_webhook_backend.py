"""backend=webhook: the charm's own workload, on real controllers, called through its Service.

The Pods of its Deployment run as processes (tests/testbed/workloads.py); the rest is as rendered.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from lightkube import Client
from ops import testing

from init_egress.backends import reconciler, webhook_deployment
from init_egress.backends.backend import Timeouts
from init_egress.existing.pod_template import LAST_APPLIED
from init_egress.kube.kinds import DEPLOYMENT, POD, SECRET, WEBHOOK_CONFIGURATION
from init_egress.rule.istio import CANONICAL_NAME, EXCLUDE_RANGES
from tests.functional.authority import Authority
from tests.functional.load import A_POD, creating_pods
from tests.functional.unit import MODEL, Status, Unit, objects
from tests.testbed.control_plane import ControlPlane
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.istio import Istiod, Mesh, Meshes
from tests.testbed.kyverno import Kyverno
from tests.testbed.process import wait_until
from tests.testbed.workloads import Workloads

IMAGE = "example.com/istio-init-egress-webhook:1"
NAME = "istio-init-egress-webhook"
WEBHOOK = f"pods.{NAME}.kubeflow.svc"
CONFIGURATION = "zz-istio-init-egress.kubeflow"
EVERYTHING = "0.0.0.0/0,::/0"


@pytest.fixture
def team(istiod: Istiod, namespace: MakeNamespace) -> str:
    """A namespace of the mesh."""
    return namespace({"istio-injection": "enabled", "suite": "webhook"})


@pytest.fixture
def webhook(unit: Unit, tmp_path: Path) -> Unit:
    """A unit whose image is attached."""
    path = tmp_path / "image.yaml"
    path.write_text(yaml.safe_dump({"registrypath": IMAGE, "username": "", "password": ""}))
    return unit.having(resources={testing.Resource(name="webhook-image", path=path)})


@pytest.fixture
def node(workloads: Workloads) -> Workloads:
    """A node that knows the image."""
    workloads.entry_points[IMAGE] = ["python3"]
    return workloads


def test_the_webhook_comes_into_force_through_its_service(
    webhook: Unit, node: Workloads, team: str, client: Client
) -> None:
    status = webhook.configured(backend="webhook", namespace_selector="suite=webhook")

    assert status.name == "active", status.message
    assert status.message.startswith(
        f"webhook: exclude-ip-ranges {EVERYTHING}; verified in {team}"
    )
    assert "2 of 2 replicas ready, 2 up to date" in status.message
    pod = client.create(POD.from_dict(A_POD), namespace=team, dry_run=True)
    assert pod["metadata"]["annotations"][EXCLUDE_RANGES] == EVERYTHING


def test_the_api_server_weighs_no_pod_outside_the_mesh(
    webhook: Unit,
    node: Workloads,
    team: str,
    namespace: MakeNamespace,
    cluster: ControlPlane,
    client: Client,
) -> None:
    status = webhook.configured(backend="webhook", namespace_selector="suite=webhook")
    assert status.name == "active", status.message
    outside = namespace({"suite": "webhook"})
    before = _weighed_in_vain(cluster)

    client.create(POD.from_dict(A_POD), namespace=outside, dry_run=True)

    assert _weighed_in_vain(cluster) == before


def test_the_api_server_has_nothing_to_complain_of_when_it_asks_again(
    webhook: Unit, node: Workloads, team: str, cluster: ControlPlane, client: Client
) -> None:
    webhook.configured(backend="webhook", namespace_selector="suite=webhook")
    log = cluster.folder / "kube-apiserver.log"
    asked, before = _calls(cluster), len(log.read_bytes())

    client.create(POD.from_dict(A_POD), namespace=team, dry_run=True)

    assert _calls(cluster) == asked + 2
    written = log.read_bytes()[before:].decode().splitlines()
    assert [line for line in written if WEBHOOK in line and "annotation" in line] == []


def test_a_pod_that_was_injected_by_hand_is_helped_in_any_namespace(
    webhook: Unit, node: Workloads, team: str, namespace: MakeNamespace, client: Client
) -> None:
    injected = client.create(POD.from_dict(A_POD), namespace=team, dry_run=True)
    kept = {key: injected["metadata"][key] for key in ("generateName", "labels", "annotations")}
    by_hand = {**A_POD, "metadata": kept, "spec": injected["spec"]}
    outside = namespace({"suite": "webhook"})
    webhook.configured(backend="webhook", namespace_selector="suite=webhook")

    pod = client.create(POD.from_dict(by_hand), namespace=outside, dry_run=True)

    assert pod["metadata"]["annotations"][EXCLUDE_RANGES] == EVERYTHING


def test_a_template_that_leaves_istios_labels_out_costs_no_pod_the_remedy(
    webhook: Unit,
    node: Workloads,
    meshes: Meshes,
    namespace: MakeNamespace,
    cluster: ControlPlane,
    client: Client,
) -> None:
    template = "spec:\n  containers:\n  - name: istio-proxy\n    image: example.com/proxy:1\n"
    meshes.use(Mesh(values={"values.sidecarInjectorWebhook.templates.plain": template}))
    team = namespace({"istio-injection": "enabled", "suite": "webhook"})
    webhook.configured(backend="webhook", namespace_selector="suite=webhook")
    metadata = {**A_POD["metadata"], "annotations": {"inject.istio.io/templates": "plain"}}

    pod = client.create(
        POD.from_dict({**A_POD, "metadata": metadata}), namespace=team, dry_run=True
    )

    assert CANONICAL_NAME not in pod["metadata"].get("labels", {})
    assert pod["metadata"]["annotations"][EXCLUDE_RANGES] == EVERYTHING
    before = _weighed_in_vain(cluster)
    outside = namespace({"suite": "webhook"})
    client.create(POD.from_dict(A_POD), namespace=outside, dry_run=True)
    assert _weighed_in_vain(cluster) == before + 1


def test_verify_and_explain_tell_what_the_webhook_does(
    webhook: Unit, node: Workloads, team: str, cluster: ControlPlane, client: Client
) -> None:
    before = client.create(POD.from_dict(A_POD), namespace=team)
    name = str(before.metadata and before.metadata.name)
    created = datetime.fromisoformat(before["metadata"]["creationTimestamp"])
    # The API server tells times in whole seconds.
    wait_until(lambda: datetime.now(timezone.utc) - created > timedelta(seconds=1), "a second")
    cluster.kubectl("annotate", "-n", team, "pod", name, f"{LAST_APPLIED}={json.dumps(A_POD)}")
    webhook.configured(backend="webhook")

    verified = webhook.act("verify", namespace=team)
    explained = webhook.act("explain", namespace=team, pod=name)

    assert json.loads(verified["document"])["namespaces"][0]["backend"] == "webhook"
    assert "webhook sets annotation" in explained["if-created-now"]
    assert f"before MutatingWebhookConfiguration {CONFIGURATION} was" in explained["why-different"]


def test_nobody_is_sent_to_a_webhook_that_does_not_answer_yet(
    webhook: Unit, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "TIMEOUTS", Timeouts(rollout=1))

    status = webhook.configured(backend="webhook")

    assert status.name == "waiting"
    assert "0 of 2 replicas ready" in status.message
    assert objects(client, WEBHOOK_CONFIGURATION) == []


def test_the_last_unit_leaves_nothing_of_the_workload_behind(
    webhook: Unit, node: Workloads, team: str, client: Client
) -> None:
    webhook.configured(backend="webhook")
    assert len(objects(client)) == 9

    webhook.having(planned_units=0).run("remove")

    assert objects(client) == []


def test_the_private_keys_are_not_shown(webhook: Unit, client: Client) -> None:
    webhook.having(config={"backend": "webhook"})

    webhook.context.run(webhook.context.on.action("show-policy"), webhook.state)

    shown = list(yaml.safe_load_all((webhook.context.action_results or {})["policy"]))
    secrets = [item for item in shown if item["kind"] == "Secret"]
    assert len(secrets) == 2
    assert {v for secret in secrets for v in secret["data"].values()} == {"(not shown)"}


def test_credentials_of_a_private_registry_are_handed_to_the_kubelet(
    webhook: Unit, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "TIMEOUTS", Timeouts(rollout=0))
    login = {"registrypath": IMAGE, "username": "juju", "password": "secret"}
    (tmp_path / "image.yaml").write_text(yaml.safe_dump(login))

    webhook.configured(backend="webhook")

    secret = client.get(SECRET, f"{NAME}-registry", namespace=MODEL)
    docker = json.loads(base64.b64decode(secret["data"][".dockerconfigjson"]))
    assert docker == {"auths": {"example.com": {"username": "juju", "password": "secret"}}}
    spec = client.get(DEPLOYMENT, NAME, namespace=MODEL)["spec"]["template"]["spec"]
    assert spec["imagePullSecrets"] == [{"name": f"{NAME}-registry"}]


def test_the_workload_passes_pod_security_restricted(
    webhook: Unit, client: Client, cluster: ControlPlane, namespace: MakeNamespace
) -> None:
    restricted = namespace({"pod-security.kubernetes.io/enforce": "restricted"})
    webhook.having(config={"backend": "webhook"})
    webhook.context.run(webhook.context.on.action("show-policy"), webhook.state)
    shown = list(yaml.safe_load_all((webhook.context.action_results or {})["policy"]))
    template = next(item for item in shown if item["kind"] == "Deployment")["spec"]["template"]
    spec = {**template["spec"], "serviceAccountName": "default"}

    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}

    assert client.create(POD.from_dict(pod), namespace=restricted, dry_run=True)["metadata"]


# Under load


def test_replicas_are_replaced_and_no_pod_goes_without(
    webhook: Unit, node: Workloads, team: str, cluster: ControlPlane
) -> None:
    assert webhook.configured(backend="webhook", failure_policy="fail").name == "active"
    before = {pod.metadata.name for pod in node.pods() if pod.metadata}

    with creating_pods(cluster, team, threads=3) as created:
        # Another option of the rule, which makes no difference to these Pods.
        status = webhook.configured(ignore_init_containers="volume-permissions,other")
        assert status.name == "active", status.message
        wait_until(lambda: not before & _names(node), "the old replicas are gone", deadline=60)

    assert len(created) > 100
    assert [pod for pod in created if pod != EVERYTHING] == []


def test_a_replica_that_is_killed_leaves_no_pod_without(
    webhook: Unit, node: Workloads, team: str, cluster: ControlPlane, client: Client
) -> None:
    assert webhook.configured(backend="webhook").name == "active"

    with creating_pods(cluster, team, threads=2) as created:
        victim = sorted(_names(node))[0]
        node.kill(victim)
        wait_until(lambda: _restarts(client, victim) > 0, "it was started again", deadline=30)
        before = len(created)
        wait_until(lambda: len(created) > before + 200, "Pods were created")

    # A connection that breaks in the middle of a call can't be repaired, nor one that is refused
    # until the endpoints know. They do soon after the replica was started again.
    lost = [number for number, pod in enumerate(created) if pod != EVERYTHING]
    assert all(number < before + 100 for number in lost)
    assert len(lost) <= 2 * len(created) // 100
    assert webhook.run("update_status").name == "active"


def test_certificates_are_rotated_and_no_pod_goes_without(
    webhook: Unit, node: Workloads, team: str, cluster: ControlPlane, client: Client
) -> None:
    assert webhook.configured(backend="webhook", failure_policy="fail").name == "active"
    old = _authorities(client)

    with creating_pods(cluster, team, threads=3) as created:
        _rotate(webhook)
        both = _authorities(client)
        webhook.run("update_status")
        new = _authorities(client)

    assert len(old) == len(new) == 1
    assert set(both) == {*old, *new}
    assert old != new
    assert len(created) > 100
    assert [pod for pod in created if pod != EVERYTHING] == []


def test_a_certificate_is_renewed_by_time_alone(
    webhook: Unit, node: Workloads, team: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = replace(webhook_deployment.LIFETIMES, leaf=timedelta(hours=1))
    monkeypatch.setattr(webhook_deployment, "LIFETIMES", short)
    webhook.configured(backend="webhook")
    before = _served(client)
    webhook.run("update_status")
    assert _served(client) == before

    later = datetime.now(timezone.utc) + timedelta(minutes=41)
    monkeypatch.setattr(reconciler, "now", lambda: later)
    status = webhook.run("update_status")

    assert status.name == "active", status.message
    assert _served(client) != before


def test_a_certificate_that_somebody_spoilt_is_recreated(
    webhook: Unit, node: Workloads, team: str, client: Client
) -> None:
    webhook.configured(backend="webhook")
    spoilt = {"data": {"tls.crt": base64.b64encode(b"no certificate").decode()}}
    client.patch(SECRET, f"{NAME}-certificate", spoilt, namespace=MODEL, field_manager="other")

    status = webhook.run("update_status")

    assert status.name == "active", status.message
    assert _issuer(client) == "istio-init-egress"


def test_no_pod_goes_without_while_any_backend_follows_any_other(
    webhook: Unit, node: Workloads, kyverno: Kyverno, team: str, cluster: ControlPlane
) -> None:
    native, own, cluster_policy, mutating_policy = (
        {"backend": "native"},
        {"backend": "webhook"},
        {"backend": "kyverno", "kyverno_policy_kind": "ClusterPolicy"},
        {"backend": "kyverno", "kyverno_policy_kind": "MutatingPolicy"},
    )
    assert webhook.configured(**native).name == "active"

    with creating_pods(cluster, team, threads=2) as created:
        for options in (own, native, own, cluster_policy, own, mutating_policy, own):
            status = webhook.configured(**options)
            assert status.name == "active", status.message

    assert len(created) > 100
    assert [pod for pod in created if pod != EVERYTHING] == []


# When no replica answers


def test_fail_gives_way_to_ignore_while_no_replica_answers_and_comes_back(
    webhook: Unit,
    node: Workloads,
    team: str,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhook_deployment, "PATIENCE_WITH_NO_REPLICA", timedelta(0))
    assert webhook.configured(backend="webhook", failure_policy="fail").name == "active"
    assert _failure_policy(client) == "Fail"

    monkeypatch.setattr(reconciler, "TIMEOUTS", Timeouts(rollout=1))
    node.entry_points.clear()
    for name in _names(node):
        client.delete(POD, name, namespace=MODEL, grace_period=0)
    wait_until(lambda: _ready(client) == 0, "no replica is ready")
    status = webhook.run("update_status")

    assert status.name == "waiting"
    assert "failure-policy=fail is suspended while no replica answers" in status.message
    assert _failure_policy(client) == "Ignore"
    wait_until(lambda: _is_created(client, team), "Pods are created")

    node.entry_points[IMAGE] = ["python3"]
    monkeypatch.setattr(reconciler, "TIMEOUTS", Timeouts())
    wait_until(lambda: _ready(client) == 2, "both replicas are ready")
    assert webhook.run("update_status").name == "active"
    assert _failure_policy(client) == "Fail"


# The certificates relation


def test_an_authority_is_related_and_removed_again(
    webhook: Unit, node: Workloads, team: str, client: Client
) -> None:
    authority = Authority()
    relation = testing.Relation("certificates", remote_app_name="ca")
    webhook.having(relations={*webhook.state.relations, relation})
    webhook.configured(backend="webhook")
    own = _authorities(client)

    _run_on(webhook, "relation_created")
    _answer(webhook, authority)
    status = _run_on(webhook, "relation_changed")

    assert status.name == "active", status.message
    assert _issuer(client) == "an authority of theirs"
    webhook.run("update_status")
    assert _authorities(client) == [str(authority.certificate).strip()]

    broken = _run_on(webhook, "relation_broken")

    assert broken.name == "active", broken.message
    assert _issuer(client) == "istio-init-egress"
    assert own[0] in _authorities(client)


def _answer(unit: Unit, authority: Authority) -> None:
    """What the provider of the certificates interface writes for each request."""
    relation = _certificates(unit)
    answer = authority.answer(relation.local_app_data["certificate_signing_requests"])
    others = {r for r in unit.state.relations if r.id != relation.id}
    unit.having(relations={*others, replace(relation, remote_app_data=answer)})


def _certificates(unit: Unit) -> testing.Relation:
    found = next(r for r in unit.state.relations if r.endpoint == "certificates")
    assert isinstance(found, testing.Relation)
    return found


def _run_on(unit: Unit, event: str) -> Status:
    fire = getattr(unit.context.on, event)
    unit.state = unit.context.run(fire(_certificates(unit)), unit.state)
    return unit.status


def _rotate(unit: Unit) -> None:
    unit.state = unit.context.run(unit.context.on.action("rotate-certificates"), unit.state)


def _configuration(client: Client) -> dict[str, object]:
    return client.get(WEBHOOK_CONFIGURATION, CONFIGURATION)["webhooks"][0]


def _weighed_in_vain(cluster: ControlPlane) -> int:
    """How many Pods the API server has made readable to CEL and then not sent to the webhook."""
    return _counted(cluster, "apiserver_admission_match_condition_exclusions_total")


def _calls(cluster: ControlPlane) -> int:
    """How often the API server has asked the webhook."""
    return _counted(cluster, "apiserver_admission_webhook_request_total")


def _counted(cluster: ControlPlane, metric: str) -> int:
    lines = cluster.kubectl("get", "--raw", "/metrics").splitlines()
    found = [line for line in lines if line.startswith(f"{metric}{{") and WEBHOOK in line]
    return sum(int(line.rpartition(" ")[2]) for line in found)


def _failure_policy(client: Client) -> object:
    return _configuration(client)["failurePolicy"]


def _authorities(client: Client) -> list[str]:
    """The certificates that the API server trusts."""
    configuration = client.get(WEBHOOK_CONFIGURATION, CONFIGURATION)
    bundle = base64.b64decode(configuration["webhooks"][0]["clientConfig"]["caBundle"]).decode()
    end = "-----END CERTIFICATE-----"
    return [f"{part}{end}".strip() for part in bundle.split(end) if part.strip()]


def _served(client: Client) -> str:
    secret = client.get(SECRET, f"{NAME}-certificate", namespace=MODEL)
    return base64.b64decode(secret["data"]["tls.crt"]).decode()


def _issuer(client: Client) -> str:
    issuer = x509.load_pem_x509_certificate(_served(client).encode()).issuer
    return str(issuer.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)


def _names(node: Workloads) -> set[str]:
    return {str(pod.metadata.name) for pod in node.pods() if pod.metadata}


def _restarts(client: Client, name: str) -> int:
    pod = client.get(POD, name, namespace=MODEL)
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return int(statuses[0].get("restartCount", 0))


def _ready(client: Client) -> int:
    deployment = client.get(DEPLOYMENT, NAME, namespace=MODEL)
    return int((deployment.get("status") or {}).get("readyReplicas", 0))


def _is_created(client: Client, namespace: str) -> bool:
    client.create(POD.from_dict(A_POD), namespace=namespace, dry_run=True)
    return True
