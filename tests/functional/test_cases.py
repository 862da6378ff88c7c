"""Every case, on a real API server with a real istiod, under every backend."""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager, nullcontext

import pytest
from lightkube import ApiError, Client
from lightkube.resources.core_v1 import Namespace as NamespaceResource

from init_egress.backends.backend import BackendKind
from init_egress.backends.probe import NO_BACKEND, labelled
from init_egress.kube.client import ApiClient
from init_egress.kube.kinds import POD
from init_egress.rule.decision import decide
from init_egress.rule.pod import Namespace, Pod
from init_egress.rule.verdict import Verdict
from tests.functional.cases import CASES, Case, Manifest
from tests.functional.installation import Installation
from tests.functional.shapes import patched, shape
from tests.testbed.control_plane import ControlPlane
from tests.testbed.istio import Meshes
from tests.testbed.kyverno import Kyverno
from tests.testbed.late_webhook import late_webhook

# Another mesh takes longest to bring about, then another backend, then another configuration.
RUNS = [
    pytest.param(form, case, id=f"{case.id}-{form.value}")
    for _, of_one_mesh in itertools.groupby(CASES, key=lambda case: case.order[0])
    for form, case in itertools.product(BackendKind, list(of_one_mesh))
]
# A webhook of somebody else's, called after Istio's and before Kyverno's and any later one.
LATE = "istio-sidecar-injector-then-others"


@pytest.mark.parametrize(("form", "case"), RUNS)
def test_the_stored_pod_is_as_the_case_expects(
    form: BackendKind,
    case: Case,
    cluster: ControlPlane,
    client: Client,
    meshes: Meshes,
    kyverno: Kyverno,
    installation: Installation,
) -> None:
    meshes.use(case.mesh)
    settings = installation.use(form, case.config, case.mesh)
    namespace = case.namespace or f"{case.id[:40]}-{form.value[:20]}"
    cluster.create_namespace(namespace, case.labels, case.annotations)
    with changed_later(cluster, case, namespace):
        if case.expect.denied:
            with pytest.raises(ApiError, match=r"denied|invalid"):
                _create(client, namespace, case.pod)
            return
        injected = ApiClient.connect(client.config).dry_run(
            namespace, labelled(case.pod, NO_BACKEND)
        )
        stored = _create(client, namespace, case.pod)
    if case.namespace is None:
        client.delete(NamespaceResource, namespace)

    where = Namespace(namespace, case.labels)
    decision = decide(Pod.from_dict(injected), where, settings.policy)
    assert decision.verdict.value == case.expect.verdict
    assert shape(stored) == shape(patched(injected, decision.patch))
    assert expected_part(stored, case) == expectation(case)
    assert decide(Pod.from_dict(stored), where, settings.policy).verdict.value in after(case)


def changed_later(
    cluster: ControlPlane, case: Case, namespace: str
) -> AbstractContextManager[object]:
    """What a webhook of somebody else's does to the case's Pod, if the case has one."""
    if not case.late:
        return nullcontext()
    return late_webhook(cluster, case.late, namespace=namespace, name=LATE)


def _create(client: Client, namespace: str, pod: Manifest) -> Manifest:
    """Create a Pod for good, and give it as it is stored."""
    created = client.create(POD.from_dict(pod), namespace=namespace)
    name = created["metadata"]["name"]
    stored = dict(client.get(POD, name, namespace=namespace))
    client.delete(POD, name, namespace=namespace, grace_period=0)
    return stored


def expected_part(pod: Manifest, case: Case) -> dict[str, object]:
    annotations = pod["metadata"].get("annotations") or {}
    contexts = {
        c["name"]: c.get("securityContext") or {} for c in pod["spec"].get("initContainers", [])
    }
    return {
        "annotations": {key: annotations.get(key) for key in case.expect.annotations},
        "init-containers": {
            name: {field: contexts[name].get(field) for field in wanted}
            for name, wanted in case.expect.init_containers.items()
        },
    }


def expectation(case: Case) -> dict[str, object]:
    return {
        "annotations": dict(case.expect.annotations),
        "init-containers": {k: dict(v) for k, v in case.expect.init_containers.items()},
    }


def after(case: Case) -> set[str | None]:
    """The verdicts that the stored Pod may have."""
    if case.expect.after:
        return {case.expect.after}
    if case.expect.verdict != Verdict.NEEDS_REMEDY.value:
        return {case.expect.verdict}
    return {Verdict.ALREADY_EXCLUDED.value, Verdict.ALREADY_EXEMPT.value}
