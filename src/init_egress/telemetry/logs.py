"""Log lines as JSON, on standard error.

The webhook writes a line for each Pod that it changes, so a line is one encoding and one write.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from datetime import datetime, timezone

import msgspec

_encoder = msgspec.json.Encoder(enc_hook=str)
_sinks: list[Callable[[bytes], None]] = []


def now() -> datetime:
    """The time for a line."""
    return datetime.now(timezone.utc)


def write_also_to(sink: Callable[[bytes], None]) -> None:
    """Pass every line from now on to a sink too, which must not block or raise."""
    _sinks.append(sink)


def write(line: object) -> None:
    """Write one line of JSON to standard error; a line that cannot be written is lost."""
    encoded = _encoder.encode(line)
    stream = sys.stderr.buffer
    try:
        stream.write(encoded + b"\n")
        stream.flush()
    except OSError:
        pass
    for sink in _sinks:
        sink(encoded)


def log(level: str, message: str, **fields: object) -> None:
    """Write one line of JSON to standard error.

    Args:
        level: info, warning or error.
        message: what happened, in the same words each time.
        fields: what it happened to.
    """
    write({"time": now(), "level": level, "message": message, **fields})


def log_exception(message: str, error: BaseException, **fields: object) -> None:
    """Write one line of JSON about an exception, with its traceback."""
    log("error", message, **fields, error=str(error), traceback=traceback_of(error))


def traceback_of(error: BaseException) -> str:
    """The traceback as Python prints it."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


class LogHandler(logging.Handler):
    """Writes the records of libraries in the same format."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record. logging reports a failure to do so."""
        try:
            fields = {"logger": record.name}
            if record.exc_info and record.exc_info[1]:
                fields["traceback"] = traceback_of(record.exc_info[1])
            log(record.levelname.lower(), record.getMessage(), **fields)
        except Exception:
            self.handleError(record)
