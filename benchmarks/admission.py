"""Measure what each backend costs the creation of a Pod, on the testbed's real API server.

    python -m benchmarks.admission [--rounds 5] [--seconds 4] [--output FOLDER]

Pods are created by server-side dry run, in a namespace of the mesh with a real istiod, and in one
outside of it. In each round every state of the cluster is brought about and measured in turn; a
ratio is made of two figures of one round. The API server, istiod, Kyverno, the webhook and the
load share all cores, as they would on a small cluster.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import yaml

from benchmarks import servers
from benchmarks.servers import ROOT, Server
from init_egress import certificates, manifests, reconciler
from init_egress.certificates import Identity, Lifetimes, Trust
from init_egress.cluster import Cluster
from init_egress.manifests import Form, Owner
from init_egress.settings import Backend, PolicyKind, Settings
from init_egress.workload import Image, fill
from tests.testbed import build, istio
from tests.testbed.control_plane import ControlPlane, control_plane, controller_manager
from tests.testbed.kyverno import kyverno
from tests.testbed.network import enter_private_network

NONE, NATIVE, WEBHOOK, EMPTY, CLUSTER_POLICY, MUTATING_POLICY = (
    "no policy",
    "native",
    "webhook",
    "empty webhook",
    "Kyverno ClusterPolicy",
    "Kyverno MutatingPolicy",
)
STATES = (NONE, NATIVE, WEBHOOK, EMPTY, CLUSTER_POLICY, MUTATING_POLICY)
MESH, OUTSIDE = "in the mesh", "outside the mesh"
NAMESPACES = {MESH: "bench-mesh", OUTSIDE: "bench-outside"}
_LABELS = {MESH: {"istio-injection": "enabled"}, OUTSIDE: {}}
_CONNECTIONS = 4
_SETTLED = 4
"""Seconds after a change until the API server and Kyverno have noticed it for certain."""
_OWNER = Owner("bench", "bench")
_POLICIES = {
    NATIVE: Settings(backend=Backend.NATIVE),
    CLUSTER_POLICY: Settings(backend=Backend.KYVERNO, kyverno_kind=PolicyKind.CLUSTER_POLICY),
    MUTATING_POLICY: Settings(backend=Backend.KYVERNO, kyverno_kind=PolicyKind.MUTATING_POLICY),
}
# What is compared with what, and where; the first is divided by the second.
RATIOS = (
    (MESH, NATIVE, NONE),
    (MESH, WEBHOOK, NONE),
    (MESH, WEBHOOK, EMPTY),
    (MESH, NATIVE, CLUSTER_POLICY),
    (MESH, WEBHOOK, CLUSTER_POLICY),
    (MESH, MUTATING_POLICY, CLUSTER_POLICY),
    (OUTSIDE, NATIVE, NONE),
    (OUTSIDE, WEBHOOK, NONE),
    (OUTSIDE, CLUSTER_POLICY, NONE),
    (OUTSIDE, MUTATING_POLICY, NONE),
)

Rates = dict[tuple[str, str], list[float]]
"""Pods a second by place and state, an element for each round."""


@dataclass(frozen=True)
class Bench:
    """A cluster, and the two servers that a webhook configuration may lead to."""

    plane: ControlPlane
    identity: Identity
    webhook: Server
    empty: Server
    folder: Path

    @contextmanager
    def state(self, name: str) -> Iterator[None]:
        """Bring a state of the cluster about, and take it back."""
        with self.plane.client() as client:
            cluster = Cluster(client)
            if name in _POLICIES:
                reconciler.reconcile(cluster, _POLICIES[name], _OWNER, istio.NAMESPACE)
            elif name in (WEBHOOK, EMPTY):
                cluster.apply([self._configuration(name)])
            time.sleep(_SETTLED)
            yield
            cluster.prune(_OWNER)
            time.sleep(_SETTLED)

    def _configuration(self, name: str) -> manifests.Manifest:
        """The charm's own webhook configuration, but for where it leads."""
        server = self.webhook if name == WEBHOOK else self.empty
        filled = fill(Settings(), _OWNER, Image("none"), None, Trust(self.identity))
        rendered = manifests.render(Form.WEBHOOK, Settings(), _OWNER, workload=filled)
        configuration: dict[str, Any] = rendered[-1]
        bundle = base64.b64encode(self.identity.authority.encode()).decode()
        configuration["webhooks"][0]["clientConfig"] = {
            "url": f"https://localhost:{server.port}{server.path}",
            "caBundle": bundle,
        }
        return configuration

    def rate(self, place: str, seconds: int) -> float:
        """Pods created a second."""
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
        return requests / micros * 1e6


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
        webhook = stack.enter_context(servers.webhook(folder))
        empty = stack.enter_context(servers.empty(folder))
        yield Bench(plane, identity, webhook, empty, folder)


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
    states: Sequence[str], rounds: int, seconds: int, tell: Callable[[str], None]
) -> Rates:
    """Measure every state in every round."""
    rates: Rates = {}
    with bench(with_kyverno=bool({CLUSTER_POLICY, MUTATING_POLICY} & set(states))) as running:
        for place in NAMESPACES:
            running.rate(place, seconds)  # warms up the API server, istiod and their caches
        for number in range(rounds):
            # Each round begins with another state, so that none always follows the same one.
            first = number % len(states)
            for state in (*states[first:], *states[:first]):
                with running.state(state):
                    for place in NAMESPACES:
                        found = running.rate(place, seconds)
                        rates.setdefault((place, state), []).append(found)
                        tell(f"round {number + 1}: {state}, {place}: {found:.0f} Pods/s")
    return rates


