"""The admission webhook as it is deployed: its own process, asked over HTTPS on loopback."""

from __future__ import annotations

import base64
import datetime
import http.client
import json
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import jsonpatch
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks import floods
from benchmarks.floods import FLOODS, Flood, flooding
from init_egress.rule import istio
from tests.receiver import Receiver, receiving

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 20.0
GRACE = 3.0
MUTATE = "/mutate"


# --- A server ------------------------------------------------------------------------------------


def certificate(folder: Path, *, days: float = 30, form: str = "PKCS8") -> None:
    """Write tls.crt and tls.key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=40))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(exist_ok=True)
    (folder / "tls.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            getattr(serialization.PrivateFormat, form),
            serialization.NoEncryption(),
        )
    )


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def wait(for_what: str, ask: Callable[[], T | None]) -> T:
    """Ask until there is an answer, for no longer than DEADLINE."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        answer = ask()
        if answer:
            return answer
        select.select([], [], [], 0.02)
    raise AssertionError(f"waited {DEADLINE:g} s in vain for {for_what}")


@dataclass
class Server:
    """A running webhook."""

    process: subprocess.Popen[bytes]
    folder: Path
    port: int
    plain_port: int

    @property
    def log(self) -> list[dict[str, Any]]:
        """Every line is JSON, or this fails."""
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]

    def connect(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.folder / "cert" / "tls.crt"))
        return http.client.HTTPSConnection(
            "localhost", self.port, timeout=DEADLINE, context=context
        )

    def raw(self) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=str(self.folder / "cert" / "tls.crt"))
        plain = socket.create_connection(("localhost", self.port), DEADLINE)
        return context.wrap_socket(plain, server_hostname="localhost")

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        with closing(self.connect()) as connection:
            return ask(connection, method, path, body)

    def plain(self, path: str, method: str = "GET") -> tuple[int, str]:
        connection = http.client.HTTPConnection("localhost", self.plain_port, timeout=DEADLINE)
        with closing(connection):
            return ask(connection, method, path)

    def ready(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"it ended: {(self.folder / 'log').read_text()}")
        try:
            return self.plain("/readyz")[0] == 200
        except OSError:
            return False

    def sample(self, name: str) -> float:
        """The value of one series of the metrics."""
        lines = self.plain("/metrics")[1].splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any = None
) -> tuple[int, str]:
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, data)
    response = connection.getresponse()
    return response.status, response.read().decode()


def launch(
    folder: Path,
    settings: str = "",
    grace: float = GRACE,
    further: tuple[str, ...] = (),
    program: tuple[str, ...] = ("-m", "init_egress.webhook"),
) -> Server:
    if not (folder / "cert").exists():
        certificate(folder / "cert")
    (folder / "settings.yaml").write_text(settings)
    port, plain_port = free_ports()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, *program),
                *("--settings", folder / "settings.yaml", "--certificate", folder / "cert"),
                *("--port", str(port), "--metrics-port", str(plain_port)),
                *("--address", "127.0.0.1", "--grace", str(grace), *further),
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    return Server(process, folder, port, plain_port)


@contextmanager
def running(
    folder: Path,
    settings: str = "",
    grace: float = GRACE,
    further: tuple[str, ...] = (),
    program: tuple[str, ...] = ("-m", "init_egress.webhook"),
) -> Iterator[Server]:
    server = launch(folder, settings, grace, further, program)
    try:
        wait("readiness", server.ready)
        yield server
    finally:
        server.process.kill()
        server.process.wait(DEADLINE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = "exclude-outbound-ip-ranges: 10.0.0.0/8\nprobe: mine\nrevision: seven\n"
    with running(tmp_path_factory.mktemp("webhook"), settings) as started:
        yield started


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    """A server that a test may end."""
    with running(tmp_path) as started:
        yield started


# --- What it is asked ----------------------------------------------------------------------------


def pod(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", **metadata, "annotations": {istio.STATUS: "{}"}},
        "spec": {
            "initContainers": [{"name": "fetch", "image": "x"}],
            "containers": [{"name": "istio-proxy", "image": "x", "args": ["proxy", "sidecar"]}],
        },
    }


def review(obj: Any, **request: Any) -> dict[str, Any]:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "a-uid",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": "CREATE",
            "namespace": "team",
            "object": obj,
            **request,
        },
    }


