"""Objects that tenants write to mislead the actions, on a real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from lightkube import Client

from init_egress.existing.controllers import RESTARTED_AT
from init_egress.kube.kinds import DEPLOYMENT, POD
from tests.functional.load import A_POD
from tests.functional.stuck import get_stuck
from tests.functional.unit import Unit
from tests.testbed.control_plane import ControlPlane, Manifest
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.istio import Istiod

IN_THE_MESH = {"istio-injection": "enabled", "suite": "hostile-objects"}
CONTAINER: str = A_POD["spec"]["initContainers"][0]["name"]


@pytest.fixture
def team(namespace: MakeNamespace, istiod: Istiod) -> str:
    """A namespace of the mesh, whose tenant may create Pods in it and nothing else."""
    return namespace(IN_THE_MESH)


@pytest.fixture
def idle(unit: Unit) -> Unit:
    """The charm, which has not acted yet."""
    return unit.having(config={"namespace-selector": "suite=hostile-objects", "backend": "native"})


@pytest.fixture
def victim(client: Client, cluster: ControlPlane) -> Iterator[Manifest]:
    """A Deployment of the system's."""
    labels = {"app": "victim"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": A_POD["spec"]["containers"]},
    }
    metadata = {"name": "victim", "namespace": "kube-system"}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    cluster.apply(
        [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}]
    )
    yield read_victim(client)
    client.delete(DEPLOYMENT, "victim", namespace="kube-system")


def read_victim(client: Client) -> Manifest:
    return client.get(DEPLOYMENT, "victim", namespace="kube-system").to_dict()


def create_pod(client: Client, team: str, name: str, **metadata: Any) -> None:
    client.create(POD.from_dict({**A_POD, "metadata": {"name": name, **metadata}}), namespace=team)


def mutate(unit: Unit, **params: Any) -> tuple[dict[str, Any], dict[str, Manifest]]:
    """The results of a run, and the account of each Pod by its name."""
    results = unit.act("mutate-existing-pods", **params)
    accounts = json.loads(results["document"])["pods"]
    return results, {account["pod"].partition("/")[2]: account for account in accounts}


@pytest.mark.parametrize("stuck", [False, True])
def test_an_owner_reference_that_leads_elsewhere_is_not_followed(
    idle: Unit, client: Client, team: str, victim: Manifest, stuck: bool
) -> None:
    # The garbage collector follows it, finds the victim by its uid, and so keeps the Pod.
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "../../../namespaces/kube-system/deployments/victim",
        "uid": victim["metadata"]["uid"],
        "controller": True,
    }
    create_pod(client, team, "misleading", ownerReferences=[owner])
    if stuck:
        get_stuck(client, team, "misleading", CONTAINER)

    _, accounts = mutate(idle, namespace=team, restart="all")
    audited = json.loads(idle.act("audit", namespace=team)["document"])
    explained = idle.act("explain", namespace=team, pod="misleading")

    now = read_victim(client)
    assert now["metadata"]["generation"] == victim["metadata"]["generation"]
    assert RESTARTED_AT not in (now["spec"]["template"]["metadata"].get("annotations") or {})
    assert "not a valid reference" in accounts["misleading"]["owner"]
    assert accounts["misleading"]["result"] == "patched"
    assert "not a valid reference" in audited["pods"][0]["owner"]
    assert "not a valid reference" in explained["if-created-now"]


@pytest.fixture
def odd(cluster: ControlPlane, team: str) -> Iterator[str]:
    """A Pod with a time that no reader but Go's takes; lightkube can't write it."""
    entry = {
        "manager": "x",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "0000-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {}},
    }
    pod = {**A_POD, "metadata": {"name": "odd", "namespace": team, "managedFields": [entry]}}
    cluster.kubectl("create", "--validate=false", "-f", "-", objects=[pod])
    yield "odd"
    cluster.delete([pod])


def test_a_pod_that_cannot_be_read_ends_neither_the_audit_nor_the_mutation(
    idle: Unit, client: Client, team: str, odd: str
) -> None:
    create_pod(client, team, "plain")

    audited = idle.act("audit", namespace=team)
    results, accounts = mutate(idle, namespace=team)

    document = json.loads(audited["document"])
    assert audited["unreadable"] == 1
    assert [pod["pod"] for pod in document["pods"]] == ["plain"]
    assert document["unreadable-pods"][0].startswith(f"{team}/{odd}: ")
    assert results["unreadable"] == "1"
    assert f"1 Pod could not be read, such as {team}/{odd}" in results["summary"]
    assert accounts["plain"]["result"] == "patched"
