"""Measure whether Kyverno's mutate-existing rules would serve to annotate Pods that are stuck.

    python -m benchmarks.kyverno_existing [--sizes 100] [--output FOLDER]

A cluster of the testbed is filled with Pods that are stuck in their init containers. They are
annotated by JSON patches as an action would send them, by a policy with one trigger for all Pods,
and by a policy under which each Pod is its own trigger. What was sent to the API server is read
from its audit log. Then Pods are changed meanwhile, and one Pod can't be changed at all.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import yaml

from benchmarks.servers import ROOT
from init_egress.rule.decision import EXCLUDE_RANGES
from tests.testbed import build
from tests.testbed.control_plane import ControlPlane, Manifest, control_plane, controller_manager
from tests.testbed.kwok import kwok
from tests.testbed.kyverno import kyverno
from tests.testbed.network import enter_private_network
from tests.testbed.population import Population, http_client, populate, wait_until_started
from tests.testbed.process import wait_until

PATCHES, ONE_TRIGGER, EACH_POD = "JSON patches", "one trigger", "each Pod a trigger"
_VALUE = "0.0.0.0/0,::/0"
_CONNECTIONS = 8
_DEADLINE = 300
_WATCHED = 90
"""Seconds for which a Pod that can't be changed is watched."""
_NAMESPACE = "bench"
_PATH = "/metadata/annotations/" + EXCLUDE_RANGES.replace("/", "~1")

# Kyverno's background controller changes Pods with the rights of this role, which is aggregated.
ROLE: Manifest = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {
        "name": "bench-existing",
        "labels": {"rbac.kyverno.io/aggregate-to-background-controller": "true"},
    },
    "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "update"]}
    ],
}
TRIGGER: Manifest = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "trigger", "namespace": _NAMESPACE},
}
_AUDIT: Manifest = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "resources": [
                {"group": "", "resources": ["pods", "pods/eviction"]},
                {"group": "kyverno.io"},
                {"group": "", "resources": ["events"]},
                {"group": "events.k8s.io"},
            ],
        },
        {"level": "None"},
    ],
}


@dataclass(frozen=True)
class Run:
    """What one way of annotating all Pods did."""

    way: str
    pods: int
    annotated: int
    seconds: float
    requests: Mapping[tuple[str, str, int], int]
    """How often: by verb, resource and code of the answer."""
    recreated: int

    def count(self, verb: str, resource: str, code: int | None = None) -> int:
        """How many requests of a kind there were."""
        return sum(
            number
            for (v, r, c), number in self.requests.items()
            if (v, r) == (verb, resource) and code in (None, c)
        )


