"""What the stand-in for a node promises: Pods of a Deployment run, and the controllers see it."""

import base64
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.request import urlopen

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from lightkube import ApiError, Client
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Node, Pod
from lightkube.resources.discovery_v1 import EndpointSlice

from init_egress.kube.kinds import POD
from init_egress.rule.istio import EXCLUDE_RANGES, STATUS
from tests.testbed.certificates import write_certificate, write_key
from tests.testbed.container import expand
from tests.testbed.control_plane import ControlPlane, Manifest
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.process import wait_until
from tests.testbed.workloads import NODE, Workloads

IMAGE = "example.com/server:1"
WEBHOOK = "example.com/webhook:1"
LABELS = {"app": "server"}
# GET /ready is its readiness, /be-ready and /be-unready change that; other paths are files.
# On SIGTERM it says so and goes on, unless it is told to end with --polite.
SERVER = """
import http.server, os, signal, sys

ready = "--ready" in sys.argv

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global ready
        if self.path.startswith("/be-"):
            ready = self.path == "/be-ready"
        found = self.path.startswith(("/be-", "/ready", "/live")) or os.path.exists(self.path)
        self.send_response(200 if found and (ready or self.path != "/ready") else 503)
        self.end_headers()
        if os.path.isfile(self.path):
            self.wfile.write(open(self.path, "rb").read())

    def log_message(self, *arguments):
        pass

def told(*arguments):
    print("told to end", flush=True)
    if "--polite" in sys.argv:
        sys.exit()

signal.signal(signal.SIGTERM, told)
print("begins", os.getpid(), flush=True)
http.server.ThreadingHTTPServer((sys.argv[1], 8080), Handler).serve_forever()
"""
ENTRY_POINT = [sys.executable, "-c", SERVER]


@dataclass(frozen=True)
class Team:
    """A namespace with a Deployment and a Service, and what the cluster says of them."""

    plane: ControlPlane
    client: Client
    namespace: str

    def deploy(self, *arguments: str, replicas: int = 1, **pod: Any) -> None:
        """Make the Deployment, or change its template; fields of the Pod may be given."""
        container = {**server(*arguments), **pod.pop("container", {})}
        template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container], **pod}}
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        spec = {"replicas": replicas, "selector": {"matchLabels": LABELS}, "strategy": strategy}
        service = {"selector": LABELS, "ports": [{"port": 80, "targetPort": "http"}]}
        deployment = self.manifest("apps/v1", "Deployment", spec={**spec, "template": template})
        self.plane.apply([deployment, self.manifest("v1", "Service", spec=service)])

    def manifest(self, version: str, kind: str, **fields: Any) -> Manifest:
        """An object in the namespace, called `server`."""
        metadata = {"name": "server", "namespace": self.namespace}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}

    def pods(self) -> list[Manifest]:
        """Its Pods that are not to end."""
        found = [pod.to_dict() for pod in self.client.list(Pod, namespace=self.namespace)]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def running(self, number: int) -> list[Manifest]:
        """Its Pods once there are so many of them that run."""

        def found() -> list[Manifest]:
            pods = [pod for pod in self.pods() if pod["status"]["phase"] == "Running"]
            started = [p for p in pods if p["status"]["containerStatuses"][0]["started"]]
            return started if len(started) == number else []

        return wait_until(found, f"{number} Pods run", deadline=20)

    def available(self, number: int) -> bool:
        """Whether the Deployment is up to date and has so many Pods available."""
        deployment = self.client.get(Deployment, "server", namespace=self.namespace).to_dict()
        status = deployment["status"]
        counts = [status.get(key) for key in ("availableReplicas", "updatedReplicas", "replicas")]
        observed = status.get("observedGeneration") == deployment["metadata"]["generation"]
        return observed and counts == [number] * 3

    def wait_available(self, number: int) -> None:
        """Wait until the Deployment is complete."""
        wait_until(lambda: self.available(number), f"{number} Pods are available", deadline=25)

    def endpoints(self) -> set[str]:
        """The addresses of the Service's endpoints that are ready."""
        slices = self.client.list(EndpointSlice, namespace=self.namespace)
        found = [endpoint for item in slices for endpoint in item.to_dict().get("endpoints") or []]
        return {e["addresses"][0] for e in found if e["conditions"]["ready"]}


