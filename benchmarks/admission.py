"""Measure what each backend costs the creation of a Pod, on the testbed's real API server.

    python -m benchmarks.admission [--rounds 5] [--seconds 4] [--output FOLDER]

Pods are created by server-side dry run, in a namespace of the mesh with a real istiod, and in one
outside of it. In each round every state of the cluster is brought about and measured in turn; a
ratio is made of two figures of one round. The API server, istiod, Kyverno, the webhook and the
load share all cores, as they would on a small cluster. Beside each rate stands the API server's
processor time for a Pod, which depends less on what else runs.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import yaml

from benchmarks import servers
from benchmarks.servers import ROOT, Server
from init_egress.backends import certificates
from init_egress.backends.certificates import Identity, Lifetimes, Trust
from init_egress.backends.reconciler import Reconciler
from init_egress.backends.registry import WEBHOOK as WEBHOOK_BACKEND
from init_egress.backends.webhook_deployment import Image, fill
from init_egress.config import BackendChoice, FailurePolicy, PolicyKind, Settings
from init_egress.kube.application import Application
from init_egress.kube.client import ApiClient
from init_egress.kube.cluster import Cluster
from init_egress.kube.manifest import Manifest
from init_egress.mesh import istiod
from init_egress.rule.istio import EXCLUDE_RANGES
from tests.testbed import build, istio
from tests.testbed.control_plane import ControlPlane, control_plane, controller_manager
from tests.testbed.kyverno import kyverno
from tests.testbed.network import enter_private_network

NONE, NATIVE, WEBHOOK, EMPTY, SAME_PATCH, CLUSTER_POLICY, MUTATING_POLICY = (
    "no policy",
    "native",
    "webhook",
    "empty webhook",
    "empty webhook with the patch",
    "Kyverno ClusterPolicy",
    "Kyverno MutatingPolicy",
)
STATES = (NONE, NATIVE, WEBHOOK, EMPTY, SAME_PATCH, CLUSTER_POLICY, MUTATING_POLICY)
MESH, OUTSIDE = "in the mesh", "outside the mesh"
PLACES = (MESH, OUTSIDE)
NAMESPACES = {MESH: "bench-mesh", OUTSIDE: "bench-outside"}
_LABELS = {MESH: {"istio-injection": "enabled"}, OUTSIDE: {}}
_CONNECTIONS = 4
_WARM_UP = 4
_ENOUGH_FOR_QUARTILES = 4
_SETTLED, _SETTLED_WITH_KYVERNO = 1, 4
"""Seconds after a change until all have noticed it for certain; the API server alone is quick."""
_OWNER = Application("bench", "bench")
_POLICIES = {
    NATIVE: Settings(backend=BackendChoice.NATIVE),
    CLUSTER_POLICY: Settings(
        backend=BackendChoice.KYVERNO, kyverno_kind=PolicyKind.CLUSTER_POLICY
    ),
    MUTATING_POLICY: Settings(
        backend=BackendChoice.KYVERNO, kyverno_kind=PolicyKind.MUTATING_POLICY
    ),
}
# What is compared with what, and where; the first is divided by the second.
RATIOS = (
    (MESH, NATIVE, NONE),
    (MESH, WEBHOOK, NONE),
    (MESH, WEBHOOK, EMPTY),
    (MESH, WEBHOOK, SAME_PATCH),
    (MESH, SAME_PATCH, EMPTY),
    (MESH, NATIVE, CLUSTER_POLICY),
    (MESH, WEBHOOK, CLUSTER_POLICY),
    (MESH, MUTATING_POLICY, CLUSTER_POLICY),
    (OUTSIDE, NATIVE, NONE),
    (OUTSIDE, WEBHOOK, NONE),
    (OUTSIDE, CLUSTER_POLICY, NONE),
    (OUTSIDE, MUTATING_POLICY, NONE),
)


@dataclass(frozen=True)
class Run:
    """What one run of the load showed.

    Attributes:
        rate: Pods created a second.
        cost: the API server's processor time for each, in microseconds.
    """

    rate: float
    cost: float


Runs = dict[tuple[str, str], list[Run]]
"""By place and state, an element for each round."""


@dataclass(frozen=True)
class Bench:
    """A cluster, and the servers that a webhook configuration may lead to, by state."""

    plane: ControlPlane
    identity: Identity
    webhooks: Mapping[str, Server]
    folder: Path
    settled: float

    @contextmanager
    def state(self, name: str) -> Iterator[None]:
        """Bring a state of the cluster about, and take it back."""
        with self.plane.client() as client:
            cluster = ApiClient.connect(client.config)
            if name in _POLICIES:
                Reconciler(cluster, _POLICIES[name], _OWNER, istio.NAMESPACE).reconcile()
            elif name in self.webhooks:
                cluster.apply([self._configuration(cluster, name)])
            time.sleep(self.settled)
            self._check(cluster, name)
            yield
            cluster.prune(_OWNER)  # which has settled when the next state has

    def _check(self, cluster: Cluster, state: str) -> None:
        """See that a Pod gets the remedy where it should, and only there."""
        created: dict[str, Any] = cluster.dry_run(NAMESPACES[MESH], _pod())
        if (EXCLUDE_RANGES in created["metadata"]["annotations"]) is (state in (NONE, EMPTY)):
            raise RuntimeError(f"{state}: a Pod became {created['metadata']['annotations']}")

    def _configuration(self, cluster: Cluster, name: str) -> Manifest:
        """The charm's own webhook configuration, but for where it leads."""
        server = self.webhooks[name]
        filled = fill(
            Settings(),
            _OWNER,
            WEBHOOK_BACKEND.probe_label(_OWNER),
            Image("none"),
            None,
            Trust(self.identity),
        )
        seen = istiod.read(istio.NAMESPACE, cluster.config_maps(istio.NAMESPACE))
        # With the default an answer that the API server does not take would go unnoticed.
        closed = Settings(failure_policy=FailurePolicy.FAIL)
        rendered = WEBHOOK_BACKEND.render(closed, _OWNER, seen.injection, filled)
        configuration: dict[str, Any] = rendered[-1]
        bundle = base64.b64encode(self.identity.authority.encode()).decode()
        configuration["webhooks"][0]["clientConfig"] = {
            "url": f"https://localhost:{server.port}{server.path}",
            "caBundle": bundle,
        }
        return configuration

    def run(self, place: str, seconds: int) -> Run:
        """Create Pods in one place for some seconds."""
        _, api_server = self.plane.processes
        before = servers.cpu_seconds(api_server.pid)
        token = yaml.safe_load(self.plane.kubeconfig().read_text())["users"][0]["user"]["token"]
        namespace = NAMESPACES[place]
        done = subprocess.run(  # noqa: S603
            [
                *("wrk", "--threads", "1", "--connections", str(_CONNECTIONS)),
                *("--duration", f"{seconds}s", "--timeout", "10s"),
                *("--script", str(ROOT / "benchmarks" / "load.lua")),
                *("--header", f"Authorization: Bearer {token}"),
                f"{self.plane.url}/api/v1/namespaces/{namespace}/pods?dryRun=All",
            ],
            env={**os.environ, "BODY": str(self.folder / "pod.json"), "EXPECT": "201"},
            capture_output=True,
            text=True,
            check=False,
        )
        line = next((x for x in done.stdout.splitlines() if x.startswith("RESULT")), "")
        if not line:
            raise RuntimeError(f"wrk failed: {done.stdout}{done.stderr}")
        requests, micros, _, _, errors = map(int, line.split()[1:])
        if errors:
            raise RuntimeError(f"{errors} errors in {requests} requests: {done.stdout}")
        spent = servers.cpu_seconds(api_server.pid) - before
        return Run(requests / micros * 1e6, spent / requests * 1e6)