@dataclass
class Bench:
    """A cluster full of stuck Pods, with Kyverno."""

    plane: ControlPlane
    http: httpx2.Client
    audit: Path
    pods: int

    def annotated(self) -> int:
        """How many Pods have the annotation."""
        return sum(EXCLUDE_RANGES in pod.get("annotations", {}) for pod in self.metadata())

    def metadata(self) -> list[Manifest]:
        """The metadata of all Pods."""
        kind = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        answer = self.http.get("/api/v1/pods", headers={"Accept": kind}).raise_for_status()
        return [item["metadata"] for item in answer.json()["items"]]

    def patch_all(self, operations: Callable[[Manifest], list[Manifest]]) -> None:
        """Send each Pod a JSON patch."""
        pods = self.metadata()

        def work(worker: int) -> None:
            with http_client(self.plane) as http:
                for pod in pods[worker::_CONNECTIONS]:
                    http.patch(
                        f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}",
                        content=json.dumps(operations(pod)),
                        headers={"Content-Type": "application/json-patch+json"},
                    ).raise_for_status()

        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            list(pool.map(work, range(_CONNECTIONS)))

    def reset(self) -> None:
        """Take the annotation away again."""
        self.plane.kubectl("delete", "clusterpolicy", "--all")
        wait_until(
            lambda: not self.update_requests(), "no UpdateRequest is left", deadline=_DEADLINE
        )
        self.patch_all(
            lambda pod: (
                [{"op": "remove", "path": _PATH}]
                if EXCLUDE_RANGES in pod.get("annotations", {})
                else []
            )
        )

    def refusal(self, wanted: Manifest) -> str:
        """Why the API server, with Kyverno's webhook, would not take a policy; "" if it would."""
        path = "/apis/kyverno.io/v1/clusterpolicies?dryRun=All&fieldValidation=Strict"
        answer = self.http.post(path, content=json.dumps(wanted))
        return "" if answer.is_success else answer.json()["message"]

    def is_refused(self) -> bool:
        """Whether the first Pod can't be annotated."""
        pod = self.metadata()[0]
        answer = self.http.patch(
            f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}?dryRun=All",
            content=json.dumps(annotate(pod)),
            headers={"Content-Type": "application/json-patch+json"},
        )
        return answer.status_code == httpx2.codes.UNPROCESSABLE_CONTENT

    def update_requests(self) -> list[Manifest]:
        """Kyverno's UpdateRequests."""
        path = "/apis/kyverno.io/v2/namespaces/kyverno/updaterequests"
        return self.http.get(path).raise_for_status().json()["items"]

    def measure(self, way: str, act: Callable[[], None], seconds: float = _DEADLINE) -> Run:
        """Act, and wait until all Pods are annotated or the time is over."""
        before = {pod["uid"] for pod in self.metadata()}
        offset = self.audit.stat().st_size
        began = time.monotonic()
        act()
        while (found := self.annotated()) < self.pods and time.monotonic() < began + seconds:
            time.sleep(0.1)
        took = time.monotonic() - began
        after = {pod["uid"] for pod in self.metadata()}
        return Run(way, self.pods, found, took, self._requests(offset), len(before - after))

    def _requests(self, offset: int) -> Counter[tuple[str, str, int]]:
        """What was sent to the API server since, but for our own looking and KWOK's."""
        found: Counter[tuple[str, str, int]] = Counter()
        with self.audit.open("rb") as log:
            log.seek(offset)
            for line in log:
                event = json.loads(line)
                agent = event.get("userAgent", "")
                if event["verb"] == "list" and agent.startswith("python"):
                    continue
                if agent.startswith(("kwok", "kube-controller-manager")):
                    continue
                reference = event.get("objectRef", {})
                name = reference.get("resource", "")
                found[event["verb"], name, event.get("responseStatus", {}).get("code", 0)] += 1
        return found


def policy(way: str) -> Manifest:
    """A policy that annotates Pods that exist; its conditions are the least that is needed."""
    trigger = {"kinds": ["ConfigMap"], "names": ["trigger"], "namespaces": [_NAMESPACE]}
    target = {"namespace": "*", "name": "*"}
    if way == EACH_POD:
        # `operations: [CREATE]` would match nothing: a Pod that exists was sent by no operation.
        trigger = {"kinds": ["Pod"]}
        target = {
            "namespace": "{{ request.object.metadata.namespace }}",
            "name": "{{ request.object.metadata.name }}",
        }
    status = "{{ target.metadata.annotations.\"sidecar.istio.io/status\" || '' }}"
    rule = {
        "name": "exclude",
        "match": {"any": [{"resources": trigger}]},
        "mutate": {
            "mutateExistingOnPolicyUpdate": True,
            "targets": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    **target,
                    "preconditions": {
                        "all": [{"key": status, "operator": "NotEquals", "value": ""}]
                    },
                }
            ],
            "patchStrategicMerge": {"metadata": {"annotations": {f"+({EXCLUDE_RANGES})": _VALUE}}},
        },
    }
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {
            # A name of its own: Kyverno goes on for a moment with a policy that is deleted.
            "name": f"bench-{way.lower().replace(' ', '-')}",
            "annotations": {"pod-policies.kyverno.io/autogen-controllers": "none"},
        },
        "spec": {"background": False, "rules": [rule]},
    }