def server(*arguments: str) -> Manifest:
    """A container that runs SERVER."""
    return {
        "name": "server",
        "image": IMAGE,
        "args": ["$(POD_IP)", *arguments],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "ports": [{"name": "http", "containerPort": 8080}],
        "startupProbe": {"httpGet": {"path": "/live", "port": 8080}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "failureThreshold": 1},
    }


@pytest.fixture
def team(
    cluster: ControlPlane, client: Client, namespace: MakeNamespace, workloads: Workloads
) -> Team:
    workloads.entry_points[IMAGE] = ENTRY_POINT
    return Team(cluster, client, namespace())


def name_of(pod: Manifest) -> str:
    return pod["metadata"]["name"]


def address_of(pod: Manifest) -> str:
    return pod["status"]["podIP"]


def ask(pod: Manifest, path: str) -> str:
    """What a Pod answers."""
    with urlopen(f"http://{address_of(pod)}:8080{path}", timeout=5) as response:
        return response.read().decode()


def test_a_deployment_is_available_when_its_pods_answer(team: Team) -> None:
    team.deploy(replicas=2)
    first, second = team.running(2)
    assert team.endpoints() == set()
    ask(first, "/be-ready")
    wait_until(lambda: team.endpoints() == {address_of(first)}, "the first is an endpoint")
    assert not team.available(2)
    ask(second, "/be-ready")
    team.wait_available(2)
    both = {address_of(first), address_of(second)}
    wait_until(lambda: team.endpoints() == both, "both are endpoints")
    ask(first, "/be-unready")
    wait_until(lambda: team.endpoints() == {address_of(second)}, "the first is none any more")


def test_a_changed_template_rolls_the_pods_one_by_one(team: Team) -> None:
    team.deploy("--ready", "--polite", replicas=2)
    team.wait_available(2)
    wait_until(lambda: len(team.endpoints()) == 2, "both are endpoints")
    former = team.endpoints()
    team.deploy("--ready", "--polite", "--changed", replicas=2)
    seen: set[frozenset[str]] = set()

    def replaced() -> bool:
        now = team.endpoints()
        seen.add(frozenset(now))
        assert len(now) >= 2
        assert len(team.pods()) <= 3
        return team.available(2) and not now & former

    wait_until(replaced, "both are replaced", deadline=25)
    assert [addresses for addresses in seen if addresses & former and addresses - former]


def test_a_template_that_never_answers_leaves_the_former_in_service(team: Team) -> None:
    team.deploy("--ready", replicas=2)
    team.wait_available(2)
    former = {name_of(pod) for pod in team.pods()}
    team.deploy(replicas=2)
    team.running(3)
    assert len(team.endpoints()) == 2
    assert former < {name_of(pod) for pod in team.pods()}


def test_a_killed_process_comes_back(team: Team, workloads: Workloads) -> None:
    team.deploy("--ready")
    team.wait_available(1)
    [pod] = team.pods()
    for restarts in (1, 2):
        workloads.kill(name_of(pod))
        wait_until(lambda restarts=restarts: has_restarted(team, restarts), "it is ready again")
    assert workloads.logs(name_of(pod)).count("begins") == 3
    [pod] = team.pods()
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 137


def has_restarted(team: Team, restarts: int) -> bool:
    """Whether the Pod is ready after so many restarts."""
    [pod] = team.pods()
    [status] = pod["status"]["containerStatuses"]
    return status["ready"] and status["restartCount"] == restarts


