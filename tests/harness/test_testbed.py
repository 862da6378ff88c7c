"""What the testbed promises to the tests that stand on it."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from lightkube import ApiError, Client
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace, Pod

from tests.testbed import build
from tests.testbed.control_plane import (
    STRANGER,
    ControlPlane,
    control_plane,
)
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.istio import Mesh, Meshes
from tests.testbed.late_webhook import Operation, late_webhook
from tests.testbed.network import INSIDE, Network, free_port
from tests.testbed.process import Process, ProcessDiedError, wait_until

ROOT = Path(__file__).parents[2]
IN_MESH = {"istio-injection": "enabled"}
ADD_FETCH: Operation = {
    "op": "add",
    "path": "/spec/initContainers/-",
    "value": {"name": "fetch", "image": "example.com/fetch:1"},
}
ADD_NOTE: Operation = {
    "op": "add",
    "path": "/metadata/annotations/example.com~1fetched",
    "value": "yes",
}


def pod(namespace: str) -> Pod:
    """A Pod with an init container."""
    return Pod(
        metadata=ObjectMeta(name="app", namespace=namespace),
        spec=PodSpec(
            initContainers=[Container(name="prepare", image="example.com/prepare:1")],
            containers=[Container(name="app", image="example.com/app:1")],
        ),
    )


def init_containers(stored: Pod) -> list[str]:
    """The names of a Pod's init containers, in order."""
    return [container.name for container in (stored.spec and stored.spec.initContainers) or []]


def annotations(stored: Pod) -> dict[str, str]:
    """The annotations of a Pod."""
    return (stored.metadata and stored.metadata.annotations) or {}


class TestNetwork:
    def test_no_port_is_given_to_two_servers_that_do_not_listen_yet(self) -> None:
        given = [free_port() for _ in range(1000)]
        assert len(set(given)) == len(given)


class TestControlPlane:
    def test_a_stranger_may_do_nothing(self, api_server: ControlPlane) -> None:
        with api_server.client(STRANGER) as stranger, pytest.raises(ApiError) as refused:
            list(stranger.list(Namespace))
        assert refused.value.status.code == 403

    @pytest.mark.nightly
    @pytest.mark.usefixtures("api_server")  # has it built
    def test_without_a_private_network_webhooks_are_called_by_url(self) -> None:
        with (
            control_plane(Network(address=None)) as plane,
            late_webhook(plane, [ADD_FETCH]),
        ):
            assert init_containers(plane.try_pod("default")) == ["fetch"]


class TestLateWebhook:
    @pytest.mark.parametrize("policy", ["Never", "IfNeeded"])
    def test_it_adds_a_container_and_an_annotation_once(
        self, api_server: ControlPlane, client: Client, namespace: MakeNamespace, policy: str
    ) -> None:
        name = namespace()
        with (
            late_webhook(
                api_server, [ADD_FETCH, ADD_NOTE], namespace=name, reinvocation_policy=policy
            ),
            late_webhook(api_server, [ADD_FETCH], name="later-webhook", namespace=name),
        ):
            stored = client.create(pod(name))
        assert init_containers(stored) == ["prepare", "fetch"]
        assert annotations(stored) == {"example.com/fetched": "yes"}

    @pytest.mark.parametrize(
        ("name", "expected"),
        [("early-webhook", ["fetch", "istio-init"]), ("late-webhook", ["istio-init", "fetch"])],
    )
    def test_its_name_puts_it_before_or_after_istio(
        self,
        cluster: ControlPlane,
        meshes: Meshes,
        namespace: MakeNamespace,
        name: str,
        expected: list[str],
    ) -> None:
        meshes.use(Mesh(cni=False))
        where = namespace(IN_MESH)
        with late_webhook(cluster, [ADD_FETCH], name=name, namespace=where):
            assert init_containers(cluster.try_pod(where)) == expected


class TestIstio:
    @pytest.mark.parametrize(
        ("mesh", "expected"),
        [
            (Mesh(cni=False), ["prepare", "istio-init"]),
            (Mesh(native_sidecars=True), ["istio-validation", "istio-proxy", "prepare"]),
            (
                Mesh(values={"values.global.proxy.excludeIPRanges": "192.0.2.0/24"}),
                ["istio-validation", "prepare"],
            ),
        ],
    )
    def test_another_mesh_replaces_the_former(
        self,
        meshes: Meshes,
        client: Client,
        namespace: MakeNamespace,
        mesh: Mesh,
        expected: list[str],
    ) -> None:
        meshes.use(mesh)
        stored = client.create(pod(namespace(IN_MESH)))
        assert init_containers(stored) == expected
        excluded = annotations(stored).get("traffic.sidecar.istio.io/excludeOutboundIPRanges")
        assert excluded == mesh.values.get("values.global.proxy.excludeIPRanges")

    def test_stopped_it_leaves_pods_alone(
        self, cluster: ControlPlane, meshes: Meshes, namespace: MakeNamespace
    ) -> None:
        meshes.use(Mesh())
        meshes.stop()
        assert init_containers(cluster.try_pod(namespace(IN_MESH))) == []


class TestProcess:
    def test_a_wait_ends_with_the_log_when_the_process_dies(self, tmp_path: Path) -> None:
        command = ["sh", "-c", "echo cannot bind; exit 3"]
        with (
            Process("server", command, tmp_path) as server,
            pytest.raises(ProcessDiedError, match=r"server ended with 3(.|\n)*cannot bind"),
        ):
            wait_until(lambda: False, "the server answers", processes=[server])

    def test_a_wait_ends_with_what_was_awaited(self) -> None:
        with pytest.raises(TimeoutError, match="the moon rises: not within 0 s"):
            wait_until(lambda: False, "the moon rises", deadline=0)


