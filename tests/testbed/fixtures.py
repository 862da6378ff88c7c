"""The testbed for pytest: each component starts when a test first asks for it.

| fixture              | gives                                                                  |
|----------------------|------------------------------------------------------------------------|
| `network`            | the private network that this process is in from now on                |
| `api_server`         | a ControlPlane: etcd and an API server                                 |
| `cluster`            | the same with the controller manager                                   |
| `client`             | a lightkube client of the administrator                                |
| `kubeconfig`         | the path of the administrator's kubeconfig                             |
| `namespace`          | makes namespaces: `namespace({"istio-injection": "enabled"})` -> name  |
| `meshes`             | `meshes.use(Mesh(cni=False))` runs an istiod that is configured so     |
| `istiod`             | an istiod with Istio's CNI plugin and without native sidecars          |
| `kyverno`            | both of Kyverno's controllers                                          |
| `promtool`           | the path of Prometheus' command-line tool                              |
| `kwok`               | nodes that play Pods: `spec.nodeName: kwok.node`, see stages/pod.yaml  |
| `workloads`          | a node: `workloads.entry_points["example.com/app:1"] = ["python3"]`    |

What the collected tests need is built before the first of them runs. Name the fixtures in the
test's arguments or in `usefixtures`, not in `request.getfixturevalue`: once the process is in its
private network, nothing can be downloaded.
"""

import itertools
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from lightkube import Client
from lightkube.resources.core_v1 import Namespace

from tests.testbed import build, istio
from tests.testbed import kwok as kwok_component
from tests.testbed import kyverno as kyverno_component
from tests.testbed.control_plane import ControlPlane, control_plane, controller_manager
from tests.testbed.istio import Istiod, Mesh, Meshes
from tests.testbed.kwok import Kwok
from tests.testbed.kyverno import Kyverno
from tests.testbed.network import Network, enter_private_network
from tests.testbed.workloads import Workloads

MakeNamespace = Callable[..., str]

_NEEDS = {
    "api_server": (build.ETCD, build.KUBERNETES),
    "meshes": (build.ISTIO,),
    "kyverno": (build.KYVERNO,),
    "promtool": (build.PROMTOOL,),
    "kwok": (build.KWOK,),
}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the collected tests need, while the outside can still be reached."""
    if session.config.option.collectonly:
        return
    named = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    modules = {module.name: module for name in _NEEDS if name in named for module in _NEEDS[name]}
    try:
        for module in modules.values():
            build.prepare(module)
    except build.BuildError:
        return  # the fixtures raise it again, for each test that needs them


@pytest.fixture(scope="session")
def network() -> Network:
    """The network of the testbed; this process is in it from now on."""
    # Ended by SIGTERM too, everything is taken down as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return enter_private_network()


@pytest.fixture(scope="session")
def api_server(network: Network) -> Iterator[ControlPlane]:
    """An API server alone: no controllers, no mesh."""
    with control_plane(network) as plane:
        yield plane


@pytest.fixture(scope="session")
def cluster(api_server: ControlPlane) -> Iterator[ControlPlane]:
    """An API server with the controller manager."""
    with controller_manager(api_server):
        yield api_server


@pytest.fixture(scope="session")
def client(api_server: ControlPlane) -> Iterator[Client]:
    """A client of the administrator."""
    with api_server.client() as client:
        yield client


@pytest.fixture(scope="session")
def kubeconfig(api_server: ControlPlane) -> Path:
    """The administrator's kubeconfig."""
    return api_server.kubeconfig()


@pytest.fixture(scope="session")
def meshes(cluster: ControlPlane) -> Iterator[Meshes]:
    """The istiod of the cluster, one at a time, configured as a test wants it."""
    meshes = istio.Meshes(cluster)
    yield meshes
    meshes.stop()


@pytest.fixture
def istiod(meshes: Meshes) -> Istiod:
    """An istiod with the defaults of Mesh; it stays for the tests that follow."""
    return meshes.use(Mesh())


@pytest.fixture(scope="session")
def kyverno(cluster: ControlPlane) -> Iterator[Kyverno]:
    """Kyverno, which stays until the session ends."""
    with kyverno_component.kyverno(cluster) as running:
        yield running


@pytest.fixture(scope="session")
def promtool() -> Path:
    """The path of Prometheus' command-line tool."""
    return build.product(build.PROMTOOL, "promtool")


@pytest.fixture(scope="session")
def kwok(api_server: ControlPlane) -> Iterator[Kwok]:
    """Nodes on which nothing runs, and Pods fare as they would with Istio's CNI plugin."""
    with kwok_component.kwok(api_server) as running:
        yield running


@pytest.fixture
def workloads(cluster: ControlPlane) -> Iterator[Workloads]:
    """A stand-in for a node, which runs Pods of the images whose entry points it is told."""
    if cluster.network.address is None:
        pytest.skip("no private network can be made here, and without one Pods have no addresses")
    with Workloads(cluster) as node:
        yield node


@pytest.fixture
def namespace(api_server: ControlPlane, client: Client) -> Iterator[MakeNamespace]:
    """Makes namespaces with names of their own, in which Pods can be created at once."""
    yield from namespaces(api_server, client)


def namespaces(plane: ControlPlane, client: Client) -> Iterator[MakeNamespace]:
    """The fixture `namespace` of any control plane."""
    made: list[str] = []

    def make(
        labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
    ) -> str:
        name = f"test-{next(_numbers)}"
        plane.create_namespace(name, labels, annotations)
        made.append(name)
        return name

    yield make
    for name in made:
        client.delete(Namespace, name)


_numbers = itertools.count(1)