def test_a_process_that_ends_by_itself_is_started_again(team: Team, workloads: Workloads) -> None:
    team.deploy(container={"command": ["sh", "-c", "echo fails; exit 3"]})
    [pod] = wait_until(team.pods, "there is a Pod")
    wait_until(lambda: workloads.logs(name_of(pod)).count("fails") == 3, "it is started again")
    assert not team.available(1)


class TestDeletion:
    def test_it_begins_with_the_hook_and_lasts_no_longer_than_the_grace(
        self, team: Team, workloads: Workloads, client: Client
    ) -> None:
        team.deploy(
            "--ready",
            terminationGracePeriodSeconds=4,
            container={
                "lifecycle": {
                    "preStop": {
                        "exec": {"command": ["sh", "-c", "sleep 1; echo $HOSTNAME >/state/stops"]}
                    }
                },
                "volumeMounts": [{"name": "state", "mountPath": "/state"}],
            },
            volumes=[{"name": "state", "emptyDir": {}}],
        )
        team.wait_available(1)
        [pod] = team.pods()
        client.delete(Pod, name_of(pod), namespace=team.namespace)
        began = monotonic()
        wait_until(lambda: ask(pod, "/state/stops"), "its hook has run")
        assert ask(pod, "/state/stops").strip() == name_of(pod)
        wait_until(lambda: "told to end" in workloads.logs(name_of(pod)), "it is told to end")
        assert monotonic() - began > 1
        wait_until(lambda: is_gone(client, pod), "it is gone", deadline=10)
        assert 3.5 < monotonic() - began < 7

    def test_it_stays_ready_while_its_hook_sleeps(self, team: Team, client: Client) -> None:
        hook = {"preStop": {"sleep": {"seconds": 2}}}
        team.deploy("--ready", "--polite", container={"lifecycle": hook})
        team.wait_available(1)
        [pod] = team.pods()
        began = monotonic()
        client.delete(Pod, name_of(pod), namespace=team.namespace)
        wait_until(lambda: serving(team, pod) == (True, True), "it serves while it ends")
        ask(pod, "/be-unready")
        wait_until(lambda: serving(team, pod) == (True, False), "it is seen unready")
        wait_until(lambda: is_gone(client, pod), "it is gone", deadline=10)
        assert 2 <= monotonic() - began < 5

    def test_forced_it_waits_for_nothing(self, team: Team, client: Client) -> None:
        team.deploy("--ready")
        team.wait_available(1)
        [pod] = team.pods()
        client.delete(Pod, name_of(pod), namespace=team.namespace, grace_period=0)
        wait_until(lambda: address_of(pod) not in addresses(), "its address is gone", deadline=3)


def serving(team: Team, pod: Manifest) -> tuple[bool, bool] | None:
    """Whether a Pod's endpoint is terminating, and whether it serves."""
    for item in team.client.list(EndpointSlice, namespace=team.namespace):
        for endpoint in item.to_dict().get("endpoints") or []:
            if endpoint["addresses"] == [address_of(pod)]:
                return endpoint["conditions"]["terminating"], endpoint["conditions"]["serving"]
    return None


def is_gone(client: Client, pod: Manifest) -> bool:
    try:
        client.get(Pod, name_of(pod), namespace=pod["metadata"]["namespace"])
    except ApiError as error:
        return error.status.code == 404
    return False


