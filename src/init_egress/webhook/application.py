"""Answers the HTTP requests of the HTTPS port, by granian's RSGI.

The interface: https://github.com/emmett-framework/granian/blob/master/docs/spec/RSGI.md
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from time import perf_counter

import msgspec
from granian.rsgi import (
    HTTPProtocol,  # pyright: ignore[reportPrivateImportUsage] - it is RSGI's public name
    ProtocolClosed,  # pyright: ignore[reportPrivateImportUsage] - it is RSGI's public name
    Scope,
)

from init_egress.rule.decision import PatchOperation
from init_egress.telemetry.logs import log, log_exception, now, traceback_of, write
from init_egress.telemetry.plain_http import LIVE, READY, TEXT
from init_egress.webhook import review
from init_egress.webhook.health import Health
from init_egress.webhook.metrics import Metrics
from init_egress.webhook.review import Context

PATH = "/mutate"

BODY_LIMIT_BYTES = 8 * 1024 * 1024
"""The API server accepts requests of up to 3 MiB, and a review may hold an object twice."""

_Headers = list[tuple[str, str]]
_JSON: _Headers = [("content-type", "application/json")]
_TEXT: _Headers = [("content-type", TEXT)]
_CLOSE = ("connection", "close")


class TooLarge(ValueError):
    """The body is over the limit."""


class Application:
    """Answers requests: reviews, and health."""

    def __init__(self, context: Context, health: Health, metrics: Metrics) -> None:
        self._context = context
        self._health = health
        self._metrics = metrics

    async def __rsgi__(self, scope: Scope, proto: HTTPProtocol) -> None:
        """Answer one request. A failure is answered too, and never ends the process."""
        started = perf_counter()
        try:
            if scope.path != PATH or scope.method != "POST":
                return self._answer_other(scope, proto)
            length = scope.headers.get("content-length")
            # One coroutine and few calls: this runs for every review.
            if length is not None and int(length) <= BODY_LIMIT_BYTES:
                body = await proto()
            else:
                body = await _read_limited(length, proto)
            answer = review.answer(body, self._context)
            proto.response_bytes(200, self._headers(_JSON), answer.body)
            self._metrics.count_review(answer.verdict, answer.dry_run, perf_counter() - started)
            if answer.patch or answer.error or answer.verdict == review.UNREADABLE:
                _log_answer(answer)
        except ProtocolClosed:
            return  # the client went away before it had sent the whole request
        except TooLarge as error:
            self._refuse(proto, 413, str(error))
        except review.NotAReview as error:
            self._refuse(proto, 400, str(error))
        except Exception as error:
            log_exception("request failed", error, path=scope.path)
            self._refuse(proto, 500, "internal error; see the webhook's log")

    def _answer_other(self, scope: Scope, proto: HTTPProtocol) -> None:
        if scope.path not in (PATH, LIVE, READY):
            text = f"not found; the paths are {PATH}, {LIVE} and {READY}\n"
            proto.response_str(404, self._headers(_TEXT), text)
        elif scope.path == PATH or scope.method not in ("GET", "HEAD"):
            method = "POST" if scope.path == PATH else "GET"
            headers = [*self._headers(_TEXT), ("allow", method)]
            proto.response_str(405, headers, f"method not allowed; use {method}\n")
        else:
            status, text = self._health.answer(scope.path)
            proto.response_str(status, self._headers(_TEXT), text)

    def _refuse(self, proto: HTTPProtocol, status: int, reason: str) -> None:
        self._metrics.count_refusal(status)
        log("warning", "request refused", status=status, reason=reason)
        # The unread rest of a body must not be read as the next request.
        headers = [*_TEXT, _CLOSE] if status == 413 else self._headers(_TEXT)
        with contextlib.suppress(Exception):  # the client may have gone
            proto.response_str(status, headers, reason + "\n")

    def _headers(self, headers: _Headers) -> _Headers:
        return [*headers, _CLOSE] if self._health.draining else headers


async def _read_limited(length: str | None, proto: HTTPProtocol) -> bytes:
    """Read a body whose length is unknown or over the limit; keep no more than the limit.

    Raises:
        TooLarge: the body is over the limit.
    """
    parts: list[bytes] = []
    size = int(length or 0)
    if size <= BODY_LIMIT_BYTES:
        size = 0
        async for part in proto:
            size += len(part)
            if size > BODY_LIMIT_BYTES:
                break
            parts.append(part)
    if size > BODY_LIMIT_BYTES:
        raise TooLarge(f"the body is over {BODY_LIMIT_BYTES} bytes")
    return b"".join(parts)


class _Line(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The log line of an answer; a struct, since one is written for each Pod that is changed."""

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
