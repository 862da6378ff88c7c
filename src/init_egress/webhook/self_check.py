"""Asks the webhook's own HTTPS port for an answer, so that the probes know whether it gives one.

An answer proves that a new connection is accepted, that TLS works, and that the event loop, which
decides reviews, is not blocked.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from contextlib import closing

from init_egress.telemetry.logs import log
from init_egress.telemetry.plain_http import LIVE
from init_egress.webhook.health import Health

_PERIOD_SECONDS = 2.0
_START_PERIOD_SECONDS = 0.02
_TIMEOUT_SECONDS = 2.0
_LOCALHOSTS = {"::": "::1", "0.0.0.0": "127.0.0.1"}  # noqa: S104 - it is a server


class SelfCheck:
    """Asks again and again, and tells Health of each answer."""

    def __init__(self, address: str, port: int, health: Health) -> None:
        self._host = _LOCALHOSTS.get(address, address)
        self._port = port
        self._health = health
        # It asks whether there is an answer; the API server checks the certificate.
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    def start(self) -> None:
        """Ask from now on, in a thread that ends with the process."""
        threading.Thread(target=self._run, name="self-check", daemon=True).start()

    def _run(self) -> None:
        while not self._answers():
            time.sleep(_START_PERIOD_SECONDS)
        self._health.answered()
        log("info", "listening", port=self._port)
        failing = False
        while True:
            time.sleep(_PERIOD_SECONDS)
            if self._answers():
                self._health.answered()
                failing = False
            elif not failing and not self._health.draining:
                failing = True
                log("warning", "the HTTPS port did not answer the self-check", port=self._port)

    def _answers(self) -> bool:
        connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=_TIMEOUT_SECONDS, context=self._context
        )
        try:
            with closing(connection):
                connection.request("GET", LIVE, headers={"connection": "close"})
                connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        return True
