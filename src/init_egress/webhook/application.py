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

from init_egress.rule.patch import PatchOperation
from init_egress.telemetry.logs import log, log_exception, now, traceback_of, write
from init_egress.telemetry.plain_http import LIVE, READY, TEXT
from init_egress.webhook import review
from init_egress.webhook.bodies import (
    SMALL_BODY_BYTES,
    Incomplete,
    LargeBodies,
    Overloaded,
    TooLarge,
)
from init_egress.webhook.health import Health
from init_egress.webhook.metrics import Metrics
from init_egress.webhook.review import Context

PATH = "/mutate"

# The most that a log line shows of a Pod: its author decides how large it is.
_TEXT_LIMIT = 1024
_NAME_LIMIT = 253
_PATCH_LIMIT = 16
_TRACEBACK_LIMIT = 8192

_Headers = list[tuple[str, str]]
_JSON: _Headers = [("content-type", "application/json")]
_TEXT: _Headers = [("content-type", TEXT)]
_CLOSE = ("connection", "close")


class Application:
    """Answers requests: reviews, and health."""

    def __init__(self, context: Context, health: Health, metrics: Metrics) -> None:
        self._context = context
        self._health = health
        self._metrics = metrics
        self._bodies = LargeBodies()

    async def __rsgi__(self, scope: Scope, proto: HTTPProtocol) -> None:
        """Answer one request. A failure is answered too, and never ends the process."""
        started = perf_counter()
        try:
            if scope.path != PATH or scope.method != "POST":
                return self._answer_other(scope, proto)
            length = scope.headers.get("content-length")
            # One coroutine and few calls: this runs for every review.
            if length is not None and int(length) <= SMALL_BODY_BYTES:
                body = await proto()
            else:
                body = await self._bodies.read(length, proto)
            answer = review.answer(body, self._context)
            proto.response_bytes(200, self._headers(_JSON), answer.body)
            self._metrics.count_review(answer.verdict, answer.dry_run, perf_counter() - started)
            if answer.patch or answer.error or answer.verdict == review.UNREADABLE:
                _log_answer(answer)
        except (ProtocolClosed, Incomplete):
            return  # the client went away before it had sent the whole request
        except TooLarge as error:
            self._refuse(proto, 413, str(error))
        except Overloaded as error:
            self._refuse(proto, 503, str(error))
        except review.NotAReview as error:
            self._refuse(proto, 400, str(error))
        except Exception as error:
            log_exception("request failed", error, path=scope.path[:_NAME_LIMIT])
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
        headers = [*_TEXT, _CLOSE] if status in (413, 503) else self._headers(_TEXT)
        with contextlib.suppress(Exception):  # the client may have gone
            proto.response_str(status, headers, reason + "\n")

    def _headers(self, headers: _Headers) -> _Headers:
        return [*headers, _CLOSE] if self._health.draining else headers


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
    further_changes: int = 0
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
        answer.namespace[:_NAME_LIMIT],
        answer.name[:_NAME_LIMIT],
        answer.uid[:_NAME_LIMIT],
        answer.verdict,
        _short(answer.reason),
        tuple([_shown(change) for change in answer.patch[:_PATCH_LIMIT]]),
        max(0, len(answer.patch) - _PATCH_LIMIT),
        traceback_of(answer.error)[-_TRACEBACK_LIMIT:] if answer.error else "",
    )
    write(line)


def _shown(change: PatchOperation) -> PatchOperation:
    """A change as a line shows it: the value of an annotation may be 256 KiB."""
    value = change.value
    if not isinstance(value, str) or len(value) <= _TEXT_LIMIT:
        return change
    return PatchOperation(change.op, change.path, _short(value))


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_LIMIT else text[: _TEXT_LIMIT - 1] + "…"
