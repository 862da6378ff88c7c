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
    WITHOUT_MUTATING_ADMISSION_POLICY,
    ControlPlane,
    Manifest,
    control_plane,
    controller_manager,
)
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.istio import INJECTED, Istiod, Mesh, Meshes
from tests.testbed.kyverno import OLD_POLICIES, kyverno
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
    def test_an_api_server_stores_pods(self, client: Client, namespace: MakeNamespace) -> None:
        name = namespace({"team": "blue"})
        assert init_containers(client.create(pod(name))) == ["prepare"]
        found = client.list(Namespace, labels={"team": "blue"})
        assert [item.metadata and item.metadata.name for item in found] == [name]

    def test_a_stranger_may_do_nothing(self, api_server: ControlPlane) -> None:
        with api_server.client(STRANGER) as stranger, pytest.raises(ApiError) as refused:
            list(stranger.list(Namespace))
        assert refused.value.status.code == 403

    def test_kubectl_works_with_the_kubeconfig(self, kubeconfig: Path) -> None:
        kubectl = Path(sys.executable).with_name("kubectl")
        command = [
            kubectl,
            f"--kubeconfig={kubeconfig}",
            "get",
            "namespace",
            "default",
            "--output",
        ]
        printed = subprocess.run([*command, "name"], check=True, capture_output=True, text=True)
        assert printed.stdout == "namespace/default\n"

    @pytest.mark.usefixtures("api_server")  # has it built
    def test_an_older_cluster_can_be_had(self, network: Network) -> None:
        with control_plane(network, flags=WITHOUT_MUTATING_ADMISSION_POLICY) as plane:
            kinds = plane.kubectl("api-resources", "-o", "name").split()
        assert "mutatingwebhookconfigurations.admissionregistration.k8s.io" in kinds
        assert "mutatingadmissionpolicies.admissionregistration.k8s.io" not in kinds

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

    def test_it_is_forgotten_when_it_ends(
        self, api_server: ControlPlane, namespace: MakeNamespace
    ) -> None:
        name = namespace()
        with late_webhook(api_server, [ADD_FETCH], namespace=name):
            assert init_containers(api_server.try_pod(name)) == ["fetch"]
        assert init_containers(api_server.try_pod(name)) == []

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

    @pytest.mark.usefixtures("istiod")
    def test_called_again_after_istio_it_adds_nothing_twice(
        self, cluster: ControlPlane, client: Client, namespace: MakeNamespace
    ) -> None:
        name = namespace(IN_MESH)
        with late_webhook(
            cluster,
            [ADD_FETCH],
            name="early-webhook",
            namespace=name,
            reinvocation_policy="IfNeeded",
        ):
            stored = client.create(pod(name))
        assert init_containers(stored) == ["istio-validation", "prepare", "fetch"]


class TestIstio:
    @pytest.mark.usefixtures("istiod")
    def test_a_pod_in_the_mesh_is_injected(self, client: Client, namespace: MakeNamespace) -> None:
        stored = client.create(pod(namespace(IN_MESH)))
        assert init_containers(stored) == ["istio-validation", "prepare"]
        assert stored.spec
        assert "istio-proxy" in [container.name for container in stored.spec.containers]
        assert INJECTED in annotations(stored)

    @pytest.mark.usefixtures("istiod")
    def test_a_pod_outside_the_mesh_is_not_injected(
        self, client: Client, namespace: MakeNamespace
    ) -> None:
        assert init_containers(client.create(pod(namespace()))) == ["prepare"]

    def test_it_is_called_through_its_service(self, cluster: ControlPlane, istiod: Istiod) -> None:
        if cluster.network.address is None:
            pytest.skip("no private network can be made here, and none else has an address")
        kind = "mutatingwebhookconfiguration"
        services = cluster.kubectl(
            "get", kind, "-o", "jsonpath={.items..clientConfig.service.name}"
        )
        assert set(services.split()) == {"istiod"}

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


class TestKyverno:
    @pytest.mark.usefixtures("kyverno")
    def test_a_cluster_policy_changes_a_pod(
        self, cluster: ControlPlane, namespace: MakeNamespace
    ) -> None:
        assert in_force(cluster, CLUSTER_POLICY, namespace())

    @pytest.mark.usefixtures("kyverno")
    def test_a_mutating_policy_changes_a_pod(
        self, cluster: ControlPlane, namespace: MakeNamespace
    ) -> None:
        assert in_force(cluster, MUTATING_POLICY, namespace())

    @pytest.mark.usefixtures("cluster", "kyverno")  # has them built
    def test_the_kinds_that_it_will_drop_can_be_left_out(self, network: Network) -> None:
        with (
            control_plane(network) as plane,
            controller_manager(plane),
            kyverno(plane, without=OLD_POLICIES),
        ):
            assert "clusterpolicies" not in plane.kubectl("api-resources")
            assert in_force(plane, MUTATING_POLICY, "default")


