"""The packed charm's hooks, run by its dispatch script against a real API server.

That each of them ends with 0 is what `Unit` itself demands.
"""

from __future__ import annotations

import pytest
from lightkube import Client

from init_egress.kube.kinds import NATIVE_BINDING, NATIVE_POLICY
from tests.functional.authority import Authority
from tests.functional.unit import objects
from tests.packed.juju import MakeUnit, Unit
from tests.testbed.control_plane import STRANGER
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.istio import Istiod
from tests.testbed.workloads import Workloads

IMAGE = "example.com/istio-init-egress-webhook:1"
NAME = "istio-init-egress.kubeflow"
NATIVE = (NATIVE_POLICY, NATIVE_BINDING)
GATEWAY = {
    "gateway_name": "kubeflow-gateway",
    "gateway_namespace": "kubeflow",
    "gateway_up": "false",
}
# The cluster is shared with other tests, whose namespaces of the mesh are none of these tests'.
HERE = "suite=packed"
IN_THE_MESH = {"istio-injection": "enabled", "suite": "packed"}


def active(unit: Unit) -> str:
    """Let a unit be long related to istio-pilot; returns the relation's id."""
    relation = unit.related("gateway-info", "istio-pilot", GATEWAY)
    assert unit.hook("config-changed")["status"] == "active"
    return relation


def test_a_unit_lives_from_its_installation_to_its_removal(unit: Unit, client: Client) -> None:
    status = unit.deploy()
    assert status["status"] == "blocked"
    assert (
        "juju integrate istio-init-egress:gateway-info istio-pilot:gateway-info"
        in (status["message"])
    )
    assert objects(client, *NATIVE) == []

    relation = unit.integrate("gateway-info", "istio-pilot")
    assert unit.status["status"] == "waiting"
    assert "istio-pilot to write gateway_namespace" in unit.status["message"]

    status = unit.receive(relation, GATEWAY)
    assert status["status"] == "active"
    assert status["message"].startswith("native: exclude-ip-ranges 0.0.0.0/0,::/0; ")
    assert {name.split()[0] for name in objects(client, *NATIVE)} == {
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    }
    assert unit.databag(relation) == {}

    unit.remove()
    assert objects(client, *NATIVE) == []


def test_the_mesh_of_an_ambient_istio_is_learnt_from_its_relation(unit: Unit) -> None:
    relation = unit.integrate("istio-metadata", "istio-k8s")

    status = unit.receive(relation, {"root_namespace": "mesh"})

    assert status["status"] == "active"
    assert "no istiod found in namespace mesh" in status["message"]


def test_options_take_effect_and_wrong_ones_are_named(unit: Unit, client: Client) -> None:
    active(unit)

    status = unit.configure(exclude_outbound_ip_ranges="10.0.0.0/8")
    assert "exclude-ip-ranges 10.0.0.0/8" in status["message"]
    before = client.get(NATIVE_POLICY, NAME)["spec"]

    status = unit.configure(exclude_outbound_ip_ranges="10.0.0.0/8,1.2.3.4")
    assert status["status"] == "blocked"
    assert "exclude-outbound-ip-ranges: '1.2.3.4' is a bare address" in status["message"]
    assert client.get(NATIVE_POLICY, NAME)["spec"] == before


@pytest.mark.parametrize("hook", ["leader-elected", "start", "update-status", "upgrade-charm"])
def test_what_somebody_deleted_is_repaired(unit: Unit, client: Client, hook: str) -> None:
    active(unit)
    whole = objects(client, *NATIVE)
    client.delete(NATIVE_POLICY, NAME)

    assert unit.hook(hook)["status"] == "active"

    assert objects(client, *NATIVE) == whole


def test_the_log_tells_what_was_done_and_not_each_request(unit: Unit) -> None:
    """Each line is a process, and was most of what a hook took."""
    active(unit)
    unit.update(log=[])

    unit.hook("update-status")

    log = unit.state["log"]
    assert len(log) < 20
    assert [line for line in log if "HTTP" in line] == []
    assert any("applied MutatingAdmissionPolicy" in line for line in log)