@contextmanager
def bench(*, with_kyverno: bool) -> Iterator[Bench]:
    """Start everything."""
    with ExitStack() as stack:
        plane = stack.enter_context(control_plane(enter_private_network()))
        stack.enter_context(controller_manager(plane))
        stack.enter_context(istio.istiod(plane))
        if with_kyverno:
            stack.enter_context(kyverno(plane))
        for place, name in NAMESPACES.items():
            plane.create_namespace(name, _LABELS[place])
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        now = datetime.now(timezone.utc)
        _, identity = certificates.signed(None, None, frozenset({"localhost"}), now, Lifetimes())
        (folder / "tls.crt").write_text(identity.certificate)
        (folder / "tls.key").write_text(identity.key)
        (folder / "pod.json").write_text(json.dumps(_pod()))
        webhooks = {
            WEBHOOK: stack.enter_context(servers.webhook(folder)),
            EMPTY: stack.enter_context(servers.empty(folder, "allow")),
            SAME_PATCH: stack.enter_context(servers.empty(folder, "patch")),
        }
        settled = _SETTLED_WITH_KYVERNO if with_kyverno else _SETTLED
        yield Bench(plane, identity, webhooks, folder, settled)


def _pod() -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "bench-"},
        "spec": {
            "initContainers": [{"name": "fetch", "image": "example.com/fetch:1"}],
            "containers": [{"name": "app", "image": "example.com/app:1"}],
        },
    }


