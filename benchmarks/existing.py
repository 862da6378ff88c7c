"""Existing Pods, thousands of them: the actions beside kubectl at the same job.

A cluster is filled with Pods as istiod leaves them, on nodes that KWOK plays; beyond a thousand
with copies of these. Each job is a
process; in each round the jobs that are compared run one directly after the other. The API server
is on the same two cores, so it has its part in every figure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.copies import multiply
from benchmarks.population import Population, Shape, populate, wait_until_started
from benchmarks.servers import ROOT
from init_egress.kube.client import ApiClient
from init_egress.kube.kinds import POD, Resource
from init_egress.kube.objects import StoredPod
from init_egress.kube.paging import Collection
from init_egress.kube.parallel import map_concurrent
from init_egress.rule.istio import EXCLUDE_RANGES
from init_egress.rule.patch import escape
from tests.testbed import build
from tests.testbed.control_plane import ControlPlane, control_plane
from tests.testbed.kwok import Kwok, kwok
from tests.testbed.network import Network, enter_private_network

Tell = Callable[[str], None]

AUDIT, MUTATE = "audit", "mutate-existing-pods restart=none"
GET, COUNT, ANNOTATE = (
    "kubectl get pods -A -o json",
    "kubectl get pods -A -o json | jq",
    "kubectl annotate pods --all -A",
)
# Counts the Pods with an init container of their own and without the annotation: less than the
# rule asks, and no owner, no reason, nothing of where they are stuck.
_JQ = (
    '[.items[] | select(.metadata.annotations["sidecar.istio.io/status"])'
    f' | select(.metadata.annotations["{EXCLUDE_RANGES}"] | not)'
    ' | select(any(.spec.initContainers[]?; .name | startswith("istio") | not))]'
    " | group_by(.metadata.namespace) | map({(.[0].metadata.namespace): length}) | add"
)
_SHAPES = (Shape.CUT_OFF, Shape.EXCLUDED, Shape.PLAIN, Shape.OUTSIDE)
_NO_NODE = "no-node"
_WRITTEN = 1_000
"""Pods that the API server writes; the rest are copies."""


@dataclass(frozen=True)
class Run:
    """One run of a job.

    Attributes:
        seconds: by the clock.
        peak: MiB of memory, of its largest process.
        requests: to the API server, as that counts them.
    """

    seconds: float
    peak: float
    requests: int


Runs = dict[tuple[str, int], list[Run]]
"""By job and number of Pods, an element for each round."""


def measure(
    sizes: Sequence[int], most_written: int, rounds: int, parts: Sequence[str], tell: Tell
) -> Runs:
    """Measure the parts asked for: the audit at all sizes, writing up to one of them."""
    runs: Runs = {}
    network = enter_private_network()
    for size in sizes if AUDIT in parts else ():
        # kubectl holds the whole list in memory: a third of a MiB for each Pod.
        beside = [GET, *([COUNT] if shutil.which("jq") else [])]
        jobs = [AUDIT, *(beside if size <= most_written else [])]
        with _filled(network, size, tell) as plane:
            for number in range(rounds):
                first = number % len(jobs)
                for job in jobs[first:] + jobs[:first]:
                    _measure(plane, job, size, runs, tell)
    for size in (size for size in sizes if size <= most_written and "mutate" in parts):
        with control_plane(network) as plane:
            tell(f"writing {size} Pods, all of them cut off")
            populate(plane, Population(min(size, _WRITTEN)), [_NO_NODE], tell=tell)
            _multiply(plane, size)
            for number in range(rounds):
                jobs = [MUTATE, ANNOTATE]
                for job in jobs[number % 2 :] + jobs[: number % 2]:
                    _measure(plane, job, size, runs, tell)
                    _take_back(plane)
    return runs


@contextmanager
def _filled(network: Network, size: int, tell: Tell) -> Iterator[ControlPlane]:
    """A cluster full of Pods that have started, or have failed to."""
    population = Population(min(size, _WRITTEN), shapes=_SHAPES)
    with control_plane(network) as plane:
        with kwok(plane, nodes=10) as played:
            tell(f"writing {population.pods} Pods in {population.namespaces} namespaces")
            seconds = populate(plane, population, played.nodes, tell=tell)
            tell(f"written in {seconds:.0f} s; waiting for them to start")
            _wait(plane, played)
        _multiply(plane, size)
        tell(f"{size} Pods")
        yield plane


def _multiply(plane: ControlPlane, size: int) -> None:
    if size > _WRITTEN:
        multiply(plane, _bulk(plane), size // _WRITTEN, step=Population.replicas)


def _wait(plane: ControlPlane, played: Kwok) -> None:
    with plane.client() as client:
        wait_until_started(client, [played.process], deadline=1800)


def _measure(plane: ControlPlane, job: str, size: int, runs: Runs, tell: Tell) -> None:
    before = _requests(plane)
    begun = time.monotonic()
    child = subprocess.Popen(  # noqa: S603
        ["bash", "-o", "pipefail", "-c", _command(job)],  # noqa: S607
        cwd=ROOT,
        env={**os.environ, **plane.environment, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - begun
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{job} failed with {child.returncode}")
    found = Run(seconds, usage.ru_maxrss / 1024, _requests(plane) - before)
    runs.setdefault((job, size), []).append(found)
    tell(f"{size} Pods, {job}: {seconds:.1f} s, {found.peak:.0f} MiB, {found.requests} requests")


def _command(job: str) -> str:
    python = f"exec {sys.executable} -m benchmarks.existing_job"
    kubectl = Path(sys.executable).parent / "kubectl"
    return {
        AUDIT: f"{python} audit",
        MUTATE: f"{python} mutate",
        GET: f"exec {kubectl} get pods -A -o json",
        COUNT: f"{kubectl} get pods -A -o json | jq '{_JQ}'",
        ANNOTATE: f"exec {kubectl} annotate pods --all -A {EXCLUDE_RANGES}=0.0.0.0/0,::/0",
    }[job]


def _requests(plane: ControlPlane) -> int:
    """How many requests for Pods, Namespaces and owners the API server has answered."""
    asked = ('resource="pods"', 'resource="namespaces"', 'group="apps"')
    # What KWOK watches and writes is none of the job's.
    return sum(
        round(float(line.rpartition(" ")[2]))
        for line in plane.kubectl("get", "--raw", "/metrics").splitlines()
        if line.startswith("apiserver_request_total{")
        and any(part in line for part in asked)
        and 'verb="WATCH"' not in line
        and 'subresource="status"' not in line
    )


def _take_back(plane: ControlPlane) -> None:
    """Remove the annotation from all Pods, fast."""
    bulk = _bulk(plane)
    pods = Collection(Resource.of(POD), StoredPod)
    remove = [{"op": "remove", "path": f"/metadata/annotations/{escape(EXCLUDE_RANGES)}"}]

    def without(pod: StoredPod) -> None:
        bulk.patch(Resource.of(POD), pod.metadata.name, pod.metadata.namespace, remove)

    listed = (pod for page in bulk.pages(pods) for pod in page.items)
    for _ in map_concurrent(listed, without):
        pass


def _bulk(plane: ControlPlane) -> ApiClient:
    with plane.client() as client:
        return ApiClient.connect(client.config)


def report(runs: Runs, rounds: int) -> str:
    """The figures as Markdown."""
    lines = [
        f"Pods of 200 namespaces, {os.cpu_count()} cores for everything, the API server included;"
        f" medians of {rounds} rounds, with the smallest and the largest. The peak is that of the"
        " job's largest process; requests are those that the API server counts for Pods,"
        " Namespaces and owners.",
        "",
        "| Pods | job | seconds (range) | Pods/s | peak MiB | requests | seconds / ours (range) |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (job, size), found in sorted(runs.items(), key=lambda item: (item[0][1],)):
        ours = runs[(MUTATE if job in (MUTATE, ANNOTATE) else AUDIT, size)]
        seconds = [run.seconds for run in found]
        ratios = [theirs.seconds / mine.seconds for theirs, mine in zip(found, ours, strict=True)]
        ratio = "" if found is ours else f"{_middle(ratios, '.2f')}"
        lines.append(
            f"| {size:,} | {job.replace('|', chr(92) + '|')} | {_middle(seconds, '.1f')}"
            f" | {size / statistics.median(seconds):,.0f}"
            f" | {statistics.median(run.peak for run in found):,.0f}"
            f" | {statistics.median(run.requests for run in found):,.0f} | {ratio} |"
        )
    return "\n".join(lines) + "\n"


def _middle(figures: Sequence[float], form: str) -> str:
    return f"{statistics.median(figures):{form}} ({min(figures):{form}} to {max(figures):{form}})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table and write it; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.existing")
    parser.add_argument("--sizes", default="1000,10000,50000", help="numbers of Pods")
    parser.add_argument(
        "--written",
        type=int,
        default=10_000,
        help="the most Pods to be mutated, and to ask kubectl for",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", default="audit,mutate", help="what is measured")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args(arguments)
    for module in (build.ETCD, build.KUBERNETES, build.KWOK):
        build.prepare(module)
    runs = measure(
        [int(size) for size in options.sizes.split(",")],
        options.written,
        options.rounds,
        options.parts.split(","),
        lambda text: print(text, file=sys.stderr, flush=True),
    )
    text = report(runs, options.rounds)
    print(text)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "existing.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
