"""The action `audit` on a real API server, with Pods that a real istiod injected."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from lightkube import Client
from ops import testing

from init_egress.kube.kinds import POD
from init_egress.rule.istio import EXCLUDE_RANGES
from tests.functional.load import A_POD
from tests.functional.stuck import get_stuck
from tests.functional.unit import Unit
from tests.testbed.control_plane import ControlPlane, Manifest
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.istio import Istiod
from tests.testbed.process import wait_until

IN_THE_MESH = {"istio-injection": "enabled", "suite": "audit"}
DEPLOYED = {"app": "audited"}


@pytest.fixture
def team(namespace: MakeNamespace, istiod: Istiod) -> str:
    """A namespace of the mesh."""
    return namespace(IN_THE_MESH)


def audited(unit: Unit, **params: str) -> dict[str, Any]:
    """The document of an audit."""
    document: dict[str, Any] = json.loads(unit.act("audit", **params)["document"])
    return document


def deployment(name: str) -> Manifest:
    """A Deployment of the Pod that needs the remedy."""
    template = {"metadata": {"labels": DEPLOYED}, "spec": A_POD["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": DEPLOYED}, "template": template},
    }


def test_a_stuck_pod_is_listed_first_with_its_owner_and_what_to_do(
    unit: Unit, cluster: ControlPlane, client: Client, team: str
) -> None:
    with_namespace = {**deployment("web"), "metadata": {"name": "web", "namespace": team}}
    cluster.apply([with_namespace])
    found = wait_until(
        lambda: list(client.list(POD, namespace=team, labels={"app": "audited"})), "the Pod"
    )
    name = str(found[0].metadata.name)  # pyright: ignore[reportOptionalMemberAccess]
    client.create(POD.from_dict({**A_POD, "metadata": {"name": "aaa"}}), namespace=team)
    container = A_POD["spec"]["initContainers"][0]["name"]
    get_stuck(client, team, name, container)

    document = audited(unit, namespace=team)

    assert document["stuck"] == 1
    assert document["verdicts"] == {"needs-remedy": 2}
    assert document["namespaces"] == {team: {"needs-remedy": 2}}
    first, second = document["pods"]
    assert first["pod"] == name
    assert first["owner"] == "Deployment/web"
    assert first["through"].startswith("ReplicaSet/web-")
    assert first["cut-off"] == [container]
    assert first["stuck"] == {
        "container": container,
        "reason": "CrashLoopBackOff",
        "restarts": 7,
        "since": "2026-01-02T03:04:06Z",
    }
    assert "juju run istio-init-egress/leader mutate-existing-pods" in first["todo"]
    assert second["pod"] == "aaa"
    assert "stuck" not in second
    assert "no controller" in second["todo"]


def test_the_table_says_the_same_for_people(unit: Unit, client: Client, team: str) -> None:
    client.create(POD.from_dict({**A_POD, "metadata": {"name": "lonely"}}), namespace=team)

    results = unit.act("audit", namespace=team, format="table")

    assert results["needs-remedy"] == 1
    assert "document" not in results
    row = next(line for line in results["table"].splitlines() if " lonely " in line)
    assert "needs-remedy" in row
    assert "the CNI plugin redirects" in results["table"]


def test_labels_and_a_verdict_narrow_what_is_listed(unit: Unit, client: Client, team: str) -> None:
    for name, labels in (("one", {"tier": "a"}), ("two", {"tier": "b"})):
        pod = {**A_POD, "metadata": {"name": name, "labels": labels}}
        client.create(POD.from_dict(pod), namespace=team)

    selected = audited(unit, namespace=team, selector="tier=a")
    other = audited(unit, namespace=team, verdict="not-injected")

    assert [pod["pod"] for pod in selected["pods"]] == ["one"]
    assert other["pods"] == []
    assert other["verdicts"] == {"needs-remedy": 2}


def test_a_pod_that_was_annotated_after_it_was_made_is_told(
    unit: Unit, cluster: ControlPlane, client: Client, team: str
) -> None:
    client.create(POD.from_dict({**A_POD, "metadata": {"name": "late"}}), namespace=team)
    created = client.get(POD, "late", namespace=team).metadata.creationTimestamp  # pyright: ignore[reportOptionalMemberAccess]
    assert created
    # The API server's times have no fractions.
    wait_until(lambda: datetime.now(timezone.utc) > created + timedelta(seconds=1), "it is later")
    annotation = f"{EXCLUDE_RANGES}=0.0.0.0/0,::/0"
    cluster.kubectl("annotate", "pod", "late", annotation, "-n", team)

    pod = audited(unit, namespace=team)["pods"][0]

    assert pod["verdict"] == "already-excluded"
    assert pod["too-late"] is True
    assert pod["excludes"] == {"ranges": "0.0.0.0/0,::/0", "ports": ""}


def test_a_namespace_that_is_not_there_is_named(unit: Unit, istiod: Istiod) -> None:
    with pytest.raises(testing.ActionFailed, match="no-such-team"):
        unit.act("audit", namespace="no-such-team")


def test_a_selector_that_is_none_is_refused_in_its_words(unit: Unit, istiod: Istiod) -> None:
    with pytest.raises(testing.ActionFailed, match="no label key"):
        unit.act("audit", selector="a b")
