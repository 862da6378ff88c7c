"""What the tests of the data plane share: the world of their Pods, and the charm's objects."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from lightkube import Client

from tests.dataplane import pods
from tests.dataplane.cni import BRIDGES, Chain, Rules, Stack
from tests.dataplane.machine import lacking
from tests.dataplane.namespaces import NetworkNamespace, run
from tests.dataplane.outside import outside
from tests.dataplane.pods import Sandbox
from tests.dataplane.promise import DESTINATIONS
from tests.dataplane.reference import Seen
from tests.functional.installation import Installation
from tests.testbed import build
from tests.testbed.control_plane import ControlPlane, Manifest
from tests.testbed.network import Network


@dataclass(frozen=True)
class Lab:
    """Pods of the testbed's API server, with networks."""

    client: Client
    chain: Chain
    outside: NetworkNamespace
    folder: Path

    @contextlib.contextmanager
    def sandbox(self, pod: Manifest, stack: Stack, rules: Rules) -> Iterator[Sandbox]:
        """The sandbox of a stored Pod."""
        with pods.sandbox(self.chain, self.folder, pod, stack, rules) as sandbox:
            yield sandbox


@pytest.fixture(scope="session", autouse=True)
def machine(network: Network) -> None:
    """Skip where the machine can't run these tests, before anything is started for them."""
    if reason := lacking(network):
        pytest.skip(reason)


@pytest.fixture(scope="module")
def lab(cluster: ControlPlane, client: Client) -> Iterator[Lab]:
    """The world of the Pods; nothing of it stays."""
    folder = cluster.folder / "dataplane"
    folder.mkdir()
    chain = Chain(cluster, build.product(build.ISTIO, "istio-cni"), folder)
    with outside(folder, DESTINATIONS) as world:
        yield Lab(client, chain, world, folder)
        # The plugin makes a bridge when it is first asked to.
        for bridge in {name for _, name in socket.if_nameindex()} & set(BRIDGES.values()):
            run("ip", "link", "delete", bridge)


@pytest.fixture(scope="module")
def installation(cluster: ControlPlane, client: Client) -> Iterator[Installation]:
    """What the charm applies."""
    installed = Installation(cluster, client)
    yield installed
    installed.remove()


@pytest.fixture(scope="module")
def seen() -> Seen:
    """What the tests of this run have seen."""
    return Seen()