def response(answer: tuple[int, str]) -> dict[str, Any]:
    status, text = answer
    assert status == 200, text
    found = json.loads(text)
    assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert found["response"]["allowed"] is True
    return found["response"]


# --- Answers -------------------------------------------------------------------------------------


def test_a_pod_that_needs_it_is_remedied(server: Server) -> None:
    found = response(server.ask("POST", MUTATE + "?timeout=5s", review(pod())))
    assert found["uid"] == "a-uid"
    assert found["patchType"] == "JSONPatch"
    patched = jsonpatch.apply_patch(pod(), json.loads(base64.b64decode(found["patch"])))
    assert patched["metadata"]["annotations"][istio.EXCLUDE_RANGES] == "10.0.0.0/8"
    assert "fetch" in found["warnings"][0]
    assert list(found["auditAnnotations"]) == ["needs-remedy"]

    again = response(server.ask("POST", MUTATE, review(patched)))
    assert list(again["auditAnnotations"]) == ["already-excluded"]
    assert not again.keys() & {"patch", "patchType", "warnings"}


def test_a_change_is_one_line_and_a_dry_run_is_none(server: Server) -> None:
    response(server.ask("POST", MUTATE, review(pod(), uid="dry", dryRun=True)))
    response(server.ask("POST", MUTATE, review(pod(), uid="wet")))
    lines = [line for line in server.log if line["message"] == "Pod changed"]
    assert "dry" not in [line["uid"] for line in lines]
    (line,) = [line for line in lines if line["uid"] == "wet"]
    assert line["level"] == "info"
    assert (line["namespace"], line["verdict"]) == ("team", "needs-remedy")
    assert line["patch"][0]["op"] == "add"


def test_a_probe_for_another_is_left_alone(server: Server) -> None:
    others = response(
        server.ask("POST", MUTATE, review(pod(labels={"istio-init-egress/probe": "x"})))
    )
    assert "patch" not in others
    mine = response(
        server.ask("POST", MUTATE, review(pod(labels={"istio-init-egress/probe": "mine"})))
    )
    assert "patch" in mine


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"a": ' + b"[" * 200_000, "nested too deeply"),
        (b"[]", "not an AdmissionReview"),
        (b'{"kind": "Pod", "apiVersion": "v1"}', "'Pod'"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}', "v1beta1"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}', "uid"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": 1}', "int"),
    ],
)
def test_what_is_no_review_gets_400_and_a_reason(server: Server, body: bytes, reason: str) -> None:
    with closing(server.connect()) as connection:
        status, text = ask(connection, "POST", MUTATE, body)
        assert (status, reason in text) == (400, True), text
        # The same connection goes on.
        assert ask(connection, "POST", MUTATE, review(pod()))[0] == 200


def test_one_connection_serves_many_requests(server: Server) -> None:
    with closing(server.connect()) as connection:
        connection.connect()
        sock = connection.sock
        for number in range(50):
            found = response(ask(connection, "POST", MUTATE, review(pod(), uid=str(number))))
            assert found["uid"] == str(number)
        assert connection.sock is sock


def test_a_big_review_is_answered(server: Server) -> None:
    annotations = {istio.STATUS: "{}", "big": "x" * (3 * 1024 * 1024)}
    big = pod()
    big["metadata"]["annotations"] = annotations
    found = response(server.ask("POST", MUTATE, review(big, oldObject=big)))
    assert list(found["auditAnnotations"]) == ["needs-remedy"]