def _measured(rates: Rates) -> list[str]:
    return [state for state in STATES if (MESH, state) in rates]


def ratios(rates: Rates, place: str, state: str, other: str) -> list[float]:
    """How many times the Pods of another state, in each round."""
    pairs = zip(rates[place, state], rates[place, other], strict=True)
    return [mine / others for mine, others in pairs]


def report(rates: Rates, rounds: int, seconds: int) -> str:
    """The figures as Markdown."""
    lines = [
        f"Pods created a second by server-side dry run, {_CONNECTIONS} connections,"
        f" {os.cpu_count()} cores for everything; median of {rounds} rounds of {seconds} s each.",
        "",
        f"| state | {MESH} | {OUTSIDE} |",
        "| --- | ---: | ---: |",
        *(
            f"| {state} | {statistics.median(rates[MESH, state]):,.0f}"
            f" | {statistics.median(rates[OUTSIDE, state]):,.0f} |"
            for state in _measured(rates)
        ),
        "",
        "| ratio | where | median (range) |",
        "| --- | --- | ---: |",
    ]
    for place, state, other in RATIOS:
        if not {state, other} <= set(_measured(rates)):
            continue
        found = ratios(rates, place, state, other)
        middle = statistics.median(found)
        lines.append(
            f"| {state} / {other} | {place} |"
            f" {middle:.2f} ({min(found):.2f} to {max(found):.2f}) |"
        )
    return "\n".join(lines) + "\n"


def plot(rates: Rates, path: Path) -> None:
    """Draw Pods a second by state and place."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(NAMESPACES), figsize=(12, 4))
    for axis, place in zip(axes, NAMESPACES, strict=True):
        states = _measured(rates)
        middles = [statistics.median(rates[place, state]) for state in states]
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
    parser.add_argument("--name", default="admission", help="of the files that are written")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args(arguments)
    if not shutil.which("wrk"):
        sys.exit("wrk is missing: install Debian's package wrk")
    if not importlib.util.find_spec("matplotlib"):
        sys.exit("matplotlib is missing: install benchmarks/requirements.txt")
    for module in build.MODULES:
        build.prepare(module)
    states = options.states.split(",")
    if unknown := set(states) - set(STATES):
        parser.error(
            f"no such states: {', '.join(sorted(unknown))}; there are {', '.join(STATES)}"
        )
    rates = measure(
        states,
        options.rounds,
        options.seconds,
        lambda text: print(text, file=sys.stderr, flush=True),
    )
    text = report(rates, options.rounds, options.seconds)
    print(text)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / f"{options.name}.md").write_text(text)
    plot(rates, options.output / f"{options.name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
