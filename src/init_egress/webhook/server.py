"""The admission webhook: an HTTPS server that asks the rule about each new Pod.

It knows no API server and has no credentials. It decides with the settings of a mounted file,
which is validated by the same code as the charm's configuration, and serves with a mounted
certificate. Settings or a certificate that can't be used end it before it listens: the Pod of a
rolling update never turns ready then, so its predecessors go on serving.

Served on the HTTPS port:   POST /mutate, GET /livez, GET /readyz
Served without TLS:         GET /metrics, GET /metrics/service, GET /livez, GET /readyz

On SIGTERM it turns unready at once and answers on for the grace period, since the API server keeps
its connections (https://github.com/kubernetes/kubernetes/issues/127335) and endpoints take a while
to move; each answer then asks for the connection to be closed. After that it takes no more, ends
what it has begun, and exits with 0. A second signal ends it at once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import logging
import os
import platform
import signal
import socket
import ssl
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import uvloop
import yaml
from cryptography import x509
from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.rsgi import (
    HTTPProtocol,  # pyright: ignore[reportPrivateImportUsage] - it is RSGI's public name
    ProtocolClosed,  # pyright: ignore[reportPrivateImportUsage] - it is RSGI's public name
    Scope,
)
from granian.server.embed import Server

from init_egress import __version__
from init_egress.config import Config, ConfigError
from init_egress.rule.decision import PatchOperation
from init_egress.rule.selector import EVERYTHING
from init_egress.telemetry import loki
from init_egress.telemetry.logs import (
    LIVE,
    METRICS,
    READY,
    SERVICE_METRICS,
    TEXT,
    LogHandler,
    Metrics,
    PlainServer,
    log,
    log_exception,
    now,
    traceback_of,
    write,
    write_also_to,
)
from init_egress.webhook import review
from init_egress.webhook.review import Context

PATH = "/mutate"

BODY_LIMIT = 8 * 1024 * 1024
"""The API server takes requests of up to 3 MiB, and a review may hold an object twice."""

# The API server lets a connection idle for 90 s. Were ours shorter, it would now and then send a
# review into a connection that is just being closed, and it doesn't repeat a POST:
# https://github.com/knative/pkg/issues/1509. granian closes an idle connection when the headers of
# the next request are this late.
_IDLE_MILLISECONDS = 300_000
_BACKLOG = 1024
_DRAIN_SECONDS = 5
_FORWARDING_SECONDS = 2.0
_DEFAULT_GRACE = 12.0
_CERTIFICATE_SECONDS = 10.0
_POLL_SECONDS = 0.02

_Headers = list[tuple[str, str]]
_JSON: _Headers = [("content-type", "application/json")]
_TEXT: _Headers = [("content-type", TEXT)]
_CLOSE = ("connection", "close")


class Unusable(ValueError):
    """The settings or the certificate can't be used; the message says why."""


# --- What it is started with ---------------------------------------------------------------------


@dataclass(frozen=True)
class WebhookInputs:
    """What the mounted file says.

    Attributes:
        context: what reviews are answered with.
        revision: what tells these settings from others, for the log and the metrics.
        notes: what was read otherwise than it was written.
    """

    context: Context
    revision: str
    notes: tuple[str, ...] = ()


def load_settings(path: Path) -> WebhookInputs:
    """Read the settings: the charm's options by their names, and maybe `probe` and `revision`.

    Options that are left out have the charm's defaults.

    Raises:
        Unusable: the file can't be read, or isn't valid.
    """
    try:
        content = path.read_bytes()
        document = yaml.safe_load(content)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise Unusable(f"settings: {error}") from None
    try:
        options = _options({} if document is None else document)
        probe = options.pop("probe", "")
        revision = options.pop("revision", hashlib.sha256(content).hexdigest()[:12])
        found = Config.from_options(options).settings()
    except (ConfigError, Unusable) as error:
        raise Unusable(f"settings {path}: {error}") from None
    # The webhook configuration selects by the namespace's labels, which a review doesn't hold.
    policy = replace(found.policy, namespaces=EVERYTHING)
    return WebhookInputs(Context(policy, probe), revision, found.notes)


