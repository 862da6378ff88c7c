"""Every case, on a real API server with a real istiod, under every backend."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import jsonpatch
import msgspec
import pytest
from lightkube import ApiError, Client

from init_egress import manifests, reconciler, verification
from init_egress.cluster import POD, Cluster
from init_egress.manifests import Form, Owner
from init_egress.pod import Namespace, Pod
from init_egress.rule import Verdict, decide
from init_egress.settings import Config, Settings
from tests.functional.cases import Case, Manifest, load_all
from tests.testbed.control_plane import ControlPlane
from tests.testbed.istio import NAMESPACE, Meshes
from tests.testbed.kyverno import Kyverno
from tests.testbed.late_webhook import late_webhook
from tests.testbed.process import wait_until

CASES = load_all()
# Another mesh takes longest to bring about, then another backend, then another configuration.
RUNS = [
    pytest.param(form, case, id=f"{case.id}-{form.value}")
    for _, of_one_mesh in itertools.groupby(CASES, key=lambda case: case.order[0])
    for form, case in itertools.product(Form, list(of_one_mesh))
]
# A webhook of somebody else's, called after Istio's and before Kyverno's and any later one.
LATE = "istio-sidecar-injector-then-others"
_BACKEND = {
    Form.NATIVE: {"backend": "native"},
    Form.CLUSTER_POLICY: {"backend": "kyverno", "kyverno-policy-kind": "ClusterPolicy"},
    Form.MUTATING_POLICY: {"backend": "kyverno", "kyverno-policy-kind": "MutatingPolicy"},
}


class Installation:
    """What the charm applies, one configuration at a time, by its own reconciler."""

    def __init__(self, plane: ControlPlane, client: Client) -> None:
        self._plane = plane
        self._client = client
        self._cluster = Cluster(client)
        self._current: tuple[Form, Settings, Owner] | None = None
        self._numbers = itertools.count(1)

    def use(self, form: Form, config: Mapping[str, str]) -> Settings:
        """Bring a configuration into force, and wait until the one before it is out of force."""
        options = {**config, **_BACKEND[form]}
        settings = Config(**{key.replace("-", "_"): v for key, v in options.items()}).settings()
        if self._current and self._current[:2] == (form, settings):
            return settings
        self.remove()
        owner = Owner(f"cases-{next(self._numbers)}", "test")
        self._current = (form, settings, owner)
        reconciler.reconcile(self._cluster, settings, owner, NAMESPACE)
        wait_until(lambda: self._acts(form, settings, owner), f"{form.value} is in force")
        return settings

    def remove(self) -> None:
        """Leave the cluster as if the charm had never been there."""
        if self._current is None:
            return
        form, settings, owner = self._current
        self._current = None
        self._cluster.prune(owner)
        wait_until(lambda: not self._acts(form, settings, owner), f"{form.value} is gone")

    def _acts(self, form: Form, settings: Settings, owner: Owner) -> bool:
        """Whether it changes a Pod of the shape that Istio makes, be there an istiod or not."""
        labels = {"istio-injection": "enabled", **settings.policy.namespaces.example()}
        namespace = Namespace(f"{owner.application}-probe", labels)
        self._plane.create_namespace(namespace.name, labels)
        pod = _as_injected(settings.policy.pods.example())
        found = verification.prove(
            self._cluster, namespace, settings.policy, pod, owner.probe(form), 0
        )
        return found.effect is verification.Effect.ARRIVES


@pytest.fixture(scope="module")
def installation(cluster: ControlPlane, client: Client) -> Iterator[Installation]:
    installed = Installation(cluster, client)
    yield installed
    installed.remove()


@pytest.mark.parametrize(("form", "case"), RUNS)
def test_the_stored_pod_is_as_the_case_expects(
    form: Form,
    case: Case,
    cluster: ControlPlane,
    client: Client,
    meshes: Meshes,
    kyverno: Kyverno,
    installation: Installation,
) -> None:
    meshes.use(case.mesh)
    settings = installation.use(form, case.config)
    namespace = case.namespace or f"{case.id[:40]}-{form.value[:20]}"
    cluster.create_namespace(namespace, case.labels, case.annotations)
    late = (
        late_webhook(cluster, case.late, namespace=namespace, name=LATE)
        if case.late
        else nullcontext()
    )
    with late:
        if case.expect.denied:
            with pytest.raises(ApiError, match=r"denied|invalid"):
                _create(client, namespace, case.pod)
            return
        injected = Cluster(client).dry_run(
            namespace, manifests.labelled(case.pod, verification.NOBODY)
        )
        stored = _create(client, namespace, case.pod)

    where = Namespace(namespace, case.labels)
    decision = decide(Pod.from_dict(injected), where, settings.policy)
    assert decision.verdict.value == case.expect.verdict
    assert _shape(stored) == _shape(_patched(injected, decision.patch))
    assert _expected_part(stored, case) == _expectation(case)
    assert decide(Pod.from_dict(stored), where, settings.policy).verdict.value in _after(case)


def _create(client: Client, namespace: str, pod: Manifest) -> Manifest:
    """Create a Pod for good, and give it as it is stored."""
    created = client.create(POD.from_dict(pod), namespace=namespace)
    name = created["metadata"]["name"]
    stored = dict(client.get(POD, name, namespace=namespace))
    client.delete(POD, name, namespace=namespace, grace_period=0)
    return stored


def _patched(pod: Manifest, patch: tuple[Any, ...]) -> Manifest:
    operations = msgspec.to_builtins(patch)
    return jsonpatch.apply_patch(pod, operations)


def _shape(pod: Manifest) -> dict[str, object]:
    """All of a Pod that a backend could have changed, without what is named at random."""
    text = re.sub(r"kube-api-access-\w+", "kube-api-access", json.dumps(pod))
    stable: Manifest = json.loads(text)
    metadata, spec = stable["metadata"], stable["spec"]
    for container in spec["containers"] + spec.get("initContainers", []):
        # Istio tells its proxy the Pod's labels, a probe's own among them.
        container["env"] = [
            e for e in container.get("env", []) if e["name"] != "ISTIO_METAJSON_LABELS"
        ]
    labels = {k: v for k, v in metadata["labels"].items() if k != manifests.PROBE_LABEL}
    return {"labels": labels, "annotations": metadata.get("annotations"), "spec": spec}


def _expected_part(pod: Manifest, case: Case) -> dict[str, object]:
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


def _expectation(case: Case) -> dict[str, object]:
    return {
        "annotations": dict(case.expect.annotations),
        "init-containers": {k: dict(v) for k, v in case.expect.init_containers.items()},
    }


def _after(case: Case) -> set[str | None]:
    """The verdicts that the stored Pod may have."""
    if case.expect.after:
        return {case.expect.after}
    if case.expect.verdict != Verdict.NEEDS_REMEDY.value:
        return {case.expect.verdict}
    return {Verdict.ALREADY_EXCLUDED.value, Verdict.ALREADY_EXEMPT.value}


def _as_injected(labels: dict[str, str]) -> Manifest:
    """A Pod that looks injected and that Istio leaves alone, for it is on the host's network."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "as-injected-",
            "labels": labels,
            "annotations": {"sidecar.istio.io/status": "{}"},
        },
        "spec": {
            "hostNetwork": True,
            "initContainers": [{"name": "cases-fetch", "image": "example.com/fetch:1"}],
            "containers": [
                {
                    "name": "istio-proxy",
                    "image": "example.com/proxy:1",
                    "args": ["proxy", "sidecar"],
                }
            ],
        },
    }
