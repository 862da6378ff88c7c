"""The action verify: where the remedy arrives, by what, and where admission takes no Pod."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lightkube import Client
from lightkube.core.exceptions import ApiError
from ops import testing

from init_egress.kube.kinds import POD
from tests.functional.admission import denying, failing_webhook
from tests.functional.load import A_POD
from tests.functional.unit import Unit
from tests.testbed.control_plane import STRANGER, ControlPlane, Manifest
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.istio import Istiod, Mesh, Meshes
from tests.testbed.kyverno import Kyverno
from tests.testbed.process import wait_until

# The cluster is shared with other tests, whose namespaces of the mesh are none of these tests'.
HERE = "suite=verify"
IN_THE_MESH = {"istio-injection": "enabled", "suite": "verify"}
RESTRICTED = {**IN_THE_MESH, "pod-security.kubernetes.io/enforce": "restricted"}


def rows(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the document says, by namespace."""
    document = json.loads(results["document"])
    assert len(document["namespaces"]) == results["namespaces"]
    return {row["namespace"]: row for row in document["namespaces"]}


def test_each_namespace_of_the_mesh_is_told_by_what_and_how_fast_the_remedy_arrives(
    unit: Unit, istiod: Istiod, namespace: MakeNamespace
) -> None:
    teams = {namespace(IN_THE_MESH), namespace(IN_THE_MESH)}
    unit.configured(namespace_selector=HERE)

    results = unit.act("verify")

    assert results["backend"] == "native"
    assert {key: results[key] for key in ("namespaces", "arrives", "missing")} == {
        "namespaces": 2,
        "arrives": 2,
        "missing": 0,
    }
    found = rows(results)
    assert set(found) == teams
    assert {row["backend"] for row in found.values()} == {"native"}
    assert results["slowest-milliseconds"] == max(row["milliseconds"] for row in found.values())
    assert results["slowest-milliseconds"] > 0
    assert results["summary"].startswith("native, 2 namespaces: the remedy arrives in 2; slowest")


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("ClusterPolicy", "kyverno-clusterpolicy"),
        ("MutatingPolicy", "kyverno-mutatingpolicy"),
    ],
)
def test_kyvernos_policy_is_told_from_the_native_one(
    unit: Unit, istiod: Istiod, kyverno: Kyverno, namespace: MakeNamespace, kind: str, form: str
) -> None:
    team = namespace(IN_THE_MESH)
    unit.configured(namespace_selector=HERE, backend="kyverno", kyverno_policy_kind=kind)

    results = unit.act("verify")

    assert results["backend"] == form
    assert rows(results)[team]["backend"] == form


def test_what_is_left_over_from_a_former_backend_is_not_taken_for_the_present_one(
    unit: Unit, istiod: Istiod, kyverno: Kyverno, namespace: MakeNamespace
) -> None:
    team = namespace(IN_THE_MESH)
    unit.configured(namespace_selector=HERE, backend="native")
    unit.having(config={**unit.state.config, "backend": "kyverno"})

    results = unit.act("verify")

    assert (results["missing"], results["arrives"]) == (1, 0)
    row = rows(results)[team]
    assert row["effect"] == "missing"
    assert row["backend"] == "native"
    assert "native does, left over from a former backend" in row["detail"]


def test_without_a_policy_the_remedy_is_missing(
    unit: Unit, istiod: Istiod, namespace: MakeNamespace
) -> None:
    team = namespace(IN_THE_MESH)
    unit.having(config={"namespace-selector": HERE})

    results = unit.act("verify")

    assert results["missing"] == 1
    assert rows(results)[team]["detail"] == "native does not act on a Pod here"


def test_native_sidecars_are_told(unit: Unit, meshes: Meshes, namespace: MakeNamespace) -> None:
    meshes.use(Mesh(native_sidecars=True))
    team = namespace(IN_THE_MESH)
    unit.configured(namespace_selector=HERE)

    row = rows(unit.act("verify"))[team]

    assert row["effect"] == "arrives"
    assert row["native-sidecars"] is True


# Where admission takes no Pod


def test_a_full_quota_is_told_in_the_api_servers_words(
    unit: Unit, istiod: Istiod, namespace: MakeNamespace, cluster: ControlPlane, client: Client
) -> None:
    full, free = namespace(IN_THE_MESH), namespace(IN_THE_MESH)
    cluster.apply([_of("v1", "ResourceQuota", full, {"hard": {"pods": "0"}})])
    wait_until(lambda: "exceeded quota" in _refusal(client, full), "the quota counts")
    unit.configured(namespace_selector=HERE)

    results = unit.act("verify")

    assert (results["rejected"], results["arrives"]) == (1, 1)
    assert list(rows(results)) == [full, free]
    assert "exceeded quota: verify, requested: pods=1" in rows(results)[full]["detail"]


def test_a_limit_range_is_told_in_the_api_servers_words(
    unit: Unit, istiod: Istiod, namespace: MakeNamespace, cluster: ControlPlane, client: Client
) -> None:
    team = namespace(IN_THE_MESH)
    limit = {"type": "Container", "min": {"cpu": "2"}}
    cluster.apply([_of("v1", "LimitRange", team, {"limits": [limit]})])
    wait_until(lambda: "minimum cpu usage" in _refusal(client, team), "the limit counts")
    unit.configured(namespace_selector=HERE)

    row = rows(unit.act("verify"))[team]

    assert row["effect"] == "rejected"
    assert "minimum cpu usage per Container is 2" in row["detail"]


