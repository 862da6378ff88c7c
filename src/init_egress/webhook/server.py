"""The webhook's process: it starts, listens, renews its certificate, drains and ends.

It has no credentials and calls no API server. It decides with the settings of a mounted file,
validated by the same code as the charm's configuration, and serves with a mounted certificate. If
either is invalid, it ends before it listens: a rolling update's new Pod then never turns ready,
and the old replicas go on serving.

Served on the HTTPS port:   POST /mutate, GET /livez, GET /readyz
Served without TLS:         GET /metrics, GET /metrics/service, GET /livez, GET /readyz

On SIGTERM it turns unready at once and goes on answering for the grace period, since the API
server keeps its connections (https://github.com/kubernetes/kubernetes/issues/127335) and
endpoints take a while to update; each answer then asks the client to close the connection. After
that it accepts no more, finishes the requests it has begun, and exits with 0. A second signal
ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import resource
import signal
import socket
import threading
from collections.abc import Coroutine, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import uvloop
from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.embed import Server

from init_egress import __version__
from init_egress.telemetry import loki
from init_egress.telemetry.logs import LogHandler, log, write_also_to
from init_egress.telemetry.plain_http import METRICS, SERVICE_METRICS, PlainServer
from init_egress.webhook.application import Application
from init_egress.webhook.arguments import Options, parse
from init_egress.webhook.connections import CONNECTION_LIMIT, ConnectionGuard, Judge
from init_egress.webhook.health import Health
from init_egress.webhook.inputs import (
    Certificate,
    InvalidInput,
    WebhookInputs,
    load_certificate,
    load_settings,
)
from init_egress.webhook.metrics import Metrics
from init_egress.webhook.self_check import SelfCheck

# The API server keeps an idle connection for 90 s. If the webhook closed it earlier, the API
# server would now and then send a review into a connection that is being closed, and it does not
# repeat a POST: https://github.com/knative/pkg/issues/1509. granian closes an idle connection when
# the headers of the next request take longer than this.
_IDLE_MILLISECONDS = 120_000
# The kernel accepts this many connections for granian to take over. granian itself stops at
# _HARD_LIMIT; connections.py closes connections so that it does not come to that.
_BACKLOG = 1024
_HARD_LIMIT = 4 * CONNECTION_LIMIT
_HEADER_LIMIT_BYTES = 128 * 1024
_DRAIN_SECONDS = 5
_FORWARDING_SECONDS = 2.0
_RENEWAL_CHECK_SECONDS = 10.0


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
        self._stop_requested = asyncio.Event()

    async def run(self) -> int:
        """Serve until a signal says to stop; the exit code.

        Raises:
            OSError: a port cannot be bound.
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
        renewing = asyncio.create_task(self._renew_certificates())
        SelfCheck(options.address, options.port, self._health).start()
        ConnectionGuard(options.port, Judge(), self._metrics.count_closed).start()
        stopping = asyncio.create_task(self._stop_requested.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        renewing.cancel()
        if serving.done():
            log("error", "server ended unexpectedly", reason=str(serving.exception() or ""))
            return 1
        await self._drain(serving)
        return 0

    async def _drain(self, serving: asyncio.Task[None]) -> None:
        log("info", "shutting down", grace=self._options.grace)
        await asyncio.wait({serving}, timeout=self._options.grace)
        # This closes idle connections; requests that have begun are still answered.
        self._server.stop()
        _, pending = await asyncio.wait({serving}, timeout=_DRAIN_SECONDS)
        log("info", "stopped", unanswered=bool(pending))

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stop_requested.is_set():
            log("warning", "stopped at once", signal=number.name)
            os._exit(1)
        self._health.draining = True
        self._stop_requested.set()

    async def _renew_certificates(self) -> None:
        """Serve a renewed certificate: the kubelet replaces the files in the mounted folder.

        If the new certificate cannot be used, the one in use stays.
        """
        last_reason = ""
        while True:
            await asyncio.sleep(_RENEWAL_CHECK_SECONDS)
            try:
                renewed = load_certificate(self._options.certificate)
            except InvalidInput as error:
                if str(error) != last_reason:
                    log("error", "cannot use the renewed certificate", reason=str(error))
                last_reason = str(error)
                continue
            last_reason = ""
            if renewed.fingerprint != self._health.certificate.fingerprint:
                self._health.certificate = renewed
                self._metrics.certificate_expiry = renewed.expiry.timestamp()
                # A new worker accepts new connections; the old one finishes what it has begun.
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
        http1_settings=HTTP1Settings(
            header_read_timeout=_IDLE_MILLISECONDS, max_buffer_size=_HEADER_LIMIT_BYTES
        ),
        websockets=False,
        backlog=_BACKLOG,
        backpressure=_HARD_LIMIT,
        log_level=LogLevels.error,
        log_dictconfig={"handlers": {}, "loggers": {}},
        ssl_cert=certificate.chain,
        ssl_key=certificate.key,
        ssl_protocol_min=SSLProtocols.tls12,
    )


def _fail_if_port_taken(address: str, port: int) -> None:
    """Fail if another process listens on the port: granian would share it (SO_REUSEPORT)."""
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
    """Keep the kernel from preempting one thread of this process for another that wakes up.

    granian's thread and Python's share a core and a lock. By default the kernel wakes granian's
    thread for each packet in the middle of a decision, only for it to wait for the lock: that took
    half of the time of a review (benchmarks/README.md). Threads inherit the policy, so this comes
    first. Where it is not allowed, the webhook is slower.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def raise_file_limit() -> None:
    """Allow as many open files as the process may have: each connection is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the webhook; the exit code."""
    options = parse(arguments)
    logging.basicConfig(handlers=[LogHandler()], level=logging.INFO, force=True)
    use_batch_scheduling()
    raise_file_limit()
    try:
        settings = load_settings(options.settings)
        certificate = load_certificate(options.certificate)
        forwarder = start_forwarding(options.logs) if options.logs else None
        for note in settings.notes:
            log("warning", note)
        code = run(_serve(options, settings, certificate, forwarder))
    except (InvalidInput, OSError) as error:
        log("error", "cannot serve", reason=str(error))
        return 1
    if forwarder:
        forwarder.stop(_FORWARDING_SECONDS)
    return code


def start_forwarding(path: Path) -> loki.Forwarder | None:
    """Forward log lines as the file says. If it is invalid, log that and serve without."""
    try:
        forwarder = loki.Forwarder(loki.decode(path.read_bytes()), log)
    except (OSError, ValueError) as error:
        log("error", "cannot forward log lines", reason=str(error))
        return None
    write_also_to(forwarder)
    return forwarder


def run(serving: Coroutine[Any, Any, int]) -> int:
    """Run on uvloop's event loop, which has less overhead per wake-up than asyncio's."""
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    # asyncio.run would wait for connections that draining has left behind.
    return loop.run_until_complete(serving)


async def _serve(
    options: Options,
    settings: WebhookInputs,
    certificate: Certificate,
    forwarder: loki.Forwarder | None,
) -> int:
    return await Service(options, settings, certificate, forwarder).run()
