"""What the functional tests share: the charm, run by ops.testing against the testbed."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pytest
from lightkube import Client
from ops import testing

from charm import IstioInitEgressCharm
from init_egress.backends.backend import BackendKind
from init_egress.kube.application import Application
from init_egress.kube.client import ApiClient
from tests.functional.cases import CASES
from tests.functional.installation import IMAGE, Installation, still_acts
from tests.functional.unit import APPLICATION, MODEL, Unit
from tests.testbed.control_plane import ControlPlane
from tests.testbed.process import wait_until
from tests.testbed.workloads import Workloads


@pytest.fixture
def unit(
    api_server: ControlPlane, client: Client, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Unit]:
    """The charm's leader, on the API server as its administrator.

    It leaves nothing behind, and nothing in force: a policy acts on for seconds after it is gone.
    """
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig()))
    unit = Unit(testing.Context(IstioInitEgressCharm, app_name=APPLICATION))
    yield unit
    cluster, owner = ApiClient.connect(client.config), Application(APPLICATION, MODEL)
    cluster.prune(owner)
    wait_until(
        lambda: not still_acts(api_server, cluster, unit.settings, owner),
        "what the charm applied is out of force",
    )


@pytest.fixture(scope="module")
def installation(cluster: ControlPlane, client: Client) -> Iterator[Installation]:
    """What the charm applies, on a cluster with a node that runs the webhook's workload."""
    installed = Installation(cluster, client)
    with contextlib.ExitStack() as stack:
        if cluster.network.address:
            stack.enter_context(Workloads(cluster, {IMAGE: ["python3"]}))
        yield installed
        installed.remove()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show which case passed under which backend."""
    runs = {
        (case.id, form): report.outcome
        for outcome in ("passed", "failed", "error", "skipped")
        for report in terminalreporter.stats.get(outcome, [])
        for case, form in itertools.product(CASES, BackendKind)
        if report.nodeid.endswith(
            f"test_cases.py::test_the_stored_pod_is_as_the_case_expects[{case.id}-{form.value}]"
        )
    }
    if not runs:
        return
    width = max(len(case.id) for case in CASES)
    terminalreporter.section("cases")
    terminalreporter.line("  ".join(["case".ljust(width), *(form.value for form in BackendKind)]))
    for case in sorted(CASES, key=lambda case: case.id):
        cells = [runs.get((case.id, form), "-").ljust(len(form.value)) for form in BackendKind]
        terminalreporter.line("  ".join([case.id.ljust(width), *cells]))