def test_the_probe_passes_the_strictest_pod_security(
    unit: Unit, istiod: Istiod, namespace: MakeNamespace
) -> None:
    team = namespace(RESTRICTED)
    unit.configured(namespace_selector=HERE)

    assert rows(unit.act("verify"))[team]["effect"] == "arrives"


def test_pod_security_that_refuses_istios_own_container_is_told_in_its_words(
    unit: Unit, meshes: Meshes, namespace: MakeNamespace
) -> None:
    meshes.use(Mesh(cni=False))
    team = namespace(RESTRICTED)
    unit.configured(namespace_selector=HERE)

    row = rows(unit.act("verify"))[team]

    assert row["effect"] == "rejected"
    assert 'violates PodSecurity "restricted:latest"' in row["detail"]
    assert "istio-init" in row["detail"]


def test_another_policy_that_denies_is_told_in_its_words(
    unit: Unit, istiod: Istiod, namespace: MakeNamespace, cluster: ControlPlane, client: Client
) -> None:
    team = namespace({**IN_THE_MESH, "verify-denied": "true"})
    policy = denying({"verify-denied": "true"}, "User containers cannot come in here")
    cluster.apply(policy)
    try:
        wait_until(lambda: "cannot come in" in _refusal(client, team), "the policy denies")
        unit.configured(namespace_selector=HERE)

        row = rows(unit.act("verify"))[team]
    finally:
        cluster.delete(policy)

    assert row["effect"] == "rejected"
    assert "ValidatingAdmissionPolicy 'tests-deny'" in row["detail"]
    assert "User containers cannot come in here" in row["detail"]


def test_a_webhook_that_fails_closed_rejects_only_its_own_namespace(
    unit: Unit, istiod: Istiod, namespace: MakeNamespace, cluster: ControlPlane, client: Client
) -> None:
    broken, free = namespace({**IN_THE_MESH, "verify-broken": "true"}), namespace(IN_THE_MESH)
    failing = failing_webhook({"verify-broken": "true"})
    cluster.apply([failing])
    try:
        wait_until(lambda: "failed calling webhook" in _refusal(client, broken), "it fails")
        unit.configured(namespace_selector=HERE)

        found = rows(unit.act("verify"))
    finally:
        cluster.delete([failing])

    assert found[free]["effect"] == "arrives"
    assert found[broken]["effect"] == "rejected"
    assert 'failed calling webhook "pods.fails.example.com"' in found[broken]["detail"]


# One namespace by name


def test_a_namespace_that_is_named_is_the_only_one_asked(
    unit: Unit, istiod: Istiod, namespace: MakeNamespace
) -> None:
    team, _ = namespace(IN_THE_MESH), namespace(IN_THE_MESH)
    unit.configured(namespace_selector=HERE)

    assert list(rows(unit.act("verify", namespace=team))) == [team]


def test_a_namespace_outside_the_mesh_is_told_as_what_a_pod_would_be_there(
    unit: Unit, istiod: Istiod, namespace: MakeNamespace
) -> None:
    outside = namespace({"suite": "verify"})
    unit.configured(namespace_selector=HERE)

    results = unit.act("verify", namespace=outside)

    row = rows(results)[outside]
    assert results["not-verified"] == 1
    assert row["effect"] == "unverified"
    assert row["verdict"] == "not-injected"
    assert "Istio did not inject it" in row["detail"]


@pytest.mark.parametrize("name", ["nowhere", "No Where", "../pods"])
def test_a_namespace_that_is_not_there_fails_the_action_and_says_where_to_look(
    unit: Unit, api_server: ControlPlane, name: str
) -> None:
    with pytest.raises(testing.ActionFailed, match="kubectl get namespaces") as failed:
        unit.act("verify", namespace=name)

    assert name in failed.value.message


def test_without_a_namespace_of_the_mesh_it_says_so(unit: Unit, cluster: ControlPlane) -> None:
    unit.configured(namespace_selector="suite=of-nobody")

    results = unit.act("verify")

    assert results["namespaces"] == 0
    assert results["summary"] == "no namespace of the mesh yet"


# Who may ask


def test_a_unit_that_does_not_lead_verifies_as_well(
    unit: Unit, istiod: Istiod, namespace: MakeNamespace
) -> None:
    team = namespace(IN_THE_MESH)
    unit.configured(namespace_selector=HERE)

    assert rows(unit.having(leader=False).act("verify"))[team]["effect"] == "arrives"


def test_without_rights_it_names_the_command_that_helps(
    unit: Unit, api_server: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig(STRANGER)))

    with pytest.raises(testing.ActionFailed, match="juju trust istio-init-egress --scope=cluster"):
        unit.act("verify")


def test_a_wrong_configuration_fails_the_action_with_its_fault(
    unit: Unit, api_server: ControlPlane
) -> None:
    unit.having(config={"remedy": "magic"})

    with pytest.raises(testing.ActionFailed, match="remedy: 'magic' is none of"):
        unit.act("verify")


def _refusal(client: Client, namespace: str) -> str:
    """What the API server says of a Pod there; empty if it takes it."""
    try:
        client.create(POD.from_dict(A_POD), namespace=namespace, dry_run=True)
    except ApiError as error:
        return error.status.message or ""
    return ""


def _of(version: str, kind: str, namespace: str, spec: Manifest) -> Manifest:
    metadata = {"name": "verify", "namespace": namespace}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
