"""What the tests of the packed charm share: the charm, unpacked, and units of it."""

from __future__ import annotations

import base64
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from lightkube import Client

from init_egress.kube.application import Application
from init_egress.kube.client import ApiClient
from tests.packed import pack
from tests.packed.juju import APPLICATION, MODEL, Charm, MakeUnit, Unit, give_to_juju
from tests.testbed.control_plane import ADMIN, ControlPlane

_PACKED = pytest.StashKey["Path | pack.Unavailable | pack.PackError"]()
_INSTALLED = pytest.StashKey["tuple[Charm, float]"]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Pack the charm, if a collected test needs it, while the outside can still be reached."""
    if session.config.option.collectonly:
        return
    if any("packed" in getattr(item, "fixturenames", ()) for item in session.items):
        try:
            session.config.stash[_PACKED] = pack.pack()
        except (pack.Unavailable, pack.PackError) as error:
            session.config.stash[_PACKED] = error


@pytest.fixture(scope="session")
def packed(pytestconfig: pytest.Config) -> Path:
    """The charm as charmcraft packs it from the tree."""
    result = pytestconfig.stash[_PACKED]
    if isinstance(result, pack.Unavailable):
        pytest.skip(f"no charm can be packed here: {result}")
    if isinstance(result, pack.PackError):
        raise result
    return result


@pytest.fixture(scope="session")
def charm(packed: Path, pytestconfig: pytest.Config, api_server: ControlPlane) -> Iterator[Charm]:
    """The packed charm, unpacked and installed once."""
    with tempfile.TemporaryDirectory(prefix="istio-init-egress-packed-") as name:
        folder = _for_juju(Path(name))
        began = time.monotonic()
        charm = Charm(packed, folder)
        Unit(charm, folder, _kubeconfig(api_server, ADMIN, folder)).hook("install")
        pytestconfig.stash[_INSTALLED] = (charm, time.monotonic() - began)
        yield charm


@pytest.fixture
def make_unit(charm: Charm, api_server: ControlPlane, client: Client) -> Iterator[MakeUnit]:
    """Makes a unit of the charm, `user` of the API server; nothing of it stays there."""
    with tempfile.TemporaryDirectory(prefix="istio-init-egress-unit-") as name:
        folder = _for_juju(Path(name))

        def make(*, user: str = ADMIN, leader: bool = True) -> Unit:
            return Unit(charm, folder, _kubeconfig(api_server, user, folder), leader=leader)

        yield make
    ApiClient.connect(client.config).prune(Application(APPLICATION, MODEL))


@pytest.fixture
def unit(make_unit: MakeUnit) -> Unit:
    """The charm's leader, not installed yet, which may do all on the API server."""
    return make_unit()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Show the charm's size, how long it took to install it, and what its hooks took."""
    if _INSTALLED not in config.stash:
        return
    charm, seconds = config.stash[_INSTALLED]
    size = charm.packed.stat().st_size / 1e6
    terminalreporter.section("packed charm")
    terminalreporter.line(f"size {size:.1f} MB, unpacked and installed in {seconds:.1f} s")
    hooks = sorted({run.hook for run in charm.runs})
    width = max(map(len, hooks))
    terminalreporter.line(f"{'hook or action'.ljust(width)}  runs  exit codes  median s  statuses")
    for hook in hooks:
        runs = [run for run in charm.runs if run.hook == hook]
        codes = ",".join(sorted({str(run.code) for run in runs}))
        median = statistics.median(run.seconds for run in runs)
        statuses = ", ".join(sorted({run.status["status"] for run in runs}))
        cells = (hook.ljust(width), f"{len(runs):4}", f"{codes:>10}", f"{median:8.1f}", statuses)
        terminalreporter.line("  ".join(cells))


def _for_juju(folder: Path) -> Path:
    folder.chmod(0o755)
    return folder


def _kubeconfig(plane: ControlPlane, user: str, folder: Path) -> Path:
    """A kubeconfig that the charm's user can read, the API server's certificate in it."""
    config = yaml.safe_load(plane.kubeconfig(user).read_text())
    authority = base64.b64encode(plane.certificate.read_bytes()).decode()
    server = config["clusters"][0]["cluster"]["server"]
    config["clusters"][0]["cluster"] = {
        "server": server,
        "certificate-authority-data": authority,
    }
    path = folder / f"{user}.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    give_to_juju(path)
    return path