def addresses() -> str:
    """The addresses of the network."""
    command = ["ip", "-brief", "address", "show", "dev", "lo"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class TestFiles:
    def test_volumes_lie_where_they_are_mounted_and_are_brought_up_to_date(
        self, team: Team, client: Client
    ) -> None:
        secret = {"data": {"tls.crt": encoded("certificate"), "tls.key": encoded("key")}}
        settings = {"data": {"settings.yaml": "option: value\n"}}
        team.plane.apply([team.manifest("v1", "Secret", **secret)])
        team.plane.apply([team.manifest("v1", "ConfigMap", **settings)])
        team.deploy(
            "--ready",
            volumes=[
                {
                    "name": "certificate",
                    "secret": {
                        "secretName": "server",
                        "defaultMode": 0o440,
                        "items": [{"key": "tls.crt", "path": "chain/tls.crt"}],
                    },
                },
                {"name": "settings", "configMap": {"name": "server"}},
                {"name": "tmp", "emptyDir": {}},
            ],
            container={
                "volumeMounts": [
                    {"name": "certificate", "mountPath": "/etc/server/certificate"},
                    {"name": "settings", "mountPath": "/settings"},
                    {"name": "tmp", "mountPath": "/tmp"},
                ],
            },
        )
        [pod] = team.running(1)
        assert ask(pod, "/etc/server/certificate/chain/tls.crt") == "certificate"
        assert ask(pod, "/etc/hostname") == Path("/etc/hostname").read_text()
        with pytest.raises(OSError, match="503"):
            ask(pod, "/etc/server/certificate/tls.key")
        patch = {"data": {"settings.yaml": "option: other\n"}}
        client.patch(ConfigMap, "server", patch, namespace=team.namespace)
        wait_until(
            lambda: ask(pod, "/settings/settings.yaml") == "option: other\n", "it is changed"
        )

    def test_a_pod_waits_for_its_secret(self, team: Team) -> None:
        volume = {"name": "certificate", "secret": {"secretName": "server"}}
        team.deploy("--ready", volumes=[volume])
        wait_until(
            lambda: "not found" in team.pods()[0]["status"].get("message", ""), "it says why"
        )
        team.plane.apply([team.manifest("v1", "Secret")])
        team.wait_available(1)
        [pod] = team.pods()
        assert not pod["status"].get("message")


def encoded(text: str | bytes) -> str:
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--address=$(POD_IP)", "--address=10.250.1.1"),
        ("$(UNKNOWN) $POD_IP", "$(UNKNOWN) $POD_IP"),
        ("$$(POD_IP)", "$(POD_IP)"),
        ("100$", "100$"),
    ],
)
def test_variables_are_replaced_as_kubernetes_does(text: str, expected: str) -> None:
    assert expand(text, {"POD_IP": "10.250.1.1"}) == expected


def test_a_pod_of_an_unknown_image_is_left_alone(team: Team, workloads: Workloads) -> None:
    team.deploy("--ready", container={"image": "example.com/other:1"})
    [other] = wait_until(team.pods, "there is a Pod")
    team.deploy("--ready")
    team.wait_available(1)
    assert "nodeName" not in other["spec"]
    assert name_of(other) not in [name_of(pod.to_dict()) for pod in workloads.pods()]


def test_interrupted_it_leaves_nothing(
    cluster: ControlPlane, client: Client, namespace: MakeNamespace
) -> None:
    if cluster.network.address is None:
        pytest.skip("no private network can be made here")
    team = Team(cluster, client, namespace())
    before = addresses(), sorted(cluster.folder.iterdir())
    traces: list[Path] = []
    with pytest.raises(KeyboardInterrupt):
        interrupt(team, traces)
    assert len(traces) == 4
    assert not any(path.exists() for path in traces)
    assert (addresses(), sorted(cluster.folder.iterdir())) == before
    assert NODE not in [node.metadata and node.metadata.name for node in client.list(Node)]
    assert not [pod for pod in team.pods() if "nodeName" in pod["spec"]]


def interrupt(team: Team, traces: list[Path]) -> None:
    """Leave a node on which Pods run with Ctrl-C; tells where to look for their traces."""
    with Workloads(team.plane, {IMAGE: ENTRY_POINT}) as node:
        team.deploy("--ready", replicas=2)
        team.wait_available(2)
        for pod in team.pods():
            process = Path("/proc", node.logs(name_of(pod)).split()[-1])
            traces += process, (process / "root").readlink()
        assert all(path.exists() for path in traces)
        raise KeyboardInterrupt


