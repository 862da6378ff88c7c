"""Sends log lines to Loki from threads of its own; whoever writes a line never waits.

A line is put into a queue of bounded length, or counted as dropped if that is full. What can't be
sent is kept and tried again, later each time; what Loki refuses for good is dropped and counted.

Pebble's log forwarding does not replace this. While Loki is down it keeps 100 lines, drops older
ones uncounted, and tries again only when a new line is written; it splits lines over 4 KiB, and in
a trial of 1.26.0 a review took 12 to 22 % more processor time through it.
https://github.com/canonical/pebble/blob/v1.26.0/internals/overlord/logstate/loki/loki.go
https://documentation.ubuntu.com/pebble/reference/log-forwarding

Loki's API: https://grafana.com/docs/loki/latest/reference/loki-http-api/#ingest-logs
"""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from urllib.parse import SplitResult, urlsplit

import msgspec

FILE = "logs.json"

QUEUE_LIMIT = 20_000
"""Lines that wait at most, for each Loki: some 10 MB."""

_BATCH_LINES = 1000
_BATCH_BYTES = 512 * 1024
_PERIOD = 1.0
_LONGEST_WAIT = 60.0
_TIMEOUT = 10.0
_TOO_MANY_REQUESTS = 429
_SCHEMES = {"http": 80, "https": 443}

Complain = Callable[[str, str], None]
"""Takes a level and a message."""


class Destination(msgspec.Struct, frozen=True):
    """Where lines go, and as what.

    Attributes:
        urls: the push API of each Loki, such as `http://loki:3100/loki/api/v1/push`.
        labels: the labels of the stream.
        authorities: further authorities that are trusted, as PEM.
    """

    urls: tuple[str, ...]
    labels: dict[str, str]
    authorities: str = ""


def is_usable(url: str) -> bool:
    """Whether lines could be sent to this URL."""
    if not url.isascii() or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in _SCHEMES and bool(parts.hostname) and 0 < _port(parts) < 65536
    except ValueError:
        return False


def decode(text: str | bytes) -> Destination:
    """Read a destination from JSON.

    Raises:
        ValueError: it isn't of this form, or lines can't be sent to a URL of it.
    """
    destination = msgspec.json.decode(text, type=Destination)
    for url in destination.urls:
        if not is_usable(url):
            raise ValueError(f"{url!r} is not an HTTP or HTTPS URL")
    return destination


class Forwarder:
    """Sends each line to every Loki of a destination; called with a line, it never waits."""

    def __init__(
        self,
        destination: Destination,
        complain: Complain,
        *,
        limit: int = QUEUE_LIMIT,
        period: float = _PERIOD,
    ) -> None:
        """Start the threads.

        Args:
            destination: where lines go.
            complain: is told when lines can't be sent, and when they can again.
            limit: lines that wait at most, for each Loki.
            period: seconds between two batches.

        Raises:
            ValueError: the authorities can't be read.
        """
        context = _trusting(destination.authorities)
        self._senders = tuple(
            _Sender(urlsplit(url), destination.labels, context, complain, limit, period)
            for url in destination.urls
        )

    def __call__(self, line: bytes) -> None:
        """Take one line."""
        stamp = time.time_ns()
        for sender in self._senders:
            sender.put(stamp, line)

    def counts(self) -> Mapping[str, int]:
        """How many lines were sent and how many dropped, by that word."""
        return {
            "sent": sum(sender.sent for sender in self._senders),
            "dropped": sum(sender.overflow + sender.refused for sender in self._senders),
        }

    def stop(self, patience: float) -> None:
        """Send what waits, for no longer than `patience` seconds, and end the threads."""
        end = time.monotonic() + patience
        for sender in self._senders:
            sender.over.set()
        for sender in self._senders:
            sender.join(max(0.0, end - time.monotonic()))


class _Sender:
    """Sends to one Loki."""

    def __init__(
        self,
        url: SplitResult,
        labels: Mapping[str, str],
        context: ssl.SSLContext,
        complain: Complain,
        limit: int,
        period: float,
    ) -> None:
        self.sent = self.overflow = self.refused = 0
        self.over = threading.Event()
        self._url = url
        self._labels = dict(labels)
        self._context = context
        self._complain = complain
        self._limit = limit
        self._period = self._wait = period
        self._lines: deque[tuple[int, bytes]] = deque()
        self._batch: list[tuple[int, bytes]] = []
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="loki", daemon=True)
        self._thread.start()

    def put(self, stamp: int, line: bytes) -> None:
        """Take one line, or count it as dropped if too many wait."""
        if len(self._lines) < self._limit:
            self._lines.append((stamp, line))
        else:
            self.overflow += 1

    def join(self, patience: float) -> None:
        """Wait until it has ended, for no longer than `patience` seconds."""
        self._thread.join(patience)

    def _run(self) -> None:
        """Send in batches until told to stop."""
        while not self.over.wait(self._wait):
            self._send_all()
        self._send_all()

    def _send_all(self) -> None:
        while self._batch or self._lines:
            self._fill()
            try:
                status = self._post()
            except (OSError, http.client.HTTPException) as error:
                return self._fails(str(error) or type(error).__name__)
            if status >= 500 or status == _TOO_MANY_REQUESTS:
                return self._fails(f"it answered {status}")
            if 200 <= status < 300:
                self.sent += len(self._batch)
                self._works()
            else:
                self.refused += len(self._batch)
                self._complain_once(f"refused with {status}, and dropped")
            self._batch.clear()
        return None

    def _fill(self) -> None:
        """Take lines for a batch, unless one waits to be sent again."""
        if self._batch:
            return
        size = 0
        while self._lines and len(self._batch) < _BATCH_LINES and size < _BATCH_BYTES:
            entry = self._lines.popleft()
            self._batch.append(entry)
            size += len(entry[1])

    def _post(self) -> int:
        """Send the batch; the status of the answer."""
        values = [(str(stamp), line.decode(errors="replace")) for stamp, line in self._batch]
        body = msgspec.json.encode({"streams": [{"stream": self._labels, "values": values}]})
        connection = self._connection()
        try:
            target = self._url.path or "/"
            if self._url.query:
                target += f"?{self._url.query}"
            connection.request("POST", target, body, {"content-type": "application/json"})
            return connection.getresponse().status
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", _port(self._url)
        if self._url.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=_TIMEOUT)

    def _fails(self, reason: str) -> None:
        self._wait = min(self._wait * 2, max(_LONGEST_WAIT, self._period))
        self._complain_once(reason)

    def _complain_once(self, reason: str) -> None:
        """Once until it works again: the complaint is a line too, which would be complained of."""
        if not self._failing:
            self._complain("warning", f"log lines can't be sent to {self._name()}: {reason}")
        self._failing = True

    def _works(self) -> None:
        self._wait = self._period
        if self._failing:
            self._complain("info", f"log lines are sent to {self._name()} again")
        self._failing = False

    def _name(self) -> str:
        return f"{self._url.hostname}:{_port(self._url)}"


def _port(url: SplitResult) -> int:
    return url.port if url.port is not None else _SCHEMES.get(url.scheme, 0)


def _trusting(authorities: str) -> ssl.SSLContext:
    """A context that trusts what the system trusts, and these."""
    context = ssl.create_default_context()
    if authorities:
        try:
            context.load_verify_locations(cadata=authorities)
        except ssl.SSLError as error:
            raise ValueError(f"the authorities can't be read: {error}") from None
    return context
