"""Reads large request bodies within a bound of memory."""

from __future__ import annotations

from granian.rsgi import HTTPProtocol  # pyright: ignore[reportPrivateImportUsage] - RSGI's name

BODY_LIMIT_BYTES = 8 * 1024 * 1024
"""The API server accepts requests of up to 3 MiB, and a review may hold an object twice."""
SMALL_BODY_BYTES = 128 * 1024
"""Bodies up to this size are bounded by the number of connections, and read in one call."""
TOTAL_LIMIT_BYTES = 32 * 1024 * 1024
"""For all large bodies together."""


class TooLarge(ValueError):
    """The body is over the limit."""


class Overloaded(RuntimeError):
    """The body was dropped, since all bodies together were over the limit."""


class Incomplete(RuntimeError):
    """The client went away before it had sent the whole body."""


class _Body:
    __slots__ = ("dropped", "parts", "size")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self.dropped = False


class LargeBodies:
    """The large bodies that are being read, bounded in total.

    When they exceed the total, the one that was begun first is dropped. A body takes milliseconds
    to arrive, so the oldest is one whose client has stalled, and others are read meanwhile.
    """

    def __init__(
        self, limit: int = BODY_LIMIT_BYTES, total_limit: int = TOTAL_LIMIT_BYTES
    ) -> None:
        self._limit = limit
        self._total_limit = total_limit
        self._total = 0
        self._open: dict[_Body, None] = {}

    async def read(self, length: str | None, proto: HTTPProtocol) -> bytes:
        """Read one body.

        Args:
            length: the header content-length; None if the client did not send it.
            proto: the request.

        Raises:
            TooLarge: the body is over the limit.
            Overloaded: the body was dropped in favour of later ones.
            Incomplete: the client went away.
        """
        announced = int(length) if length is not None else None
        if announced is not None and announced > self._limit:
            raise TooLarge(f"the body is over {self._limit} bytes")
        body = _Body()
        self._open[body] = None
        try:
            async for part in proto:
                self._add(body, part)
            if announced is not None and body.size != announced:
                raise Incomplete
            return b"".join(body.parts)
        finally:
            self._drop(body)

    def _add(self, body: _Body, part: bytes) -> None:
        if body.dropped:
            raise Overloaded("too many large bodies at once")
        body.parts.append(part)
        body.size += len(part)
        self._total += len(part)
        if body.size > self._limit:
            raise TooLarge(f"the body is over {self._limit} bytes")
        while self._total > self._total_limit:
            self._drop(next(iter(self._open)))

    def _drop(self, body: _Body) -> None:
        """Free the memory of a body; its reader notices with the next part."""
        if body.dropped:
            return
        del self._open[body]
        self._total -= body.size
        body.dropped = True
        body.parts = []