def test_the_real_webhook_is_called_through_its_service(
    cluster: ControlPlane,
    client: Client,
    namespace: MakeNamespace,
    workloads: Workloads,
    tmp_path: Path,
) -> None:
    workloads.entry_points[WEBHOOK] = [sys.executable, "-m", "init_egress.webhook"]
    home, guests = namespace(), namespace()
    team = Team(cluster, client, home)
    authority, secret = certificate(team, f"server.{home}.svc", tmp_path)
    settings = team.manifest("v1", "ConfigMap", data={"settings.yaml": "{}"})
    configuration = webhook_configuration(home, guests, authority)
    cluster.apply([secret, settings])
    team.deploy(replicas=2, **webhook_pod())
    team.wait_available(2)
    wait_until(lambda: len(team.endpoints()) == 2, "both are endpoints")
    cluster.apply([configuration])
    try:
        pod = wait_until(lambda: changed(client, guests), "the webhook changes a Pod")
    finally:
        cluster.delete([configuration])
    assert pod["metadata"]["annotations"][EXCLUDE_RANGES] == "0.0.0.0/0,::/0"
    assert "Pod changed" in "".join(workloads.logs(name_of(pod)) for pod in team.pods())


def certificate(team: Team, host: str, folder: Path) -> tuple[bytes, Manifest]:
    """A certificate authority, and the Secret with a certificate that it has signed."""
    key = write_key(folder / "tls.key")
    authority = write_certificate(folder / "tls.crt", key, [host])
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    data = {"tls.crt": encoded(authority), "tls.key": encoded(private)}
    return authority, team.manifest("v1", "Secret", type="kubernetes.io/tls", data=data)


def webhook_pod() -> dict[str, Any]:
    """How the server is run; the interpreter may well lie below /tmp."""
    mounts = {"settings": "/etc/egress/settings", "certificate": "/etc/egress/tls", "tmp": "/tmp"}
    container = {
        "image": WEBHOOK,
        "args": [
            "--settings=/etc/egress/settings/settings.yaml",
            "--certificate=/etc/egress/tls",
            "--address=$(POD_IP)",
        ],
        "ports": [
            {"name": "http", "containerPort": 8443},
            {"name": "metrics", "containerPort": 8080},
        ],
        "startupProbe": {"httpGet": {"path": "/readyz", "port": "metrics"}},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http", "scheme": "HTTPS"}},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }
    volumes = [
        {"name": "settings", "configMap": {"name": "server"}},
        {"name": "certificate", "secret": {"secretName": "server", "defaultMode": 0o440}},
        {"name": "tmp", "emptyDir": {}},
    ]
    return {"container": container, "volumes": volumes}


def webhook_configuration(home: str, guests: str, authority: bytes) -> Manifest:
    """Has the Service called for each new Pod of a namespace."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    service = {"name": "server", "namespace": home, "path": "/mutate", "port": 80}
    webhook = {
        "name": "workloads.example.com",
        "clientConfig": {"service": service, "caBundle": encoded(authority)},
        "rules": [{**rule, "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": guests}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "workloads"},
        "webhooks": [webhook],
    }


def changed(client: Client, namespace: str) -> Any:
    """A new Pod as it would be stored, if the webhook has changed it."""
    names = ("istio-validation", "fetch"), ("app", "istio-proxy")
    init, main = ([{"name": n, "image": "example.com/app:1"} for n in group] for group in names)
    metadata = {"generateName": "guest-", "annotations": {STATUS: "{}"}}
    spec = {"initContainers": init, "containers": main}
    pod = POD.from_dict({"metadata": metadata, "spec": spec})
    found = client.create(pod, namespace=namespace)
    return found if EXCLUDE_RANGES in found["metadata"]["annotations"] else None
