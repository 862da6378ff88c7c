"""The servers that are measured: the webhook, its server with an empty handler, and one in Go."""

from __future__ import annotations

import datetime
import http.client
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "benchmarks" / "reference"
RANGES = ("0.0.0.0/0", "::/0")
_START_SECONDS = 30


@dataclass(frozen=True)
class Server:
    """A server that runs, on a core of its own.

    Attributes:
        name: what it is called in the tables.
        pid: its process.
        port: where it listens, with TLS.
        path: where it takes reviews.
        metrics_port: where it serves metrics, without TLS; 0 if it does not.
    """

    name: str
    pid: int
    port: int
    path: str
    metrics_port: int = 0

    @property
    def url(self) -> str:
        """Where it takes reviews."""
        return f"https://127.0.0.1:{self.port}{self.path}"

    def cpu_seconds(self) -> float:
        """The processor time it has used so far."""
        return cpu_seconds(self.pid)

    def memory(self, field: str) -> float:
        """Its memory in MiB: VmRSS is what it uses now, VmHWM the most it has used."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
        raise ValueError(f"no {field}")

    def answer(self, body: bytes) -> bytes:
        """Its answer to one review.

        Raises:
            OSError: it doesn't answer.
        """
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=_START_SECONDS, context=context
        )
        connection.request("POST", self.path, body, {"content-type": "application/json"})
        response = connection.getresponse()
        found = response.read()
        connection.close()
        if response.status != 200:
            raise OSError(f"{self.name}: {response.status} {found!r}")
        return found


def cpu_seconds(pid: int) -> float:
    """The processor time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def build_reference() -> Path:
    """Build the reference in Go; the path of the program.

    Raises:
        subprocess.CalledProcessError: it doesn't build.
        FileNotFoundError: there is no go.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    program = cache / "istio-init-egress" / "benchmarks" / "reference"
    program.parent.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-o", program, "."]
    subprocess.run(command, cwd=REFERENCE, check=True)  # noqa: S603
    return program


@contextmanager
def webhook(folder: Path, ranges: Sequence[str] = RANGES) -> Iterator[Server]:
    """The webhook as it is deployed: with its log, which goes nowhere, and its metrics."""
    settings = folder / "settings.yaml"
    settings.write_text(yaml.safe_dump({"exclude-outbound-ip-ranges": ",".join(ranges)}))
    port, metrics_port = _free_port(), _free_port()
    command = [
        *(sys.executable, "-m", "init_egress.webhook", "--address", "127.0.0.1"),
        *("--settings", str(settings), "--certificate", str(folder)),
        *("--port", str(port), "--metrics-port", str(metrics_port)),
    ]
    with _running("webhook", command, port, "/mutate", metrics_port) as server:
        yield server


@contextmanager
def empty(folder: Path, answer: str = "constant") -> Iterator[Server]:
    """The same HTTP server with an empty handler; `answer` is one of `benchmarks.empty`."""
    port = _free_port()
    command = [
        *(sys.executable, "-m", "benchmarks.empty", "--answer", answer),
        *("--certificate", str(folder), "--port", str(port)),
    ]
    with _running("empty handler", command, port, "/") as server:
        yield server


@contextmanager
def reference(
    folder: Path, program: Path, ranges: Sequence[str] = RANGES, *, by_hand: bool = False
) -> Iterator[Server]:
    """The same decision in Go; the patch by comparing, as is the custom there, or by hand."""
    port = _free_port()
    command = [
        *(str(program), "-certificate", str(folder)),
        *("-port", str(port), "-ranges", ",".join(ranges)),
    ]
    if by_hand:
        command.append("-by-hand")
    name = "Go, patch by hand" if by_hand else "Go"
    with _running(name, command, port, "/") as server:
        yield server


@contextmanager
def _running(
    name: str, command: Sequence[str], port: int, path: str, metrics_port: int = 0
) -> Iterator[Server]:
    process = subprocess.Popen(  # noqa: S603
        [shutil.which("taskset") or "taskset", "-c", "0", *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "GOMAXPROCS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + _START_SECONDS
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{name} did not start: {' '.join(command)}")
            time.sleep(0.05)
        yield Server(name, process.pid, port, path, metrics_port)
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def write_certificate(folder: Path) -> None:
    """Write tls.crt and tls.key, of the kind that the charm makes."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "benchmark")])
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + 30 * day)
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