def test_a_body_over_the_limit_gets_413_without_being_read(server: Server) -> None:
    with closing(server.raw()) as connection:
        connection.sendall(b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-length: 8388609\r\n\r\n{")
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer.lower()
    assert server.ready()


def test_an_unmeasured_body_over_the_limit_gets_413(server: Server) -> None:
    with closing(server.raw()) as connection:
        connection.sendall(
            b"POST /mutate HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        try:
            for _ in range(9):
                connection.sendall(chunk)
        except OSError:
            pass  # it may have hung up by now
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert server.ready()


def test_a_chunked_body_is_read(server: Server) -> None:
    body = json.dumps(review(pod())).encode()
    with closing(server.connect()) as connection:
        connection.request("POST", MUTATE, iter([body[:100], body[100:]]), encode_chunked=True)
        answer = connection.getresponse()
        response((answer.status, answer.read().decode()))


def test_a_client_that_goes_away_or_is_slow_holds_up_nobody(server: Server) -> None:
    body = json.dumps(review(pod(), uid="slow")).encode()
    head = b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    with closing(server.raw()) as gone, closing(server.raw()) as slow:
        gone.sendall(head + body[:50])
        gone.close()
        slow.sendall(head + body[:50])
        for _ in range(3):
            response(server.ask("POST", MUTATE, review(pod())))
        slow.sendall(body[50:])
        answer = slow.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"uid":"slow"' in answer
    assert "request failed" not in [line["message"] for line in server.log]


def test_no_http_2(server: Server) -> None:
    context = ssl.create_default_context(cafile=str(server.folder / "cert" / "tls.crt"))
    context.set_alpn_protocols(["h2", "http/1.1"])
    plain = socket.create_connection(("localhost", server.port), DEADLINE)
    with context.wrap_socket(plain, server_hostname="localhost") as connection:
        assert connection.selected_alpn_protocol() != "h2"


@pytest.mark.parametrize(
    ("version", "served"), [(ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_1, False)]
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_1_2_and_later(server: Server, version: ssl.TLSVersion, served: bool) -> None:
    context = ssl.create_default_context(cafile=str(server.folder / "cert" / "tls.crt"))
    context.minimum_version = context.maximum_version = version
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    plain = socket.create_connection(("localhost", server.port), DEADLINE)
    with closing(plain):
        try:
            with context.wrap_socket(plain, server_hostname="localhost"):
                assert served
        except OSError:
            assert not served


# --- Paths and metrics ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        *[("GET", "/livez", 200), ("GET", "/readyz", 200), ("HEAD", "/livez", 200)],
        *[("GET", "/", 404), ("POST", "/", 404), ("GET", "/metrics", 404)],
        *[("GET", "/mutate", 405), ("PUT", "/mutate", 405), ("POST", "/readyz", 405)],
    ],
)
def test_paths(server: Server, method: str, path: str, status: int) -> None:
    assert server.ask(method, path)[0] == status


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        *[("GET", "/livez", 200), ("GET", "/readyz", 200), ("GET", "/metrics?x=y", 200)],
        ("GET", "/metrics/service", 200),
        *[("GET", "/", 404), ("GET", "/mutate", 404), ("HEAD", "/livez", 200)],
        *[("POST", "/mutate", 405), ("POST", "/metrics", 405)],
    ],
)
def test_plain_paths(server: Server, method: str, path: str, status: int) -> None:
    assert server.plain(path, method)[0] == status


def test_metrics(server: Server) -> None:
    def changed(dry_run: str) -> float:
        labels = f'{{dry_run="{dry_run}",verdict="needs-remedy"}}'
        return server.sample(f"istio_init_egress_reviews_total{labels}")

    count = "istio_init_egress_review_duration_seconds_count"
    refused = 'istio_init_egress_refused_requests_total{code="400"}'
    before = changed("false"), changed("true"), server.sample(count), server.sample(refused)
    server.ask("POST", MUTATE, review(pod()))
    server.ask("POST", MUTATE, review(pod(), dryRun=True))
    server.ask("POST", MUTATE, b"{")
    after = changed("false"), changed("true"), server.sample(count), server.sample(refused)
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 2, 1]

    buckets = server.sample('istio_init_egress_review_duration_seconds_bucket{le="+Inf"}')
    assert buckets == server.sample(count)
    expiry = server.sample("istio_init_egress_certificate_expiry_timestamp_seconds")
    assert 29 < (expiry - time.time()) / 86400 < 31
    text = server.plain("/metrics")[1]
    assert 'istio_init_egress_settings_info{revision="seven"} 1.0' in text
    assert "istio_init_egress_build_info{" in text
    assert "process_resident_memory_bytes" in text


