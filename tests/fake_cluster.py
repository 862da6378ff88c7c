"""A cluster in memory that records what it is asked for, for tests in which parts of it fail.

It stores what is applied, as a server-side apply by one manager does. Its admission is the rule's
own (`init_egress.rule`): a policy that is stored acts on a Pod that asks for it by its probe
label, once Istio has injected the Pod. What no fake can tell, whether a policy does the same on a
real API server, is the functional suite's; `tests/expectations.py` holds the two together.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from lightkube.core.resource import api_info

from init_egress.backends.backend import BackendKind
from init_egress.backends.probe import NO_BACKEND
from init_egress.backends.registry import BACKENDS
from init_egress.kube.application import Application
from init_egress.kube.cluster import Cluster
from init_egress.kube.errors import ClusterError, NotFound, Refused, Unreachable
from init_egress.kube.kinds import (
    CLUSTER_POLICY,
    CONFIG_MAP,
    DEPLOYMENT,
    MUTATING_POLICY,
    NAMESPACE,
    NATIVE_BINDING,
    NATIVE_POLICY,
    OURS,
    WEBHOOK_CONFIGURATION,
    Kind,
)
from init_egress.kube.manifest import Manifest
from init_egress.rule import istio
from init_egress.rule.decision import decide
from init_egress.rule.pod import Namespace, Pod
from init_egress.rule.policy import Policy

ALL_KINDS = (
    NATIVE_POLICY,
    NATIVE_BINDING,
    CLUSTER_POLICY,
    MUTATING_POLICY,
    WEBHOOK_CONFIGURATION,
)
WRITES = ("apply", "delete")
ISTIOD: Mapping[str, Mapping[str, str]] = {
    "istio": {"mesh": "{}"},
    "istio-sidecar-injector": {
        "values": json.dumps({"pilot": {"cni": {"enabled": True}}}),
        "config": "templates: {}",
    },
}
"""The ConfigMaps of an istiod with the CNI plugin and nothing else out of the ordinary."""


@dataclass(frozen=True)
class Request:
    """One request that the cluster was asked for.

    Attributes:
        verb: apply, get, list, delete or dry-run.
        what: the kind and name, or the kind alone.
    """

    verb: str
    what: str

    def __str__(self) -> str:
        return f"{self.verb} {self.what}"


Fault = Callable[[Request], None]
"""Raises a ClusterError for a request that is to fail."""


@dataclass
class FakeCluster(Cluster):
    """A cluster in memory.

    Attributes:
        served: the kinds of policies and webhook configurations that it serves.
        live_namespaces: the namespaces with their labels; those with `istio-injection: enabled`
            or `istio.io/rev` are injected.
        istiod: the data of the ConfigMaps of the mesh namespace.
        idle: kinds that are served although nothing carries them out.
        refusing: namespaces that admit no Pod, with what the API server says.
        failing: namespaces with a webhook that can't be called and fails closed.
        deprecated: what its authors say of a kind.
        policy: what the stored policies carry out, for the fake reads no CEL.
        rolls_out: whether the replicas of a Deployment become ready.
        kyverno_reports_ready: whether Kyverno sets its policies' status.
        requests: what it was asked for, in order.
        fault: is shown every request before it is carried out.
    """

    served: set[Kind] = field(default_factory=lambda: set(ALL_KINDS))
    live_namespaces: dict[str, dict[str, str]] = field(
        default_factory=lambda: {"team": {"istio-injection": "enabled"}}
    )
    istiod: dict[str, Mapping[str, str]] = field(default_factory=lambda: dict(ISTIOD))
    idle: set[Kind] = field(default_factory=set)
    refusing: dict[str, str] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)
    deprecated: dict[Kind, str] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    rolls_out: bool = True
    kyverno_reports_ready: bool = True
    requests: list[Request] = field(default_factory=list)
    fault: Fault | None = None
    _objects: dict[tuple[str, str, str], Manifest] = field(default_factory=dict)

    # What the charm asks for

    def serves(self, kind: Kind) -> bool:
        """Tell whether the cluster serves a kind."""
        self._ask("list", _title(kind))
        return kind in self.served

    def deprecation(self, kind: Kind) -> str:
        """What the authors of a custom resource say of its being deprecated."""
        self._ask("get", f"CustomResourceDefinition {api_info(kind).plural}")
        return self.deprecated.get(kind, "")

    def apply(self, manifests: Iterable[Manifest]) -> None:
        """Store objects."""
        for manifest in manifests:
            self._ask("apply", f"{manifest['kind']} {_metadata(manifest)['name']}")
            self._store(manifest)

    def get(self, kind: Kind, name: str, namespace: str = "") -> Manifest | None:
        """Read one object; None if it isn't there."""
        self._ask("get", f"{_title(kind)} {name}")
        if kind is NAMESPACE and name in self.live_namespaces:
            return {"kind": "Namespace", "metadata": {"name": name, "uid": f"uid-of-{name}"}}
        return copy.deepcopy(self._objects.get((_title(kind), namespace, name)))

    def prune(self, application: Application, keep: Iterable[Manifest] = ()) -> list[str]:
        """Delete the application's objects but those to keep."""
        kept = {(str(m["kind"]), str(_metadata(m)["name"])) for m in keep}
        pruned: list[str] = []
        for kind in OURS:
            self._ask("list", _title(kind))
            for key in [k for k in self._objects if k[0] == _title(kind)]:
                labels = _metadata(self._objects[key]).get("labels")
                if labels != application.labels or (key[0], key[2]) in kept:
                    continue
                self._ask("delete", f"{key[0]} {key[2]}")
                del self._objects[key]
                pruned.append(f"{key[0]} {key[2]}")
        return pruned

    def namespaces(self) -> list[Namespace]:
        """The namespaces, by name."""
        self._ask("list", "Namespace")
        return [Namespace(name, labels) for name, labels in sorted(self.live_namespaces.items())]

    def labelled_pods(self, namespace: str, labels: Mapping[str, str]) -> list[Manifest]:
        """No Pod is stored here."""
        self._ask("list", f"Pod in {namespace}")
        return []

    def config_maps(self, namespace: str) -> dict[str, Mapping[str, str]]:
        """Name and data of istiod's ConfigMaps, whichever namespace is asked about."""
        self._ask("list", f"ConfigMap in {namespace}")
        return dict(self.istiod)

    def dry_run(self, namespace: str, pod: Manifest) -> Manifest:
        """The Pod as it would be stored: injected, then changed by the policy that it asks for."""
        self._ask("dry-run", f"Pod in {namespace}")
        if namespace not in self.live_namespaces:
            raise NotFound(f'can\'t create a Pod: namespaces "{namespace}" not found', 404)
        if reason := self.refusing.get(namespace):
            raise Refused(f"can't create a Pod in {namespace} by dry run: {reason}", 403)
        if namespace in self.failing:
            raise Unreachable(f"can't create a Pod in {namespace}: failed calling webhook", 500)
        labels = self.live_namespaces[namespace]
        stored = _injected(pod) if _is_injected(labels) else copy.deepcopy(pod)
        return self._admitted(stored, Namespace(namespace, labels))

    # What a test asks for

    @property
    def stored(self) -> list[str]:
        """The objects that are there, as `Kind name`."""
        return sorted(f"{kind} {name}" for kind, _, name in self._objects)

    @property
    def written(self) -> list[str]:
        """The writes that it was asked for, in order."""
        return [str(request) for request in self.requests if request.verb in WRITES]

    def spoil(self, kind: Kind, name: str, namespace: str, data: Mapping[str, object]) -> None:
        """Change the data of an object behind the charm's back."""
        self._objects[_title(kind), namespace, name]["data"] = {**data}

    def fail_once(self, number: int, error: ClusterError) -> None:
        """Answer the request of this number, counted from 0 and from now, with an error."""
        left = number

        def fault(_: Request) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                raise error

        self.fault = fault

    def fail_on(self, verb: str, what: str, error: ClusterError) -> None:
        """Answer every request with this verb, for something that begins with `what`, so."""

        def fault(request: Request) -> None:
            if request.verb == verb and request.what.startswith(what):
                raise error

        self.fault = fault

    def backends_in_force(self, application: Application) -> set[BackendKind]:
        """The backends that give a Pod of the mesh the remedy now."""
        return {
            kind
            for kind, backend in BACKENDS.items()
            if self._carries_out(backend.probe_label(application))
        }

    def _ask(self, verb: str, what: str) -> None:
        request = Request(verb, what)
        self.requests.append(request)
        if self.fault:
            self.fault(request)

    def _store(self, manifest: Manifest) -> None:
        metadata = _metadata(manifest)
        key = str(manifest["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"])
        status = self._status(manifest)
        self._objects[key] = {**copy.deepcopy(manifest), **({"status": status} if status else {})}

    def _status(self, manifest: Manifest) -> dict[str, object]:
        """What controllers write into a new object's status."""
        if manifest["kind"] == _title(DEPLOYMENT):
            spec = manifest["spec"]
            replicas = spec["replicas"] if isinstance(spec, dict) and self.rolls_out else 0
            counts = ("replicas", "readyReplicas", "updatedReplicas")
            return dict.fromkeys(counts, replicas)
        if not self.kyverno_reports_ready:
            return {}
        if manifest["kind"] == _title(CLUSTER_POLICY):
            return {"conditions": [{"type": "Ready", "status": "True"}]}
        if manifest["kind"] == _title(MUTATING_POLICY):
            return {"conditionStatus": {"ready": True}}
        return {}

    def _admitted(self, pod: Manifest, namespace: Namespace) -> Manifest:
        labels = _metadata(pod).get("labels")
        probe = str(labels.get(istio.PROBE_LABEL, "")) if isinstance(labels, dict) else ""
        if probe in ("", NO_BACKEND) or not self._carries_out(probe):
            return pod
        decision = decide(Pod.from_dict(pod), namespace, self.policy)
        for operation in decision.patch:
            _apply(pod, operation.path, operation.value)
        return pod

    def _carries_out(self, probe: str) -> bool:
        """Whether what is stored acts on the Pods with this probe label."""
        return any(self._acts(kind, probe) for kind in ALL_KINDS if kind not in self.idle)

    def _acts(self, kind: Kind, probe: str) -> bool:
        if kind is NATIVE_BINDING:
            return False
        if kind is WEBHOOK_CONFIGURATION:
            return bool(self._of(kind)) and self._webhook_answers(probe)
        bound = kind is not NATIVE_POLICY or bool(self._of(NATIVE_BINDING))
        return bound and any(probe in json.dumps(item) for item in self._of(kind))

    def _webhook_answers(self, probe: str) -> bool:
        ready = [d for d in self._of(DEPLOYMENT) if _number(d, "status", "readyReplicas")]
        return bool(ready) and any(probe in json.dumps(m) for m in self._of(CONFIG_MAP))

    def _of(self, kind: Kind) -> list[Manifest]:
        return [item for key, item in self._objects.items() if key[0] == _title(kind)]


