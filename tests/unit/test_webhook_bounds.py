"""What the webhook holds of its clients' connections and bodies, and what its probes say."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from init_egress.telemetry.plain_http import LIVE, READY
from init_egress.webhook import health as health_module
from init_egress.webhook.bodies import Incomplete, LargeBodies, Overloaded, TooLarge
from init_egress.webhook.connections import (
    EXCESS,
    UNFINISHED,
    ConnectionGuard,
    Judge,
    Traffic,
)
from init_egress.webhook.health import LIVE_SECONDS, READY_SECONDS, Health
from init_egress.webhook.inputs import Certificate

# --- Connections ---------------------------------------------------------------------------------

IDLE = Traffic(sent_ago=1.0, received_ago=1.1, acknowledged=100, received=100)
BEGUN = Traffic(sent_ago=1.1, received_ago=1.0, acknowledged=100, received=100)
SILENT = Traffic(sent_ago=1.0, received_ago=1.0, acknowledged=0, received=0)
A, B, C = ("10.0.0.1", 1), ("10.0.0.2", 1), ("10.0.0.2", 2)


@pytest.mark.parametrize("traffic", [BEGUN, SILENT])
def test_a_request_that_lasts_too_long_ends_its_connection(traffic: Traffic) -> None:
    judge = Judge(request_seconds=10)
    assert judge.condemned({A: traffic, B: IDLE}, 0.0) == {}
    assert judge.condemned({A: traffic, B: IDLE}, 10.0) == {}
    assert judge.condemned({A: traffic, B: IDLE}, 10.1) == {A: UNFINISHED}


def test_an_answer_ends_the_time_of_a_request() -> None:
    judge = Judge(request_seconds=10)
    answered = Traffic(sent_ago=1.1, received_ago=1.0, acknowledged=200, received=200)
    judge.condemned({A: BEGUN}, 0.0)
    assert judge.condemned({A: answered}, 10.1) == {}
    assert judge.condemned({A: answered}, 20.0) == {}
    assert judge.condemned({A: answered}, 20.2) == {A: UNFINISHED}


def test_a_port_that_another_connection_takes_over_starts_at_zero() -> None:
    judge = Judge(request_seconds=10)
    judge.condemned({A: BEGUN}, 0.0)
    judge.condemned({}, 5.0)
    assert judge.condemned({A: BEGUN}, 10.1) == {}


def test_above_the_limit_the_connections_that_were_silent_for_longest_end() -> None:
    seen = {
        peer: Traffic(sent_ago=0.0, received_ago=ago, acknowledged=1, received=1)
        for peer, ago in ((A, 3.0), (B, 1.0), (C, 2.0))
    }
    assert Judge(limit=3).condemned(seen, 0.0) == {}
    assert Judge(limit=1).condemned(seen, 0.0) == {A: EXCESS, C: EXCESS}


class _Everything(Judge):
    """Condemns all that it sees."""

    def condemned(self, seen: dict[Any, Traffic], now: float) -> dict[Any, str]:
        return dict.fromkeys(seen, EXCESS)


@contextmanager
def connected(listener: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    with closing(socket.create_connection(listener.getsockname()[:2], 10)) as client:
        accepted, _ = listener.accept()
        with closing(accepted):
            yield client, accepted


def test_a_scan_shuts_down_connections_to_its_port_and_no_others() -> None:
    counted: list[str] = []
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as ours,
        closing(socket.create_server(("127.0.0.1", 0))) as others,
        connected(ours) as (client, _),
        connected(others) as (spared, peer_of_spared),
    ):
        ConnectionGuard(ours.getsockname()[1], _Everything(), counted.append).scan()
        assert client.recv(1) == b""
        peer_of_spared.sendall(b"x")
        assert spared.recv(1) == b"x"
        with connected(ours) as (later, accepted):
            accepted.sendall(b"x")
            assert later.recv(1) == b"x"
    assert counted == [EXCESS]


# --- Bodies --------------------------------------------------------------------------------------


class _Request:
    """A request whose parts are sent by the test."""

    def __init__(self, *parts: bytes) -> None:
        self.parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        for part in parts:
            self.parts.put_nowait(part)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (part := await self.parts.get()) is not None:
            yield part

    def end(self) -> _Request:
        self.parts.put_nowait(None)
        return self


def read(bodies: LargeBodies, request: Any, length: str | None = None) -> bytes:
    return asyncio.run(bodies.read(length, request))


def test_the_parts_of_a_body_are_joined() -> None:
    assert read(LargeBodies(), _Request(b"ab", b"c").end()) == b"abc"
    assert read(LargeBodies(), _Request(b"ab", b"c").end(), "3") == b"abc"


def test_a_body_over_the_limit_is_refused_before_it_is_read_if_it_says_so() -> None:
    with pytest.raises(TooLarge, match="over 2 bytes"):
        read(LargeBodies(limit=2), _Request(), "3")
    with pytest.raises(TooLarge, match="over 2 bytes"):
        read(LargeBodies(limit=2), _Request(b"ab", b"c"))


def test_a_body_whose_client_went_away_is_not_taken_for_a_whole_one() -> None:
    with pytest.raises(Incomplete):
        read(LargeBodies(), _Request(b"ab").end(), "3")


def test_above_the_total_the_body_that_was_begun_first_is_dropped() -> None:
    async def story() -> None:
        bodies: Any = LargeBodies(limit=4, total_limit=5)
        stalled = _Request(b"abc")
        first = asyncio.ensure_future(bodies.read(None, stalled))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for _ in range(3):
            assert await bodies.read(None, _Request(b"defg").end()) == b"defg"
        stalled.parts.put_nowait(b"d")
        with pytest.raises(Overloaded):
            await first
        # What was dropped is no longer counted.
        again = _Request(b"a")
        second = asyncio.ensure_future(bodies.read(None, again))
        await asyncio.sleep(0)
        assert await bodies.read(None, _Request(b"defg").end()) == b"defg"
        again.end()
        assert await second == b"a"

    asyncio.run(story())


# --- Probes --------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as its only element."""
    time = [1000.0]
    monkeypatch.setattr(health_module.time, "monotonic", lambda: time[0])
    return time