def _options(document: object) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise Unusable("they are no mapping of options to values")
    known = {"probe": str, "revision": str}
    known |= {field.name.replace("_", "-"): type(field.default) for field in fields(Config)}
    unknown = [str(key) for key in document if key not in known]
    if unknown:
        raise Unusable(f"no option is called {', '.join(unknown)}; there are {', '.join(known)}")
    for key, value in document.items():
        if type(value) is not known[key]:
            wanted = "text; put it between quotes" if known[key] is str else "whole number"
            raise Unusable(f"{key}: {value!r} is no {wanted}")
    return document


@dataclass(frozen=True)
class Certificate:
    """The certificate of a mounted Secret of type kubernetes.io/tls.

    Attributes:
        folder: where tls.crt and tls.key are.
        expiry: when it expires.
        fingerprint: what tells its files from others.
    """

    folder: Path
    expiry: datetime
    fingerprint: str

    @property
    def chain(self) -> Path:
        """The file of the certificate and those that vouch for it."""
        return self.folder / "tls.crt"

    @property
    def key(self) -> Path:
        """The file of the private key."""
        return self.folder / "tls.key"

    @property
    def expired(self) -> bool:
        """Whether no API server accepts it any more."""
        return self.expiry <= datetime.now(timezone.utc)


def load_certificate(folder: Path) -> Certificate:
    """Read the certificate and check that its key belongs to it.

    Raises:
        Unusable: it can't be read, the key is another's, or it has expired.
    """
    chain, key = folder / "tls.crt", folder / "tls.key"
    try:
        content = chain.read_bytes(), key.read_bytes()
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, key, password=_no_password)
        expiry = x509.load_pem_x509_certificate(content[0]).not_valid_after_utc
    except (OSError, ValueError) as error:
        raise Unusable(f"certificate {folder}: {error}") from None
    if b"-----BEGIN PRIVATE KEY-----" not in content[1]:
        # "PKCS#8 format only", granian says of its option --ssl-keyfile.
        raise Unusable(f"certificate {folder}: tls.key is no unencrypted key in PKCS#8")
    certificate = Certificate(folder, expiry, hashlib.sha256(b"".join(content)).hexdigest())
    if certificate.expired:
        raise Unusable(f"certificate {folder}: it expired at {expiry.isoformat()}")
    return certificate


def _no_password() -> str:
    """OpenSSL asks the terminal for a password unless it is given one."""
    return ""


# --- Answering -----------------------------------------------------------------------------------


class Health:
    """Whether it should be sent reviews, and why not."""

    def __init__(self, certificate: Certificate) -> None:
        self.certificate = certificate
        self.listening = False
        self.draining = False

    def problem(self) -> str:
        """Why it isn't ready; empty if it is. Its settings were valid, or it wouldn't run."""
        if self.draining:
            return "shutting down"
        if not self.listening:
            return "not listening yet"
        if self.certificate.expired:
            return f"the certificate expired at {self.certificate.expiry.isoformat()}"
        return ""

    def answer(self, path: str) -> tuple[int, str]:
        """The status and the text for LIVE and READY."""
        problem = self.problem() if path == READY else ""
        return (503, problem + "\n") if problem else (200, "ok\n")


class TooLarge(ValueError):
    """The body is over the limit."""