def test_a_scrape_that_any_replica_may_answer_shows_what_is_the_same_from_each(
    server: Server,
) -> None:
    status, text = server.plain("/metrics/service")
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert status == 200
    assert names == {"istio_init_egress_settings_info", "istio_init_egress_build_info"}


# --- Lines that go to Loki too -------------------------------------------------------------------


def forwarding_to(folder: Path, url: str) -> tuple[str, str]:
    """The options that send lines there."""
    destination = {"urls": [url], "labels": {"juju_model": "kubeflow"}}
    (folder / "logs.json").write_text(json.dumps(destination))
    return ("--logs", str(folder / "logs.json"))


def test_what_is_logged_is_sent_to_loki_and_counted(tmp_path: Path) -> None:
    receiver = Receiver()
    sent = 'istio_init_egress_log_lines_total{result="sent"}'
    with receiving(receiver) as port:
        further = forwarding_to(tmp_path, f"http://127.0.0.1:{port}/loki/api/v1/push")
        with running(tmp_path, grace=0, further=further) as server:
            server.ask("POST", MUTATE, review(pod()))
            wait("the line", lambda: any("Pod changed" in line for line in receiver.lines))
            wait("the count", lambda: server.sample(sent) == len(receiver.lines))
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(DEADLINE) == 0
        # What it says at the very end arrives as well.
        assert [json.loads(line) for line in receiver.lines] == server.log


def test_a_loki_that_hangs_holds_up_neither_reviews_nor_the_end(tmp_path: Path) -> None:
    receiver = Receiver()
    receiver.may_answer.clear()
    with receiving(receiver) as port:
        further = forwarding_to(tmp_path, f"http://127.0.0.1:{port}/push")
        with running(tmp_path, grace=0, further=further) as server:
            assert receiver.asked.wait(DEADLINE)
            for _ in range(100):
                assert server.ask("POST", MUTATE, review(pod()))[0] == 200
            assert receiver.lines == []
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(DEADLINE) == 0


@pytest.mark.parametrize("text", [None, "no JSON", '{"urls": ["loki"], "labels": {}}'])
def test_a_destination_that_cannot_be_used_keeps_nobody_from_their_work(
    tmp_path: Path, text: str | None
) -> None:
    if text:
        (tmp_path / "logs.json").write_text(text)
    with running(tmp_path, further=("--logs", str(tmp_path / "logs.json"))) as server:
        assert server.ask("POST", MUTATE, review(pod()))[0] == 200
        assert server.log[0]["message"] == "cannot forward log lines"


# --- What it doesn't start with ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("exclude-outbound-ip-ranges: 10.0.0.0", "10.0.0.0/32"),
        ("no-such-option: x", "no-such-option"),
        ("exclude-outbound-ports: 443", "in quotes"),
        ("- a", "expected a mapping"),
        ("a: b: c", "settings"),
    ],
)
def test_invalid_settings_end_it(tmp_path: Path, settings: str, reason: str) -> None:
    server = launch(tmp_path, settings)
    assert server.process.wait(DEADLINE) == 1
    (line,) = server.log
    assert line["level"] == "error"
    assert reason in line["reason"]


def mismatch(folder: Path) -> None:
    certificate(folder)
    (folder / "tls.key").rename(folder / "other")
    key = (folder / "other").read_bytes()
    certificate(folder)
    (folder / "tls.key").write_bytes(key)


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda folder: folder.mkdir(), "tls.crt"),
        (lambda folder: certificate(folder, days=-1), "expired"),
        (lambda folder: certificate(folder, form="TraditionalOpenSSL"), "PKCS#8"),
        (mismatch, "MISMATCH"),
    ],
)
def test_a_useless_certificate_ends_it(
    tmp_path: Path, prepare: Callable[[Path], None], reason: str
) -> None:
    prepare(tmp_path / "cert")
    server = launch(tmp_path)
    assert server.process.wait(DEADLINE) == 1
    assert reason in server.log[-1]["reason"]


