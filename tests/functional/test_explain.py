"""The action explain: a verdict step by step, and what the Pod would be if it were created now."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import Pod
from ops import testing

from init_egress.kube.kinds import POD
from init_egress.rule.istio import EXCLUDE_RANGES
from init_egress.rule.verdict import Verdict
from tests.functional.admission import failing_webhook
from tests.functional.unit import Unit
from tests.testbed.control_plane import STRANGER, ControlPlane, Manifest
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.istio import Istiod
from tests.testbed.kyverno import Kyverno
from tests.testbed.process import wait_until

IN_THE_MESH = {"istio-injection": "enabled"}
NATIVE = "MutatingAdmissionPolicy istio-init-egress.kubeflow"
EVERYTHING = f"annotation {EXCLUDE_RANGES}: '0.0.0.0/0,::/0'"
SPEC: Manifest = {
    "initContainers": [{"name": "fetch", "image": "example.com/fetch:1"}],
    "containers": [{"name": "app", "image": "example.com/app:1"}],
}
LABELS = {"app": "explained"}


@pytest.fixture
def team(namespace: MakeNamespace, istiod: Istiod) -> str:
    """A namespace of the mesh."""
    return namespace(IN_THE_MESH)


@pytest.fixture
def made(cluster: ControlPlane) -> Iterator[list[Manifest]]:
    """What a test has made, which is deleted after it: controllers must not outlive their test."""
    objects: list[Manifest] = []
    yield objects
    cluster.delete(objects)


def document(results: dict[str, Any]) -> dict[str, Any]:
    return json.loads(results["document"])


# Before the charm came, and after


def test_a_pod_from_before_the_policy_is_told_what_it_would_be_now(
    unit: Unit, cluster: ControlPlane, client: Client, team: str, made: list[Manifest]
) -> None:
    pod = _pod_of(_deployment(team), cluster, client, made)
    unit.run("config_changed")

    results = unit.act("explain", namespace=team, pod=_name(pod))

    assert results["verdict"] == "needs-remedy"
    assert results["reason"] == "fetch cut off before the sidecar runs"
    assert results["if-created-now"].startswith("already-excluded: ")
    assert f"native sets {EVERYTHING}" in results["if-created-now"]
    assert f"before {NATIVE} was, at 20" in results["why-different"]
    text = results["explanation"]
    assert "10. needs-remedy: yes" in text
    assert " 3. not-injected: no\n      annotation sidecar.istio.io/status: present" in text
    assert "Owner: Deployment/web, through ReplicaSet/web-" in text
    assert "Not redirected: nothing is excluded" in text
    told = document(results)
    assert [step["verdict"] for step in told["steps"]] == [verdict.value for verdict in Verdict]
    assert told["if-created-now"]["source"].startswith("the template of ReplicaSet web-")


def test_a_pod_that_the_policy_changed_is_what_it_would_be_now(
    unit: Unit, cluster: ControlPlane, client: Client, team: str, made: list[Manifest]
) -> None:
    unit.run("config_changed")
    pod = _pod_of(_deployment(team), cluster, client, made)

    results = unit.act("explain", namespace=team, pod=_name(pod))

    assert results["verdict"] == "already-excluded"
    assert results["if-created-now"].startswith("already-excluded: ")
    assert results["why-different"] == "they do not differ"
    assert "Not redirected: ranges 0.0.0.0/0,::/0, ports none" in results["explanation"]


def test_under_kyverno_its_policy_is_named(
    unit: Unit,
    kyverno: Kyverno,
    cluster: ControlPlane,
    client: Client,
    team: str,
    made: list[Manifest],
) -> None:
    pod = _pod_of(_deployment(team), cluster, client, made)
    unit.configured(backend="kyverno")

    results = unit.act("explain", namespace=team, pod=_name(pod))

    assert f"kyverno (ClusterPolicy) sets {EVERYTHING}" in results["if-created-now"]
    assert "before ClusterPolicy istio-init-egress.kubeflow was, at" in results["why-different"]


def test_a_change_of_the_configuration_since_is_told(
    unit: Unit, cluster: ControlPlane, client: Client, team: str, made: list[Manifest]
) -> None:
    unit.configured(exclude_outbound_ip_ranges="10.0.0.0/8")
    pod = _pod_of(_deployment(team), cluster, client, made)
    unit.configured(exclude_outbound_ip_ranges="10.0.0.0/8,fd00::/8")

    results = unit.act("explain", namespace=team, pod=_name(pod))

    assert results["verdict"] == "needs-remedy"
    assert results["if-created-now"].startswith("already-excluded: ")
    assert f"before {NATIVE} was last changed, at 20" in results["why-different"]


def test_without_a_policy_nothing_would_change_it(
    unit: Unit, cluster: ControlPlane, client: Client, team: str, made: list[Manifest]
) -> None:
    pod = _pod_of(_deployment(team), cluster, client, made)

    results = unit.act("explain", namespace=team, pod=_name(pod))

    assert results["if-created-now"].startswith("needs-remedy: ")
    assert "native is not on the cluster" in results["if-created-now"]
    assert results["why-different"] == "they do not differ"


# What has changed besides


def test_a_namespace_that_came_into_the_mesh_after_the_pod_is_told(
    unit: Unit,
    istiod: Istiod,
    cluster: ControlPlane,
    client: Client,
    namespace: MakeNamespace,
    made: list[Manifest],
) -> None:
    late = namespace()
    pod = _pod_of(_deployment(late), cluster, client, made)
    cluster.kubectl("label", "namespace", late, "istio-injection=enabled")
    unit.run("config_changed")

    results = unit.act("explain", namespace=late, pod=_name(pod))

    assert results["verdict"] == "not-injected"
    assert results["if-created-now"].startswith("already-excluded: ")
    assert f"namespace {late} was labelled for the mesh at" in results["why-different"]


def test_an_annotation_that_came_after_the_pods_network_is_told(
    unit: Unit, cluster: ControlPlane, client: Client, team: str, made: list[Manifest]
) -> None:
    pod = _pod_of(_deployment(team), cluster, client, made)
    cluster.kubectl("annotate", "-n", team, "pod", _name(pod), f"{EXCLUDE_RANGES}=0.0.0.0/0,::/0")
    unit.run("config_changed")

    results = unit.act("explain", namespace=team, pod=_name(pod))

    assert results["verdict"] == "already-excluded"
    assert "written after its network was made" in results["why-different"]
    assert "written too late to have an effect" in results["explanation"]
    assert "Cut off: fetch" in results["explanation"]


def test_a_template_that_has_changed_is_told(
    unit: Unit, cluster: ControlPlane, client: Client, team: str, made: list[Manifest]
) -> None:
    unit.run("config_changed")
    stateful = _stateful_set(team)
    pod = _pod_of(stateful, cluster, client, made)
    labels = {**LABELS, "istio-init-egress/skip": "true"}
    changed = _stateful_set(team, labels)
    cluster.apply([changed])
    wait_until(lambda: _is_of_two_revisions(cluster, team), "the new revision is counted")

    results = unit.act("explain", namespace=team, pod=_name(pod))

    assert results["if-created-now"].startswith("opted-out: ")
    assert "the template of StatefulSet web has changed since" in results["why-different"]
    assert "has label istio-init-egress/skip=true, which the Pod lacks" in results["why-different"]


def test_a_pod_that_admission_would_reject_now_is_told_in_its_words(
    unit: Unit, cluster: ControlPlane, client: Client, team: str, made: list[Manifest]
) -> None:
    pod = _pod_of(_deployment(team), cluster, client, made)
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "full", "namespace": team},
        "spec": {"hard": {"pods": "0"}},
    }
    cluster.apply([quota])
    wait_until(lambda: _is_refused(client, team), "the quota counts")

    results = unit.act("explain", namespace=team, pod=_name(pod))

    assert results["verdict"] == "needs-remedy"
    assert results["if-created-now"].startswith("it would be rejected: ")
    assert "exceeded quota: full" in results["if-created-now"]
    assert results["why-different"] == "there is nothing to compare it with"


def test_a_webhook_that_fails_closed_would_reject_it(
    unit: Unit, cluster: ControlPlane, client: Client, team: str, made: list[Manifest]
) -> None:
    pod = _pod_of(_deployment(team), cluster, client, made)
    failing = failing_webhook({"kubernetes.io/metadata.name": team})
    made.append(failing)
    cluster.apply([failing])
    wait_until(lambda: _is_refused(client, team), "the webhook fails")

    results = unit.act("explain", namespace=team, pod=_name(pod))

    assert results["if-created-now"].startswith("it would be rejected: ")
    assert 'failed calling webhook "pods.fails.example.com"' in results["if-created-now"]


# Who makes the Pod


def test_a_stateful_sets_claims_are_among_the_volumes_of_what_would_come(
    unit: Unit, cluster: ControlPlane, client: Client, team: str, made: list[Manifest]
) -> None:
    pod = _pod_of(_stateful_set(team), cluster, client, made)
    unit.run("config_changed")

    results = unit.act("explain", namespace=team, pod=_name(pod))

    assert results["if-created-now"].startswith("already-excluded: ")
    assert document(results)["if-created-now"]["source"] == "the template of StatefulSet web"
    assert document(results)["pod"]["owner"] == "StatefulSet/web"


@pytest.mark.parametrize("kind", ["Job", "DaemonSet", "ReplicationController"])
def test_the_template_of_each_kind_is_known(
    unit: Unit, cluster: ControlPlane, client: Client, team: str, made: list[Manifest], kind: str
) -> None:
    made.append(_NODE)
    cluster.apply([_NODE])
    pod = _pod_of(_CONTROLLERS[kind](team), cluster, client, made)
    unit.run("config_changed")

    results = unit.act("explain", namespace=team, pod=_name(pod))

    assert results["verdict"] == "needs-remedy"
    assert results["if-created-now"].startswith("already-excluded: ")
    assert document(results)["if-created-now"]["source"] == f"the template of {kind} web"


def test_a_bare_pod_is_tried_as_kubectl_last_applied_it(
    unit: Unit, cluster: ControlPlane, client: Client, team: str
) -> None:
    bare = _bare_pod(team)
    cluster.kubectl("apply", "--validate=false", "-f", "-", objects=[bare])
    _let_a_second_pass(client.get(Pod, "bare", namespace=team))
    unit.run("config_changed")

    results = unit.act("explain", namespace=team, pod="bare")

    assert results["if-created-now"].startswith("already-excluded: ")
    assert "as what was last applied of it by kubectl has it" in results["explanation"]
    assert "Owner: none; no controller would recreate it" in results["explanation"]
    assert f"before {NATIVE} was, at" in results["why-different"]


def test_a_bare_pod_whose_author_is_unknown_can_not_be_tried(
    unit: Unit, cluster: ControlPlane, team: str
) -> None:
    cluster.apply([_bare_pod(team)])
    unit.run("config_changed")

    results = unit.act("explain", namespace=team, pod="bare")

    assert results["verdict"] == "needs-remedy"
    assert "it can't be told: no controller would recreate it" in results["if-created-now"]


def test_a_controller_whose_template_is_not_known_is_named(
    unit: Unit, cluster: ControlPlane, team: str
) -> None:
    owner = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "name": "nightly",
        "uid": "6f9a3c1e-0000-4000-8000-000000000000",
        "controller": True,
    }
    bare = _bare_pod(team)
    cluster.apply([{**bare, "metadata": {**bare["metadata"], "ownerReferences": [owner]}}])
    unit.run("config_changed")

    results = unit.act("explain", namespace=team, pod="bare")

    assert (
        "it can't be told: Workflow/nightly creates it, and where that has its Pod template is not"
        " known" in results["if-created-now"]
    )


# What can't be explained


def test_a_pod_that_is_not_there_fails_the_action_and_says_where_to_look(
    unit: Unit, api_server: ControlPlane, namespace: MakeNamespace
) -> None:
    team = namespace()
    for place, pod, message in (
        (team, "nobody", f"no Pod nobody in namespace {team}; see: kubectl get pods -n {team}"),
        ("nowhere", "nobody", "no namespace nowhere; see: kubectl get namespaces"),
        (
            team,
            "../secrets",
            "'../secrets' is not a valid name of a Pod; see: kubectl get pods -A",
        ),
        (
            "../pods",
            "x",
            "'../pods' is not a valid name of a Namespace; see: kubectl get namespaces",
        ),
    ):
        with pytest.raises(testing.ActionFailed) as failed:
            unit.act("explain", namespace=place, pod=pod)
        assert message in failed.value.message


def test_without_rights_it_names_the_command_that_helps(
    unit: Unit, api_server: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig(STRANGER)))

    with pytest.raises(testing.ActionFailed, match="juju trust istio-init-egress --scope=cluster"):
        unit.act("explain", namespace="default", pod="web")


def test_a_unit_that_does_not_lead_explains_as_well(
    unit: Unit, cluster: ControlPlane, client: Client, team: str
) -> None:
    cluster.apply([_bare_pod(team)])

    results = unit.having(leader=False).act("explain", namespace=team, pod="bare")

    assert results["verdict"] == "needs-remedy"


# Pods and their controllers


def _template(labels: dict[str, str] = LABELS, **spec: Any) -> Manifest:
    return {"metadata": {"labels": labels}, "spec": {**SPEC, **spec}}


def _controller(version: str, kind: str, namespace: str, **spec: Any) -> Manifest:
    metadata = {"name": "web", "namespace": namespace}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _selecting(version: str, kind: str, namespace: str, **spec: Any) -> Manifest:
    selector = {"matchLabels": LABELS}
    return _controller(
        version, kind, namespace, **{"selector": selector, "template": _template(), **spec}
    )


def _deployment(namespace: str) -> Manifest:
    return _selecting("apps/v1", "Deployment", namespace)


def _stateful_set(namespace: str, labels: dict[str, str] = LABELS) -> Manifest:
    """With a claim that its containers mount, and Pods that stay when the template changes."""
    mounts = [{"name": "data", "mountPath": "/data"}]
    containers = [{**container, "volumeMounts": mounts} for container in SPEC["containers"]]
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    return _selecting(
        "apps/v1",
        "StatefulSet",
        namespace,
        serviceName="web",
        updateStrategy={"type": "OnDelete"},
        template=_template(labels, containers=containers),
        volumeClaimTemplates=[claim],
    )


_CONTROLLERS = {
    "Job": lambda namespace: _controller(
        "batch/v1", "Job", namespace, template=_template(restartPolicy="Never")
    ),
    "DaemonSet": lambda namespace: _selecting("apps/v1", "DaemonSet", namespace),
    "ReplicationController": lambda namespace: _controller(
        "v1", "ReplicationController", namespace, selector=LABELS, template=_template()
    ),
}


# A DaemonSet makes no Pod without one.
_NODE: Manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "explain"}}


def _bare_pod(namespace: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bare", "namespace": namespace, "labels": LABELS},
        "spec": SPEC,
    }


def _pod_of(
    controller: Manifest, cluster: ControlPlane, client: Client, made: list[Manifest]
) -> Pod:
    """A Pod that a controller has made, a second ago or more."""
    namespace = controller["metadata"]["namespace"]
    cluster.apply([controller])
    made.append(controller)
    pod = wait_until(
        lambda: next(iter(client.list(Pod, namespace=namespace, labels=dict(LABELS))), None),
        f"the {controller['kind']} makes a Pod",
    )
    _let_a_second_pass(pod)
    return pod


def _let_a_second_pass(pod: Pod) -> None:
    """The API server tells times in whole seconds: what comes next must have a later one."""
    assert pod.metadata
    created = pod.metadata.creationTimestamp
    assert created
    wait_until(lambda: (datetime.now(timezone.utc) - created).total_seconds() > 1, "a second")


def _name(pod: Pod) -> str:
    assert pod.metadata
    return str(pod.metadata.name)


def _is_of_two_revisions(cluster: ControlPlane, namespace: str) -> bool:
    status = json.loads(
        cluster.kubectl("get", "statefulset", "web", "-n", namespace, "-o", "json")
    )
    return status["status"]["currentRevision"] != status["status"]["updateRevision"]


def _is_refused(client: Client, namespace: str) -> bool:
    pod = {**_bare_pod(namespace), "metadata": {"name": "tried", "namespace": namespace}}
    try:
        client.create(POD.from_dict(pod), namespace=namespace, dry_run=True)
    except ApiError:
        return True
    return False