@contextmanager
def bench(pods: int, tell: Callable[[str], None]) -> Iterator[Bench]:
    """Start everything, and fill it."""
    with ExitStack() as stack:
        network = enter_private_network()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        audit = folder / "audit.log"
        (folder / "audit.yaml").write_text(yaml.safe_dump(_AUDIT))
        flags = (f"--audit-policy-file={folder / 'audit.yaml'}", f"--audit-log-path={audit}")
        plane = stack.enter_context(control_plane(network, flags=flags))
        nodes = stack.enter_context(kwok(plane)).nodes
        client = stack.enter_context(plane.client())
        took = populate(plane, Population(pods, namespaces=max(1, pods // 50)), nodes)
        wait_until_started(client)
        tell(f"{pods} Pods written in {took:.1f} s")
        stack.enter_context(controller_manager(plane))
        stack.enter_context(kyverno(plane))
        plane.create_namespace(_NAMESPACE)
        plane.apply([TRIGGER])
        yield Bench(plane, stack.enter_context(http_client(plane)), audit, pods)


def annotate(pod: Manifest) -> list[Manifest]:
    """Add the annotation to a Pod that still is the one that was looked at."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod["uid"]},
        {"op": "add", "path": _PATH, "value": _VALUE},
    ]


@dataclass(frozen=True)
class Rights:
    """What came of a policy before and after its rights were given."""

    refusal: str
    dry_run: int
    """UpdateRequests that a dry run of the policy made."""
    selector: str
    """What came of a namespaceSelector in a target."""


def rights(bench: Bench) -> Rights:
    """Try the policy without rights, give them, and try it by dry run."""
    wanted = policy(ONE_TRIGGER)
    refusal = bench.refusal(wanted)
    bench.plane.apply([ROLE])
    wait_until(lambda: not bench.refusal(wanted), "the policy is taken")
    requests = len(bench.update_requests())
    selected = policy(ONE_TRIGGER)
    selected["spec"]["rules"][0]["mutate"]["targets"][0]["namespaceSelector"] = {
        "matchLabels": {"istio-injection": "enabled"}
    }
    return Rights(refusal, requests, bench.refusal(selected))


@contextmanager
def changing(bench: Bench, tell: Callable[[str], None]) -> Iterator[None]:
    """Change a label of one Pod after the other, up to 50 a second, as other controllers would."""
    over = threading.Event()
    pods = bench.metadata()
    made = itertools.count()

    def work() -> None:
        with http_client(bench.plane) as http:
            while not over.wait(0.02):
                number = next(made)
                pod = pods[number * 7 % len(pods)]
                http.patch(
                    f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}",
                    content=json.dumps({"metadata": {"labels": {"changed": str(number)}}}),
                    headers={"Content-Type": "application/merge-patch+json"},
                ).raise_for_status()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        tell(f"{next(made)} changes by somebody else")


def refusing(bench: Bench) -> list[Manifest]:
    """A policy of somebody else that refuses changes of one Pod's annotations."""
    pod = bench.metadata()[0]
    name = "bench-refuses"
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {
                    "resourceRules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["UPDATE"],
                            "resources": ["pods"],
                        }
                    ]
                },
                "validations": [
                    {
                        "expression": f"object.metadata.uid != '{pod['uid']}' || "
                        f"!('{EXCLUDE_RANGES}' in object.metadata.annotations)",
                        "message": "this Pod stays as it is",
                    }
                ],
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]


@dataclass(frozen=True)
class Results:
    """All that was found."""

    rights: Rights
    runs: Sequence[Run]
    changed: Run
    refused: Run
    left: int
    """UpdateRequests that were still there at the end of the last."""


