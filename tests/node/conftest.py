"""What the tests on a real node share: one cluster for all of them, apart from other suites'."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ops import testing

from charm import IstioInitEgressCharm
from init_egress.kube.application import Application
from init_egress.kube.client import ApiClient
from tests.functional.unit import APPLICATION, Unit
from tests.node import programs
from tests.node.site import MODEL, STORY, Site
from tests.node.webhook_image import PipError, image, install, read_rock
from tests.testbed import build
from tests.testbed import node as node_component
from tests.testbed.control_plane import control_plane, controller_manager
from tests.testbed.fixtures import MakeNamespace, namespaces
from tests.testbed.images import Image
from tests.testbed.istio import istiod
from tests.testbed.network import Network

# The strictest level of Pod Security.
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
_PACKAGES = pytest.StashKey[Path]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what a node needs, if this machine can have one, while the outside can be reached."""
    named = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if session.config.option.collectonly or "site" not in named or node_component.missing():
        return
    try:
        for module in (build.ETCD, build.KUBERNETES, build.ISTIO, build.NODE):
            build.prepare(module)
        if "webhook_image" in named:
            folder = tempfile.TemporaryDirectory(prefix="istio-init-egress-webhook-")
            session.config.add_cleanup(folder.cleanup)
            session.stash[_PACKAGES] = install(read_rock(), Path(folder.name))
    except (build.BuildError, PipError):
        return  # the fixtures raise it again, for each test that needs them


@pytest.fixture(scope="package")
def site(network: Network) -> Iterator[Site]:
    """A cluster with a mesh and a node. It is its own: its scheduler takes any Pod it finds."""
    if reason := node_component.missing():
        pytest.skip(reason)
    if network.address is None:
        pytest.skip("a node needs a private network, and none can be made here")
    with (
        control_plane(network, flags=node_component.API_SERVER_FLAGS) as plane,
        controller_manager(plane),
        node_component.node(plane) as node,
        istiod(plane, programs.MESH),
        plane.client() as client,
    ):
        node.load(*programs.images(node.base))
        yield Site(plane, client, node)


@pytest.fixture(scope="package")
def webhook_image(
    site: Site, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Image:
    """The image of the webhook's workload, which the node has."""
    folder, rock = tmp_path_factory.mktemp("webhook-image"), read_rock()
    packages = request.session.stash.get(_PACKAGES, None) or install(rock, folder)
    made = image(rock, site.node.base, packages, folder)
    site.node.load(made)
    return made


@pytest.fixture
def namespace(site: Site) -> Iterator[MakeNamespace]:
    """Makes namespaces with names of their own."""
    yield from namespaces(site.plane, site.client)


@pytest.fixture
def unit(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Unit]:
    """The charm's leader, as the cluster's administrator; it leaves nothing behind."""
    monkeypatch.setenv("KUBECONFIG", str(site.plane.kubeconfig()))
    site.plane.create_namespace(MODEL, RESTRICTED)
    unit = Unit(testing.Context(IstioInitEgressCharm, app_name=APPLICATION))
    yield unit.having(model=testing.Model(name=MODEL, type="kubernetes"))
    ApiClient.connect(site.client.config).prune(Application(APPLICATION, MODEL))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what became of the Pods that were stuck."""
    told = [
        value
        for report in terminalreporter.stats.get("passed", [])
        for name, value in getattr(report, "user_properties", [])
        if name == STORY
    ]
    if told:
        terminalreporter.section("node")
    for line in told:
        terminalreporter.line(line)