class Application:
    """Answers HTTP requests, by granian's RSGI.

    The interface: https://github.com/emmett-framework/granian/blob/master/docs/spec/RSGI.md
    """

    def __init__(self, context: Context, health: Health, metrics: Metrics) -> None:
        self._context = context
        self._health = health
        self._metrics = metrics

    async def __rsgi__(self, scope: Scope, proto: HTTPProtocol) -> None:
        """Answer one request. Whatever happens, it gets an answer and the process lives on."""
        started = perf_counter()
        try:
            if scope.path != PATH or scope.method != "POST":
                return self._other(scope, proto)
            length = scope.headers.get("content-length")
            # One coroutine and few calls: every review passes here.
            if length is not None and int(length) <= BODY_LIMIT:
                body = await proto()
            else:
                body = await _measured(length, proto)
            answer = review.answer(body, self._context)
            proto.response_bytes(200, self._headers(_JSON), answer.body)
            self._metrics.review(answer.verdict, answer.dry_run, perf_counter() - started)
            if answer.patch or answer.error or answer.verdict == review.UNREADABLE:
                _log_answer(answer)
        except ProtocolClosed:
            return  # the client has gone before its request had come
        except TooLarge as error:
            self._refuse(proto, 413, str(error))
        except review.NotAReview as error:
            self._refuse(proto, 400, str(error))
        except Exception as error:
            log_exception("request failed", error, path=scope.path)
            self._refuse(proto, 500, "the webhook failed, see its log")

    def _other(self, scope: Scope, proto: HTTPProtocol) -> None:
        if scope.path not in (PATH, LIVE, READY):
            paths = f"{PATH}, {LIVE} and {READY}"
            proto.response_str(404, self._headers(_TEXT), f"here are only {paths}\n")
        elif scope.path == PATH or scope.method not in ("GET", "HEAD"):
            method = "POST" if scope.path == PATH else "GET"
            headers = [*self._headers(_TEXT), ("allow", method)]
            proto.response_str(405, headers, f"only {method} is answered here\n")
        else:
            status, text = self._health.answer(scope.path)
            proto.response_str(status, self._headers(_TEXT), text)

    def _refuse(self, proto: HTTPProtocol, status: int, reason: str) -> None:
        self._metrics.refused(status)
        log("warning", "request refused", status=status, reason=reason)
        # The rest of a body that was left unread must not be taken for the next request.
        headers = [*_TEXT, _CLOSE] if status == 413 else self._headers(_TEXT)
        with contextlib.suppress(Exception):  # the client may have gone
            proto.response_str(status, headers, reason + "\n")

    def _headers(self, headers: _Headers) -> _Headers:
        return [*headers, _CLOSE] if self._health.draining else headers


async def _measured(length: str | None, proto: HTTPProtocol) -> bytes:
    """A body whose length isn't announced, or is too much; no more is kept than is allowed.

    Raises:
        TooLarge: the body is over the limit.
    """
    parts: list[bytes] = []
    size = int(length or 0)
    if size <= BODY_LIMIT:
        size = 0
        async for part in proto:
            size += len(part)
            if size > BODY_LIMIT:
                break
            parts.append(part)
    if size > BODY_LIMIT:
        raise TooLarge(f"the body is over {BODY_LIMIT} bytes")
    return b"".join(parts)