def _is_injected(labels: Mapping[str, str]) -> bool:
    if "istio-injection" in labels:
        return labels["istio-injection"] == "enabled"
    return "istio.io/rev" in labels


def _injected(pod: Manifest) -> Manifest:
    """The Pod as istiod with the CNI plugin injects it, as far as the rule reads it."""
    metadata, spec = _metadata(pod), pod["spec"]
    assert isinstance(spec, dict)
    annotations = metadata.get("annotations")
    given = annotations if isinstance(annotations, dict) else {}
    proxy = {"name": istio.ISTIO_PROXY, "args": ["proxy", "sidecar"]}
    return {
        **copy.deepcopy(pod),
        "metadata": {**metadata, "annotations": {istio.STATUS: "{}", **given}},
        "spec": {
            **copy.deepcopy(spec),
            "initContainers": [{"name": "istio-validation"}, *spec.get("initContainers", [])],
            "containers": [*spec["containers"], proxy],
        },
    }


def _apply(pod: Manifest, path: str, value: object) -> None:
    *steps, last = [s.replace("~1", "/").replace("~0", "~") for s in path.split("/")[1:]]
    found: object = pod
    for step in steps:
        found = found[int(step)] if isinstance(found, list) else found[step]  # type: ignore[index]
    assert isinstance(found, dict)
    found[last] = value


def _number(manifest: Manifest, *path: str) -> int:
    found: object = manifest
    for step in path:
        found = found.get(step, 0) if isinstance(found, dict) else 0
    return found if isinstance(found, int) else 0


def _title(kind: Kind) -> str:
    return api_info(kind).resource.kind


def _metadata(manifest: Manifest) -> dict[str, object]:
    metadata = manifest["metadata"]
    assert isinstance(metadata, dict)
    return metadata