NEVER = datetime.max.replace(tzinfo=timezone.utc)


def health(expiry: datetime = NEVER) -> Health:
    return Health(Certificate(Path("nowhere"), expiry, ""))


def test_it_is_live_but_not_ready_until_the_https_port_has_answered(clock: list[float]) -> None:
    found = health()
    clock[0] += 1000
    assert found.answer(LIVE)[0] == 200
    assert found.answer(READY) == (503, "not listening yet\n")
    found.answered()
    assert found.answer(READY) == (200, "ok\n")


def test_silence_of_the_https_port_ends_readiness_and_then_liveness(clock: list[float]) -> None:
    found = health()
    found.answered()
    clock[0] += READY_SECONDS + 1
    assert found.answer(READY) == (503, "the HTTPS port has not answered for 7 s\n")
    assert found.answer(LIVE)[0] == 200
    clock[0] += LIVE_SECONDS
    assert found.answer(LIVE) == (503, "the HTTPS port has not answered for 37 s\n")
    found.answered()
    assert (found.answer(LIVE)[0], found.answer(READY)[0]) == (200, 200)


def test_a_replica_that_drains_is_unready_and_never_restarted(clock: list[float]) -> None:
    found = health()
    found.answered()
    found.draining = True
    clock[0] += 1000
    assert found.answer(READY) == (503, "shutting down\n")
    assert found.answer(LIVE)[0] == 200


def test_an_expired_certificate_ends_readiness(clock: list[float]) -> None:
    found = health(datetime(2020, 1, 1, tzinfo=timezone.utc))
    found.answered()
    assert found.answer(READY) == (503, "the certificate expired at 2020-01-01T00:00:00+00:00\n")