class _Line(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An answer's line in the log; a struct, since one is written for each Pod that is changed."""

    time: datetime
    level: str
    message: str
    namespace: str
    name: str
    uid: str
    verdict: str
    reason: str
    patch: tuple[PatchOperation, ...] = ()
    traceback: str = ""


def _log_answer(answer: review.Answer) -> None:
    if not answer.patch:
        _log_line("error" if answer.error else "warning", "Pod was not decided", answer)
    elif not answer.dry_run:
        _log_line("info", "Pod changed", answer)


def _log_line(level: str, message: str, answer: review.Answer) -> None:
    line = _Line(
        now(),
        level,
        message,
        answer.namespace,
        answer.name,
        answer.uid,
        answer.verdict,
        answer.reason,
        answer.patch,
        traceback_of(answer.error) if answer.error else "",
    )
    write(line)


# --- The process ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """The command line.

    Attributes:
        settings: the file of the settings.
        certificate: the folder of tls.crt and tls.key.
        address: the address to listen on.
        port: the port of reviews, with TLS.
        metrics_port: the port of metrics, without TLS.
        grace: seconds to answer on after SIGTERM.
        logs: the file that says where log lines go beside standard error, if there is one.
    """

    settings: Path
    certificate: Path
    address: str
    port: int
    metrics_port: int
    grace: float
    logs: Path | None


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line; what is wrong with it ends the process with its usage."""
    parser = argparse.ArgumentParser(
        prog="python -m init_egress.webhook",
        description="Answers the API server's reviews of new Pods, over HTTPS.",
        epilog=f"POST {PATH} and GET {LIVE}, {READY} with TLS; GET {METRICS}, {LIVE}, {READY} "
        "without. SIGTERM ends it after the grace period, a second one at once.",
    )
    anywhere = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104 - it is a server
    parser.add_argument(
        "--settings", type=Path, required=True, metavar="FILE", help="the charm's options, as YAML"
    )
    parser.add_argument(
        "--certificate", type=Path, required=True, metavar="DIR", help="holds tls.crt and tls.key"
    )
    parser.add_argument("--address", default=anywhere, help="listen here (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8443, help="with TLS (default: %(default)s)")
    parser.add_argument(
        "--metrics-port", type=int, default=8080, help="without TLS (default: %(default)s)"
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=_DEFAULT_GRACE,
        metavar="SECONDS",
        help="answer on for this long after SIGTERM (default: %(default)g)",
    )
    parser.add_argument(
        "--logs", type=Path, metavar="FILE", help="says which Loki gets log lines too, as JSON"
    )
    return Options(**vars(parser.parse_args(arguments)))


class Service:
    """One run of the server, from listening to its exit code."""

    def __init__(
        self,
        options: Options,
        settings: WebhookInputs,
        certificate: Certificate,
        forwarder: loki.Forwarder | None = None,
    ) -> None:
        self._options = options
        self._health = Health(certificate)
        self._metrics = Metrics(
            _build(), {"revision": settings.revision}, forwarder.counts if forwarder else None
        )
        self._metrics.certificate_expiry = certificate.expiry.timestamp()
        application = Application(settings.context, self._health, self._metrics)
        self._server = make_server(application, options.address, options.port, certificate)
        self._told = asyncio.Event()

    async def run(self) -> int:
        """Serve until told to stop; the exit code.

        Raises:
            OSError: a port can't be had.
        """
        options = self._options
        address = options.address, options.metrics_port
        registries = {
            METRICS: self._metrics.registry(),
            SERVICE_METRICS: self._metrics.service_registry(),
        }
        plain = PlainServer(address, registries, self._health.answer)
        _fail_if_port_taken(options.address, options.port)
        threading.Thread(target=plain.serve_forever, name="plain", daemon=True).start()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        serving = asyncio.create_task(self._server.serve())
        helpers = [asyncio.create_task(work) for work in (self._listening(), self._renewals())]
        told = asyncio.create_task(self._told.wait())
        await asyncio.wait({serving, told}, return_when=asyncio.FIRST_COMPLETED)
        for helper in helpers:
            helper.cancel()
        if serving.done():
            log("error", "server ended by itself", reason=str(serving.exception() or ""))
            return 1
        await self._drain(serving)
        return 0

    async def _drain(self, serving: asyncio.Task[None]) -> None:
        log("info", "shutting down", grace=self._options.grace)
        await asyncio.wait({serving}, timeout=self._options.grace)
        # Idle connections are closed, what was begun is answered.
        self._server.stop()
        _, pending = await asyncio.wait({serving}, timeout=_DRAIN_SECONDS)
        log("info", "stopped", unanswered=bool(pending))

    def _on_signal(self, number: signal.Signals) -> None:
        if self._told.is_set():
            log("warning", "stopped at once", signal=number.name)
            os._exit(1)
        self._health.draining = True
        self._told.set()

    async def _listening(self) -> None:
        """Turn ready once a connection is taken."""
        address = self._options.address
        host = {"::": "::1", "0.0.0.0": "127.0.0.1"}.get(address, address)  # noqa: S104
        while not self._health.listening:
            try:
                _, writer = await asyncio.open_connection(host, self._options.port)
            except OSError:
                await asyncio.sleep(_POLL_SECONDS)
            else:
                writer.close()
                self._health.listening = True
        log("info", "listening", port=self._options.port)

    async def _renewals(self) -> None:
        """Take over a renewed certificate: the kubelet changes the files in the same folder.

        A certificate that can't be used is left, and the one in use stays in use.
        """
        complained = ""
        while True:
            await asyncio.sleep(_CERTIFICATE_SECONDS)
            try:
                renewed = load_certificate(self._options.certificate)
            except Unusable as error:
                if str(error) != complained:
                    log("error", "renewed certificate can't be used", reason=str(error))
                complained = str(error)
                continue
            complained = ""
            if renewed.fingerprint != self._health.certificate.fingerprint:
                self._health.certificate = renewed
                self._metrics.certificate_expiry = renewed.expiry.timestamp()
                # A new worker takes the new connections; then the old one ends what it has begun.
                self._server.reload()
                log("info", "certificate renewed", expiry=renewed.expiry)


def make_server(target: Any, address: str, port: int, certificate: Certificate) -> Server:
    """The HTTPS server for an RSGI application, as the webhook runs it."""
    return Server(
        target,
        address,
        port,
        interface=Interfaces.RSGI,
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(header_read_timeout=_IDLE_MILLISECONDS),
        websockets=False,
        backlog=_BACKLOG,
        log_level=LogLevels.error,
        log_dictconfig={"handlers": {}, "loggers": {}},
        ssl_cert=certificate.chain,
        ssl_key=certificate.key,
        ssl_protocol_min=SSLProtocols.tls12,
    )


def _fail_if_port_taken(address: str, port: int) -> None:
    """Fail if the port is taken: granian would share it with whoever has it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as claimed:
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        claimed.bind((address, port))


def _build() -> Mapping[str, str]:
    return {
        "version": __version__,
        "python": platform.python_version(),
        "granian": version("granian"),
    }


def use_batch_scheduling() -> None:
    """Let no thread of this process interrupt another as soon as it could run.

    granian's thread and Python's share a core and a lock. Left alone, the kernel wakes granian's
    for each packet in the middle of a decision, only for it to wait for the lock: measured, that
    took half of the time of a review (benchmarks/README.md). Threads inherit the policy, so this
    comes first; where it isn't allowed, the webhook is slower.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the webhook; the exit code."""
    options = parse(arguments)
    logging.basicConfig(handlers=[LogHandler()], level=logging.INFO, force=True)
    use_batch_scheduling()
    try:
        settings = load_settings(options.settings)
        certificate = load_certificate(options.certificate)
        forwarder = start_forwarding(options.logs) if options.logs else None
        for note in settings.notes:
            log("warning", note)
        code = run(_serve(options, settings, certificate, forwarder))
    except (Unusable, OSError) as error:
        log("error", "cannot serve", reason=str(error))
        return 1
    if forwarder:
        forwarder.stop(_FORWARDING_SECONDS)
    return code


def start_forwarding(path: Path) -> loki.Forwarder | None:
    """Send log lines to where the file says; if it can't be used, only that is left undone."""
    try:
        forwarder = loki.Forwarder(loki.decode(path.read_bytes()), log)
    except (OSError, ValueError) as error:
        log("error", "log lines can't be forwarded", reason=str(error))
        return None
    write_also_to(forwarder)
    return forwarder


def run(serving: Coroutine[Any, Any, int]) -> int:
    """Run the event loop: uvloop's, which wakes up for less than asyncio's."""
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    # What drained may have left a connection behind, so nothing is waited for beyond this.
    return loop.run_until_complete(serving)


async def _serve(
    options: Options,
    settings: WebhookInputs,
    certificate: Certificate,
    forwarder: loki.Forwarder | None,
) -> int:
    return await Service(options, settings, certificate, forwarder).run()