def test_a_port_that_is_taken_ends_it(server: Server, tmp_path: Path) -> None:
    certificate(tmp_path / "cert")
    (tmp_path / "settings.yaml").write_text("")
    found = subprocess.run(
        [
            *(sys.executable, "-m", "init_egress.webhook", "--address", "127.0.0.1"),
            *("--settings", tmp_path / "settings.yaml", "--certificate", tmp_path / "cert"),
            *("--port", str(server.port), "--metrics-port", str(free_ports()[0])),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    assert found.returncode == 1
    assert "in use" in json.loads(found.stderr)["reason"]


# --- A renewed certificate -----------------------------------------------------------------------


def test_a_renewed_certificate_is_taken_over_and_nothing_is_lost(own: Server) -> None:
    def serial() -> int:
        pem = ssl.get_server_certificate(("localhost", own.port), timeout=DEADLINE)
        return x509.load_pem_x509_certificate(pem.encode()).serial_number

    old, expiry = serial(), "istio_init_egress_certificate_expiry_timestamp_seconds"
    before = own.sample(expiry)
    with closing(own.connect()) as connection:
        connection.connect()
        certificate(own.folder / "cert", days=60)

        def renewed() -> bool:
            # Kept connections go on, or are closed after an answer that says so.
            response(ask(connection, "POST", MUTATE, review(pod())))
            return serial() != old

        wait("the new certificate", renewed)
    assert own.sample(expiry) > before + 86400
    (own.folder / "cert" / "tls.key").write_text("")
    wait("the complaint", lambda: own.log[-1]["message"] == "cannot use the renewed certificate")
    response(own.ask("POST", MUTATE, review(pod())))
    assert own.ready()


# --- The end -------------------------------------------------------------------------------------


def test_an_idle_server_exits_with_0_after_its_grace(own: Server) -> None:
    started = time.monotonic()
    own.process.send_signal(signal.SIGTERM)
    wait("unreadiness", lambda: own.plain("/readyz") == (503, "shutting down\n"))
    assert own.plain("/livez")[0] == 200
    # A new connection is answered, and told to close.
    with closing(own.connect()) as connection:
        connection.request("POST", MUTATE, json.dumps(review(pod())))
        answer = connection.getresponse()
        assert answer.getheader("connection") == "close"
        response((answer.status, answer.read().decode()))
    assert own.process.wait(GRACE + 8) == 0
    assert time.monotonic() - started >= GRACE
    assert own.log[-1]["message"] == "stopped"


def test_under_load_nothing_is_lost(own: Server) -> None:
    """Clients that send without pause, on connections they keep as long as they are let."""
    told = threading.Event()
    failures: list[BaseException] = []
    answered = [0, 0]

    def client() -> None:
        connection = own.connect()
        end = float("inf")
        try:
            while time.monotonic() < end:
                if told.is_set() and end == float("inf"):
                    # In a cluster the endpoints have moved by the end of the grace.
                    end = time.monotonic() + GRACE * 0.8
                connection.request("POST", MUTATE, json.dumps(review(pod())))
                answer = connection.getresponse()
                response((answer.status, answer.read().decode()))
                answered[told.is_set()] += 1
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    clients = [threading.Thread(target=client) for _ in range(4)]
    for thread in clients:
        thread.start()
    wait("load", lambda: answered[0] > 100)
    own.process.send_signal(signal.SIGTERM)
    told.set()
    for thread in clients:
        thread.join(DEADLINE)
    assert not failures
    assert answered[1] > 10
    assert own.process.wait(DEADLINE) == 0
    assert len([line for line in own.log if line["message"] == "Pod changed"]) == sum(answered)


def test_what_was_begun_before_the_end_is_answered(tmp_path: Path) -> None:
    body = json.dumps(review(pod())).encode()
    head = b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    with running(tmp_path, grace=0) as server, closing(server.raw()) as slow:
        slow.sendall(head + body[:50])
        # Another request, answered after: the first has arrived by then.
        response(server.ask("POST", MUTATE, review(pod())))
        server.process.send_signal(signal.SIGTERM)
        wait("the end of the grace", lambda: not listens(server.port))
        slow.sendall(body[50:])
        answer = slow.recv(65536)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert server.process.wait(DEADLINE) == 0


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), DEADLINE).close()
    except OSError:
        return False
    return True