def measure(
    states: Sequence[str],
    places: Sequence[str],
    rounds: int,
    seconds: int,
    tell: Callable[[str], None],
) -> Runs:
    """Measure every state in every round."""
    runs: Runs = {}
    with bench(with_kyverno=bool({CLUSTER_POLICY, MUTATING_POLICY} & set(states))) as running:
        for place in places:
            running.run(place, max(seconds, _WARM_UP))  # the API server, istiod and their caches
        for number in range(rounds):
            # Each round begins with another state, so that none always follows the same one.
            first = number % len(states)
            for state in (*states[first:], *states[:first]):
                with running.state(state):
                    for place in places:
                        found = running.run(place, seconds)
                        runs.setdefault((place, state), []).append(found)
                        tell(
                            f"round {number + 1}: {state}, {place}: {found.rate:.0f} Pods/s,"
                            f" {found.cost:.0f} us of the API server"
                        )
    return runs


def _measured(runs: Runs, of: Sequence[str]) -> list[str]:
    """Those of some states or places that were measured."""
    seen = {name for key in runs for name in key}
    return [name for name in of if name in seen]


def ratios(runs: Runs, place: str, state: str, other: str) -> list[float]:
    """How many times the Pods of another state, in each round."""
    pairs = zip(runs[place, state], runs[place, other], strict=True)
    return [mine.rate / others.rate for mine, others in pairs]


def report(runs: Runs, rounds: int, seconds: int) -> str:
    """The figures as Markdown."""
    states, places = _measured(runs, STATES), _measured(runs, PLACES)
    lines = [
        f"Pods created a second by server-side dry run, {_CONNECTIONS} connections,"
        f" {os.cpu_count()} cores for everything, and in brackets the API server's processor time"
        f" for each in microseconds; medians of {rounds} rounds of {seconds} s each.",
        "",
        f"| state | {' | '.join(places)} |",
        f"| --- |{' ---: |' * len(places)}",
        *(
            f"| {state} | {' | '.join(_median(runs[place, state]) for place in places)} |"
            for state in states
        ),
        "",
        "| ratio | where | median (quartiles; range) |",
        "| --- | --- | ---: |",
    ]
    for place, state, other in RATIOS:
        if place not in places or not {state, other} <= set(states):
            continue
        lines.append(
            f"| {state} / {other} | {place} | {_spread(ratios(runs, place, state, other))} |"
        )
    return "\n".join(lines) + "\n"


def _median(runs: Sequence[Run]) -> str:
    rate = statistics.median(run.rate for run in runs)
    return f"{rate:,.0f} ({statistics.median(run.cost for run in runs):,.0f})"


def _spread(found: Sequence[float]) -> str:
    if len(found) < _ENOUGH_FOR_QUARTILES:
        return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
    return f"{middle:.2f} ({low:.2f} to {high:.2f}; {min(found):.2f} to {max(found):.2f})"


def plot(runs: Runs, path: Path) -> None:
    """Draw Pods a second by state and place."""
    # Of benchmarks/requirements.txt, which only `make bench` installs.
    import matplotlib  # pyright: ignore[reportMissingImports]

    matplotlib.use("Agg")
    from matplotlib import pyplot  # pyright: ignore[reportMissingImports]

    states, places = _measured(runs, STATES), _measured(runs, PLACES)
    figure, axes = pyplot.subplots(1, len(places), figsize=(6 * len(places), 4), squeeze=False)
    for axis, place in zip(axes[0], places, strict=True):
        middles = [statistics.median(run.rate for run in runs[place, state]) for state in states]
        bars = axis.barh(states[::-1], middles[::-1])
        axis.bar_label(bars, [f"{middle:,.0f}" for middle in middles[::-1]], padding=3)
        axis.set_title(place)
        axis.set_xlabel("Pods created a second")
        axis.set_xlim(0, max(middles) * 1.15)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables and write them and a plot; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.admission")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4, help="of each run of the load")
    parser.add_argument(
        "--states",
        default=",".join(STATES),
        help="the fewer, the closer those that are compared follow each other (default: all)",
    )
    parser.add_argument(
        "--places", default=",".join(PLACES), help="where Pods are created (default: both)"
    )
    parser.add_argument("--name", default="admission", help="of the files that are written")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args(arguments)
    if not shutil.which("wrk"):
        sys.exit("wrk is missing: install Debian's package wrk")
    if not importlib.util.find_spec("matplotlib"):
        sys.exit("matplotlib is missing: install benchmarks/requirements.txt")
    for module in build.MODULES:
        build.prepare(module)
    states = _chosen(parser, options.states, STATES)
    places = _chosen(parser, options.places, PLACES)
    runs = measure(
        states,
        places,
        options.rounds,
        options.seconds,
        lambda text: print(text, file=sys.stderr, flush=True),
    )
    text = report(runs, options.rounds, options.seconds)
    print(text)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / f"{options.name}.md").write_text(text)
    plot(runs, options.output / f"{options.name}.png")
    return 0


def _chosen(parser: argparse.ArgumentParser, text: str, known: Sequence[str]) -> list[str]:
    """The names in a list with commas; exits with what there is if one is unknown."""
    names = text.split(",")
    if unknown := set(names) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