def measure(sizes: Sequence[int], tell: Callable[[str], None]) -> Results:
    """Measure each way at each size, and what goes wrong at the last one."""
    runs: list[Run] = []
    for size in sizes[:-1]:
        with bench(size, tell) as running:
            rights(running)
            runs += _compare(running, tell)
    with bench(sizes[-1], tell) as running:
        found = rights(running)
        runs += _compare(running, tell)
        with changing(running, tell):
            changed = running.measure("changed meanwhile", _policy_of(running, ONE_TRIGGER))
        running.reset()
        running.plane.apply(refusing(running))
        wait_until(running.is_refused, "the refusal is in force")
        refused = running.measure("one refused", _policy_of(running, ONE_TRIGGER), _WATCHED)
        left = len(running.update_requests())
    return Results(found, runs, changed, refused, left)


def _compare(bench: Bench, tell: Callable[[str], None]) -> list[Run]:
    runs: list[Run] = []
    for way, act in _ways(bench):
        runs.append(bench.measure(way, act))
        tell(f"{way}: {runs[-1].annotated} of {bench.pods} in {runs[-1].seconds:.1f} s")
        bench.reset()
    return runs


def _ways(bench: Bench) -> list[tuple[str, Callable[[], None]]]:
    return [
        (PATCHES, lambda: bench.patch_all(annotate)),
        (ONE_TRIGGER, _policy_of(bench, ONE_TRIGGER)),
        (EACH_POD, _policy_of(bench, EACH_POD)),
    ]


def _policy_of(bench: Bench, way: str) -> Callable[[], None]:
    return lambda: bench.plane.apply([policy(way)])


def report(results: Results) -> str:
    """The figures as Markdown."""
    refused, changed = results.refused, results.changed
    lines = [
        "Pods that are stuck in an init container, annotated on a cluster of the testbed; every"
        " figure is of one run. *Requests* are those that the API server's audit log holds for"
        " Pods, UpdateRequests and events, without KWOK's and the controller manager's.",
        "",
        "| way | Pods | annotated | seconds | writes of Pods | UpdateRequests |"
        " requests for UpdateRequests | all requests | Pods recreated |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(_row(run) for run in (*results.runs, changed, refused)),
        "",
        f"* Without the ClusterRole the policy is refused: `{results.rights.refusal}`",
        f"* A dry run of the policy made {results.rights.dry_run} UpdateRequests: what it would"
        " change is not told.",
        f"* With `namespaceSelector` in the target: `{results.rights.selector or 'taken'}`",
        f"* *changed meanwhile*: somebody else changed a label {changed.count('patch', 'pods')}"
        f" times, of one Pod after the other; {changed.count('update', 'pods', 409)} of Kyverno's"
        " writes met a conflict.",
        f"* *one refused*: one Pod can't be changed. {refused.annotated} of {refused.pods} were"
        f" annotated; in {_WATCHED} s the refused one was tried"
        f" {refused.count('update', 'pods') - refused.count('update', 'pods', 200)} times, and"
        f" {results.left} UpdateRequest was left, to be tried on.",
    ]
    return "\n".join(lines) + "\n"


def _row(run: Run) -> str:
    writes = run.count("patch" if run.way == PATCHES else "update", "pods")
    urs = [number for (_, name, _), number in run.requests.items() if name == "updaterequests"]
    cells = (
        run.way,
        run.pods,
        run.annotated,
        f"{run.seconds:.1f}",
        writes,
        run.count("create", "updaterequests"),
        sum(urs),
        sum(run.requests.values()),
        run.recreated,
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table and write it; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kyverno_existing")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100], help="in Pods")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args(arguments)
    for module in (build.ETCD, build.KUBERNETES, build.KYVERNO, build.KWOK):
        build.prepare(module)
    results = measure(options.sizes, lambda text: print(text, file=sys.stderr, flush=True))
    text = report(results)
    print(text)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "kyverno-existing.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