def in_force(plane: ControlPlane, policy: Manifest, namespace: str) -> bool:
    """Whether a policy of Kyverno's comes to annotate Pods."""
    plane.apply([policy])
    try:
        return wait_until(
            lambda: annotations(plane.try_pod(namespace)).get("example.com/by") == policy["kind"],
            "the policy is in force",
        )
    finally:
        plane.delete([policy])


CLUSTER_POLICY: Manifest = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {
        "name": "annotate",
        "annotations": {"pod-policies.kyverno.io/autogen-controllers": "none"},
    },
    "spec": {
        "background": False,
        "rules": [
            {
                "name": "annotate",
                "match": {"any": [{"resources": {"kinds": ["Pod"], "operations": ["CREATE"]}}]},
                "mutate": {
                    "patchStrategicMerge": {
                        "metadata": {"annotations": {"+(example.com/by)": "ClusterPolicy"}}
                    }
                },
            }
        ],
    },
}
MUTATING_POLICY: Manifest = {
    "apiVersion": "policies.kyverno.io/v1",
    "kind": "MutatingPolicy",
    "metadata": {"name": "annotate"},
    "spec": {
        "autogen": {"podControllers": {"controllers": []}},
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods"],
                }
            ]
        },
        "mutations": [
            {
                "patchType": "JSONPatch",
                "jsonPatch": {
                    "expression": '[JSONPatch{op: "add", path: "/metadata/annotations", '
                    'value: {"example.com/by": "MutatingPolicy"}}]'
                },
            }
        ],
    },
}


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

    def test_what_does_not_listen_is_killed(self, tmp_path: Path) -> None:
        deaf = ["sh", "-c", "trap '' TERM; echo deaf; tail -f /dev/null"]
        server = Process("server", deaf, tmp_path)
        wait_until(lambda: "deaf" in server.log_tail(), "it is deaf", processes=[server])
        server.stop(deadline=0.1)
        with pytest.raises(ProcessDiedError):
            server.check()


class TestBuild:
    @pytest.fixture(autouse=True)
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A cache of the test's own, with nothing in it."""
        monkeypatch.setenv("ISTIO_INIT_EGRESS_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)

    def test_a_second_build_builds_nothing(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        tiny = module(tmp_path, "tiny")
        binary = build.product(tiny, "tiny")
        made = binary.stat()
        assert subprocess.run([binary], capture_output=True, check=True).stderr == b"tiny"
        assert "built tiny" in capsys.readouterr().err
        assert build.product(tiny, "tiny").stat() == made
        assert capsys.readouterr().err == ""

    def test_another_version_is_built_beside_the_former(self, tmp_path: Path) -> None:
        tiny = module(tmp_path, "tiny")
        former = build.product(tiny, "tiny")
        (tiny.path / "go.sum").write_text("\n")
        assert build.product(tiny, "tiny") != former
        assert former.exists()

    def test_a_build_that_fails_says_why(self, tmp_path: Path) -> None:
        broken = module(tmp_path, "broken")
        (broken.path / "main.go").write_text("package main\nfunc main() { nonsense() }\n")
        with pytest.raises(build.BuildError, match="undefined: nonsense"):
            build.build(broken)

    def test_without_go_it_says_what_to_install(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tiny = module(tmp_path, "tiny")
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(build.BuildError, match="install Go"):
            build.build(tiny)

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


@pytest.mark.usefixtures("api_server")  # has it built
class TestCommandLine:
    def test_two_testbeds_do_not_see_each_other(self) -> None:
        script = (
            "kubectl create namespace $0 >&2; echo made; read go; kubectl get namespaces -o name"
        )
        with up("sh", "-c", script, "one") as one, up("sh", "-c", script, "two") as two:
            assert (one.line(), two.line()) == ("made", "made")
            first, second = one.process.communicate("\n")[0], two.process.communicate("\n")[0]
        assert "namespace/one" in first
        assert "namespace/two" not in first
        assert "namespace/two" in second
        assert "namespace/one" not in second

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

    def test_a_signal_while_its_command_starts_leaves_nothing(self, tmp_path: Path) -> None:
        with up("sh", "-c", "kill -TERM $PPID; exec cat", TMPDIR=str(tmp_path)) as testbed:
            testbed.process.wait(60)
            assert testbed.relatives() == []
        assert list(tmp_path.iterdir()) == []

    def test_killed_it_leaves_no_process(self, tmp_path: Path) -> None:
        with up("cat", TMPDIR=str(tmp_path)) as testbed:
            wait_until(lambda: len(testbed.relatives()) > 3, "it is up")
            testbed.end(signal.SIGKILL)
            wait_until(lambda: testbed.relatives() == [], "its servers are gone")

    def test_it_ends_as_its_command_ends(self) -> None:
        with up("sh", "-c", "exit 7") as testbed:
            assert testbed.process.wait(60) == 7


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