def test_a_request_that_never_ends_does_not_keep_it(tmp_path: Path) -> None:
    with running(tmp_path, grace=0) as server, closing(server.raw()) as stuck:
        stuck.sendall(b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        response(server.ask("POST", MUTATE, review(pod())))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(DEADLINE) == 0
        assert server.log[-1]["unanswered"] is True


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with running(tmp_path, grace=300) as server:
        server.process.send_signal(signal.SIGTERM)
        wait("unreadiness", lambda: server.plain("/readyz")[0] == 503)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(DEADLINE) == 1


def test_help() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "init_egress.webhook", "--help"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    assert all(option in found.stdout for option in ("--settings", "--certificate", "--grace"))


# --- Floods --------------------------------------------------------------------------------------

MEMORY_LIMIT = 256 * 1024
"""KiB, of the workload's manifest."""
FLOOD_SECONDS = 3.0


def of_process(server: Server, file: str, name: str) -> int:
    """A number of /proc/<pid>/<file>."""
    text = Path(f"/proc/{server.process.pid}/{file}").read_text()
    line = next(line for line in text.splitlines() if line.startswith(name))
    return int(line.removeprefix(name).split()[0])


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_under_a_flood_a_client_is_answered_and_memory_is_bounded(
    tmp_path: Path, flood: Flood
) -> None:
    with running(tmp_path) as server, flooding(flood, server.port, server.plain_port):
        answers = floods.ask(server.port, FLOOD_SECONDS)
        assert not answers.failures
        assert answers.seconds
        # Health and metrics are answered too, and say that all is well.
        assert server.plain("/readyz")[0] == 200
        assert server.plain("/livez")[0] == 200
        assert server.plain("/metrics")[0] == 200
        assert of_process(server, "status", "VmHWM:") < MEMORY_LIMIT
        assert of_process(server, "status", "Threads:") < 50


def test_the_limit_of_open_files_is_raised(server: Server) -> None:
    text = Path(f"/proc/{server.process.pid}/limits").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("Max open files")]
    soft, hard = line.split()[3:5]
    assert soft == hard


def closed_after(connection: socket.socket) -> float:
    """Seconds until the server closes a connection."""
    started = time.monotonic()
    with suppress(OSError):
        while connection.recv(65536):
            pass
    return time.monotonic() - started


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /mutate HTTP/1.1\r\nhost: x\r\n",
        b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{",
        b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n{",
        b"POST /mutate HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
    ],
    ids=["header", "body", "large-body", "chunked-body"],
)
def test_a_request_that_is_not_finished_in_time_ends_its_connection(
    server: Server, sent: bytes
) -> None:
    unfinished = 'istio_init_egress_closed_connections_total{reason="unfinished"}'
    before = server.sample(unfinished)
    with closing(server.raw()) as connection, closing(server.connect()) as kept:
        ask(kept, "POST", MUTATE, review(pod()))
        sock = kept.sock
        connection.sendall(sent)
        assert 9 < closed_after(connection) < 13
        # One that only idles between requests is left alone.
        response(ask(kept, "POST", MUTATE, review(pod())))
        assert kept.sock is sock
    assert server.sample(unfinished) == before + 1


