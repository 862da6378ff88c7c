"""Fixtures for the tests on a real controller, and what a run says of itself.

A run without a controller tests nothing, and so it must not be taken for one that passed: its
tests are skipped with the reason, and the session fails.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import jubilant
import lightkube
import pytest
from lightkube.core.exceptions import ConfigError

from tests.integration import conditions, inputs, ledger, names
from tests.integration.bench import Bench, choose_shape, wait
from tests.integration.cluster import Cluster
from tests.integration.inputs import Deployment, InputError
from tests.integration.ledger import Ledger

_HERE = Path(__file__).parent
_LEDGER = pytest.StashKey[Ledger]()
_CONTROLLER_DEADLINE = 60
_INSTALL_DEADLINE = 15 * 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer to keep the model, to look at it."""
    parser.addoption(
        "--keep-models",
        action="store_true",
        default=False,
        help="keep the model of the integration tests when they end",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Open the ledger."""
    config.stash[_LEDGER] = Ledger()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the tests of this folder where there is no controller."""
    ours = [item for item in items if item.path.is_relative_to(_HERE)]
    if not ours or config.option.collectonly:
        return
    config.stash[_LEDGER].collected = len(ours)
    if problem := _controller_problem():
        for item in ours:
            item.add_marker(pytest.mark.skip(reason=f"no Juju controller: {problem}"))


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Count what ran; pytest asks this conftest about the tests of this folder only."""
    skipped = call.excinfo is not None and call.excinfo.errisinstance(pytest.skip.Exception)
    if call.when == "call" and not skipped:
        item.config.stash[_LEDGER].ran += 1


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a session in which none of the integration tests ran."""
    if exitstatus == pytest.ExitCode.OK and session.config.stash[_LEDGER].tested_nothing:
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what could not be asserted, and why."""
    book = config.stash[_LEDGER]
    if book.unasserted:
        terminalreporter.section(ledger.TITLE)
        terminalreporter.write_line("\n".join(book.lines()))
    if book.tested_nothing:
        terminalreporter.section("nothing was tested")


def _controller_problem() -> str:
    """Why there is no controller; empty if one answers."""
    try:
        done = subprocess.run(
            ["juju", "models", "--format", "json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_CONTROLLER_DEADLINE,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return "there is no juju client on the PATH"
    except subprocess.TimeoutExpired:
        return f"it did not answer within {_CONTROLLER_DEADLINE} s"
    return "" if done.returncode == 0 else " ".join(done.stderr.split())


@pytest.fixture(scope="session")
def book(pytestconfig: pytest.Config) -> Ledger:
    """Where the tests note what they could not assert."""
    return pytestconfig.stash[_LEDGER]


@pytest.fixture(scope="session")
def charm() -> Deployment:
    """The charm under test."""
    try:
        return inputs.charm(os.environ)
    except InputError as error:
        pytest.fail(str(error))


@pytest.fixture(scope="session")
def pilot() -> Deployment:
    """The other end of gateway-info."""
    try:
        return inputs.pilot(os.environ)
    except InputError as error:
        pytest.fail(str(error))


@pytest.fixture(scope="module")
def juju(
    request: pytest.FixtureRequest, charm: Deployment, pilot: Deployment
) -> Iterator[jubilant.Juju]:
    """A model of its own, gone at the end; asked for only when the inputs are complete."""
    keep = bool(request.config.getoption("--keep-models", default=False))
    # What heals by itself heals at the latest with the next update-status.
    with jubilant.temp_model(keep=keep, config={"update-status-hook-interval": "1m"}) as juju:
        yield juju
        if request.session.testsfailed:
            print(juju.cli("status"))
            print(juju.debug_log(limit=1000))


@pytest.fixture(scope="module")
def model(juju: jubilant.Juju) -> str:
    """The model's name, which is that of its namespace."""
    return juju.show_model().short_name


@pytest.fixture(scope="module")
def cluster(model: str) -> Iterator[Cluster]:
    """The cluster that the model is on."""
    try:
        client = lightkube.Client()
    except ConfigError as error:
        pytest.fail(f"no kubeconfig of the cluster that Juju uses ({error}); set KUBECONFIG")
    with client:
        cluster = Cluster(client)
        if not cluster.has_namespace(model):
            pytest.fail(f"the kubeconfig is of another cluster: it has no namespace {model}")
        yield cluster


@pytest.fixture(scope="module")
def deployed(juju: jubilant.Juju, charm: Deployment) -> None:
    """The charm deployed, without trust."""
    juju.deploy(charm.charm, names.APP, resources=charm.resources or None)


@pytest.fixture(scope="module")
def related(deployed: None, juju: jubilant.Juju, pilot: Deployment) -> None:
    """The other end deployed, and the charm related to it."""
    juju.deploy(
        pilot.charm, names.PILOT, channel=pilot.channel, config=pilot.config or None, trust=True
    )
    juju.integrate(names.OURS, names.THEIRS)
    # The published one installs Istio before it has time for anything else.
    wait(juju, lambda status: jubilant.all_agents_idle(status, names.PILOT), _INSTALL_DEADLINE)


@pytest.fixture(scope="module")
def trusted(related: None, mesh_namespace: str, juju: jubilant.Juju) -> None:
    """The charm trusted: it has all that it needs, and a namespace to verify itself in."""
    juju.trust(names.APP, scope="cluster")


@pytest.fixture(scope="module")
def mesh_namespace(cluster: Cluster, juju: jubilant.Juju) -> Iterator[str]:
    """A namespace that Istio injects into, if it is there."""
    with cluster.mesh_namespace() as name:
        wait(juju, lambda _: cluster.takes_pods(name))
        yield name


@pytest.fixture(scope="module")
def bench(
    trusted: None, juju: jubilant.Juju, cluster: Cluster, mesh_namespace: str, book: Ledger
) -> Bench:
    """The charm active, and a Pod in the mesh that needs it.

    It is set up once; if that fails, the tests that need it fail at once and not after a deadline.
    """
    status = wait(juju, conditions.active)
    if names.NOT_VERIFIED in conditions.leader(status).message:
        book.could_not_assert("that the charm verifies its remedy", "its status says it could not")
    # Only now: the other end may have brought Istio with it.
    shape = choose_shape(cluster, mesh_namespace)
    if shape.why:
        book.could_not_assert(
            "the remedy on a Pod that Istio itself injects",
            f"{shape.why}; a Pod that carries the marks of an injection stood in for it",
        )
    return Bench(juju, cluster, mesh_namespace, shape)