class TestBuild:
    @pytest.fixture(autouse=True)
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A cache of the test's own, with nothing in it."""
        monkeypatch.setenv("ISTIO_INIT_EGRESS_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)

    def test_another_version_is_built_beside_the_former(self, tmp_path: Path) -> None:
        tiny = module(tmp_path, "tiny")
        former = build.product(tiny, "tiny")
        (tiny.path / "go.sum").write_text("\n")
        assert build.product(tiny, "tiny") != former
        assert former.exists()

    @pytest.mark.nightly
    def test_an_interrupted_build_keeps_what_is_whole(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "bin").mkdir()
        go = tmp_path / "bin" / "go"
        go.write_text(GO_THAT_HANGS)
        go.chmod(0o755)
        monkeypatch.setenv("PATH", str(go.parent), prepend=os.pathsep)
        monkeypatch.setenv("GO_RECORD", str(tmp_path))
        pair = module(tmp_path, "pair", "first", "second")
        code = (
            "import signal; from pathlib import Path; from tests.testbed.build import *\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            f"build(Module('pair', {dict(pair.binaries)}, folder=Path({str(tmp_path)!r})))"
        )
        with command_line("-c", code) as builder:
            wait_until((tmp_path / "hangs").exists, "go hangs in its second build")
            builder.end(signal.SIGINT)
            assert builder.relatives() == []
        built = list((tmp_path / "cache").rglob("first"))
        assert len(built) == 1
        assert list((tmp_path / "cache").rglob("second")) == []
        (tmp_path / "go-on").touch()
        folder = build.build(pair)
        assert folder == built[0].parent
        assert (folder / "second").read_text() == "half and half"
        assert (tmp_path / "builds").read_text().split() == ["first", "second", "second"]


# Stands in for go: writes each binary in two halves, with a pause of any length in the second one.
GO_THAT_HANGS = """#!/bin/sh
[ "$1" = build ] || exec echo a version
for last; do [ "$previous" = -o ] && output=$last; previous=$last; done
echo "$last" >> "$GO_RECORD/builds"
printf half > "$output"
if [ "$last" = second ] && [ ! -e "$GO_RECORD/go-on" ]; then
    touch "$GO_RECORD/hangs"
    exec tail -f /dev/null
fi
printf ' and half' >> "$output"
"""


def module(folder: Path, name: str, *binaries: str) -> build.Module:
    """A Go module that needs no other, and says its name."""
    made = build.Module(
        name, {binary: binary for binary in binaries} or {name: "."}, folder=folder
    )
    made.path.mkdir()
    (made.path / "go.mod").write_text(f"module example.com/{name}\n\ngo 1.21\n")
    (made.path / "main.go").write_text(
        f"package main\nfunc main() {{ print({name!r}) }}\n".replace("'", '"')
    )
    return made


@pytest.mark.nightly
@pytest.mark.usefixtures("api_server")  # has it built
class TestCommandLine:
    @pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
    def test_ended_by_a_signal_it_leaves_nothing(
        self, tmp_path: Path, ending: signal.Signals
    ) -> None:
        with up("sh", "-c", "echo up; exec cat", TMPDIR=str(tmp_path)) as testbed:
            assert testbed.line() == "up"
            assert len(testbed.relatives()) > 3
            assert list(tmp_path.iterdir())
            testbed.end(ending)
            assert testbed.relatives() == []
        assert list(tmp_path.iterdir()) == []

    def test_killed_it_leaves_no_process(self, tmp_path: Path) -> None:
        with up("cat", TMPDIR=str(tmp_path)) as testbed:
            wait_until(lambda: len(testbed.relatives()) > 3, "it is up")
            testbed.end(signal.SIGKILL)
            wait_until(lambda: testbed.relatives() == [], "its servers are gone")


@dataclass(frozen=True)
class CommandLine:
    """A Python that runs the testbed, and all that runs below it."""

    process: subprocess.Popen[str]
    mark: str

    def line(self) -> str:
        """The next line that is printed."""
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def end(self, ending: signal.Signals) -> None:
        """Send it a signal, and wait until it has ended."""
        self.process.send_signal(ending)
        self.process.wait(60)

    def relatives(self) -> list[int]:
        """The processes that have inherited its environment and still run."""
        return [int(path.name) for path in Path("/proc").glob("[0-9]*") if self._has_marked(path)]

    def _has_marked(self, process: Path) -> bool:
        try:
            return self.mark.encode() in (process / "environ").read_bytes()
        except OSError:  # it has ended, or is somebody else's
            return False


@contextmanager
def command_line(*arguments: str, **environment: str) -> Iterator[CommandLine]:
    """Run Python with these arguments; it is ended in the end."""
    mark = f"TESTBED_MARK={uuid.uuid4()}"
    inherited = {k: v for k, v in os.environ.items() if k != INSIDE}
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**inherited, **environment, **dict([mark.split("=")])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield CommandLine(process, mark)
        finally:
            process.terminate()


def up(*command: str, **environment: str) -> AbstractContextManager[CommandLine]:
    """Run a command beside a cluster of its own."""
    return command_line("-m", "tests.testbed", "up", "--", *command, **environment)