def test_a_request_that_trickles_in_ends_its_connection(server: Server) -> None:
    with closing(server.raw()) as connection:
        connection.sendall(b"POST /mutate HTTP/1.1\r\n")
        started = time.monotonic()
        with pytest.raises(OSError, match=r".*"):  # noqa: PT012 - until it is closed
            while time.monotonic() < started + DEADLINE:
                connection.sendall(b"a: b\r\n")
                select.select([connection], [], [], 0.5)
        assert time.monotonic() - started < 13


def test_a_large_body_that_stalls_is_dropped_for_others(own: Server) -> None:
    stalled = [floods.half_body(own.port) for _ in range(8)]
    big = pod()
    big["metadata"]["annotations"]["big"] = "x" * (3 * 1024 * 1024)
    response(own.ask("POST", MUTATE, review(big, oldObject=big)))
    stalled[0].sendall(b" ")
    assert stalled[0].recv(65536).startswith(b"HTTP/1.1 503 ")
    for connection in stalled:
        connection.close()


def test_a_huge_pod_makes_a_short_line(server: Server) -> None:
    huge = pod(annotations={istio.STATUS: "{}"})
    huge["metadata"]["annotations"][istio.EXCLUDE_RANGES] = ",".join(["10.1.2.3/32"] * 20_000)
    huge["spec"]["initContainers"] = [{"name": f"{n}-{'x' * 60}"} for n in range(500)]
    response(server.ask("POST", MUTATE, review(huge, uid="huge" * 1000, name="p" * 10_000)))
    text = (server.folder / "log").read_text()
    (line,) = [line for line in text.splitlines() if '"hugehuge' in line]
    assert len(line) < 5_000
    assert json.loads(line)["verdict"] == "needs-remedy"


def test_a_pod_that_no_cluster_could_store_is_let_through_with_a_warning(server: Server) -> None:
    huge = pod()
    huge["spec"]["initContainers"] *= 10_001
    found = response(server.ask("POST", MUTATE, review(huge)))
    assert list(found["auditAnnotations"]) == ["unreadable"]
    assert "length <= 10000" in found["warnings"][0]


_HANGS_ON_A_SIGNAL = """
import signal, sys, time
from init_egress.webhook.server import main

signal.signal(signal.SIGUSR1, lambda *_: time.sleep(12))
sys.exit(main())
"""


def test_a_replica_whose_event_loop_is_blocked_turns_unready_and_ready_again(
    tmp_path: Path,
) -> None:
    with running(tmp_path, program=("-c", _HANGS_ON_A_SIGNAL)) as server:
        server.process.send_signal(signal.SIGUSR1)
        wait("unreadiness", lambda: server.plain("/readyz")[0] == 503)
        assert "the HTTPS port has not answered for" in server.plain("/readyz")[1]
        assert server.plain("/livez")[0] == 200
        wait("readiness", server.ready)
        response(server.ask("POST", MUTATE, review(pod())))


# --- Whatever it is asked ------------------------------------------------------------------------

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=20,
)


@st.composite
def _bodies(draw: st.DrawFn) -> bytes:
    """A review, one with something else at any of its places, any JSON, or any bytes."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=200) | _json.map(lambda value: json.dumps(value).encode()))
    asked = review(pod(name="p"))
    places = [asked, asked["request"], asked["request"]["object"]["metadata"]]
    place = draw(st.sampled_from([*places, asked["request"]["object"]["spec"]]))
    place[draw(st.sampled_from([*place, "other"]))] = draw(_json)
    return json.dumps(asked).encode()


def test_whatever_is_sent_gets_an_answer_and_no_pod_is_denied(server: Server) -> None:
    before = server.process.pid

    with closing(server.connect()) as connection:

        @settings(
            max_examples=300,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
        @given(_bodies())
        def answered(body: bytes) -> None:
            status, text = ask(connection, "POST", MUTATE, body)
            assert status in (200, 400)
            if status == 200:
                assert json.loads(text)["response"]["allowed"] is True
            else:
                assert text.strip()

        answered()

    assert server.process.poll() is None
    assert server.process.pid == before
    assert server.plain("/readyz")[0] == 200