def test_a_relation_that_breaks_is_no_mesh_any_more_and_leaves_what_is_in_force(
    unit: Unit, client: Client
) -> None:
    relation = active(unit)
    whole = objects(client, *NATIVE)

    status = unit.remove_relation(relation)

    assert status["status"] == "blocked"
    assert "mesh unknown" in status["message"]
    assert objects(client, *NATIVE) == whole


def test_a_unit_that_does_not_lead_stands_by(make_unit: MakeUnit, client: Client) -> None:
    unit = make_unit(leader=False)
    unit.deploy()
    unit.related("gateway-info", "istio-pilot", GATEWAY)

    assert unit.hook("update-status") == {"status": "active", "message": "standby: not the leader"}
    assert objects(client, *NATIVE) == []


def test_without_rights_the_status_names_the_command(make_unit: MakeUnit) -> None:
    unit = make_unit(user=STRANGER)
    unit.related("gateway-info", "istio-pilot", GATEWAY)

    status = unit.hook("install")

    assert status["status"] == "blocked"
    assert "juju trust istio-init-egress --scope=cluster" in status["message"]


def test_on_a_mesh_it_verifies_that_a_pod_comes_back_changed(
    unit: Unit, istiod: Istiod, namespace: MakeNamespace
) -> None:
    team = namespace(IN_THE_MESH)
    unit.related("gateway-info", "istio-pilot", GATEWAY)

    status = unit.configure(namespace_selector=HERE)

    assert status["status"] == "active"
    assert f"verified in {team}" in status["message"]


def test_the_webhook_runs_once_its_image_is_attached(
    unit: Unit, istiod: Istiod, workloads: Workloads, namespace: MakeNamespace
) -> None:
    team = namespace(IN_THE_MESH)
    workloads.entry_points[IMAGE] = ["python3"]
    unit.related("gateway-info", "istio-pilot", GATEWAY)
    status = unit.configure(backend="webhook", namespace_selector=HERE)
    assert status["status"] == "blocked"
    assert "juju attach-resource istio-init-egress webhook-image=" in status["message"]

    status = unit.attach_resource("webhook-image", {"registrypath": IMAGE})

    assert status["status"] == "active", status["message"]
    assert f"verified in {team}" in status["message"]
    assert "2 of 2 replicas ready" in status["message"]


def test_certificates_are_asked_for_kept_in_secrets_and_forgotten(unit: Unit) -> None:
    unit.related("gateway-info", "istio-pilot", GATEWAY)

    relation = unit.integrate("certificates", "self-signed-certificates")
    requests = unit.databag(relation)["certificate_signing_requests"]
    assert _kept(unit) == {"private-key"}
    assert "PRIVATE KEY" not in str(unit.state["relations"])

    unit.receive(relation, Authority().answer(requests))
    assert _kept(unit) >= {"private-key", "certificate"}
    assert {secret["owner"] for secret in unit.state["secrets"].values()} == {"application"}

    assert unit.remove_relation(relation)["status"] == "active"
    assert "certificate" not in _kept(unit)


@pytest.mark.parametrize(
    ("endpoint", "told"),
    [
        ("metrics-endpoint", {"alert_rules", "scrape_jobs", "scrape_metadata"}),
        ("grafana-dashboard", {"dashboards"}),
        ("logging", {"alert_rules", "metadata"}),
        ("charm-tracing", {"receivers"}),
    ],
)
def test_those_who_watch_are_told_on_their_relations(
    unit: Unit, endpoint: str, told: set[str]
) -> None:
    unit.related("gateway-info", "istio-pilot", GATEWAY)
    relation = unit.related(endpoint, "observability", {})

    unit.hook(f"{endpoint}-relation-created", relation)

    assert set(unit.databag(relation)) == told


# The end


def test_a_unit_of_several_leaves_all_in_force(unit: Unit, client: Client) -> None:
    active(unit)
    before = objects(client, *NATIVE)

    unit.remove(planned_units=1)

    assert objects(client, *NATIVE) == before


def test_the_removal_goes_on_without_a_cluster(unit: Unit) -> None:
    unit.related("gateway-info", "istio-pilot", GATEWAY)
    unit.kubeconfig.unlink()

    unit.remove()


def _kept(unit: Unit) -> set[str]:
    """The names of what is kept in secrets."""
    return {key for s in unit.state["secrets"].values() for key in s["revisions"][-1]}
