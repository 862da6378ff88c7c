"""What a node leaves behind on the machine: nothing, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.testbed.enclosure import enclosure
from tests.testbed.node import missing
from tests.testbed.process import wait_until

# A mount, and a process that nobody waits for.
_MESS = """
mount -t tmpfs {name} /run && touch /run/here
setsid bash -c 'exec -a {name} sleep 1000' >/dev/null 2>&1 &
"""
_KILLED = """
import os, pathlib, signal, sys
from tests.testbed.enclosure import enclosure
with enclosure("enclosure", pathlib.Path(sys.argv[1])) as place:
    place.run("bash", "-c", sys.argv[2])
    print("made", flush=True)
    signal.pause()
"""


@pytest.fixture(autouse=True)
def _possible() -> None:
    if reason := missing():
        pytest.skip(reason)


@pytest.fixture
def name() -> str:
    """What the mess is found by."""
    return f"mess-{uuid.uuid4()}"


def test_what_is_started_and_mounted_inside_is_gone_with_it(tmp_path: Path, name: str) -> None:
    with enclosure("enclosure", tmp_path / "enclosure") as place:
        place.run("bash", "-c", _MESS.format(name=name))
        assert place.run("ls", "/run") == "here\n"
        wait_until(lambda: running(name), "the orphan runs")
        assert not Path("/run/here").exists()
        assert name not in Path("/proc/self/mounts").read_text()

    assert not running(name)


@pytest.mark.nightly
def test_it_is_gone_too_if_who_made_it_is_killed(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-c", _KILLED, tmp_path / "enclosure", _MESS.format(name=name)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as maker:
        assert maker.stdout
        assert maker.stdout.readline() == b"made\n"
        wait_until(lambda: running(name), "the orphan runs")
        maker.send_signal(signal.SIGKILL)

    wait_until(lambda: not running(name), "the orphan is gone", deadline=10)


def running(name: str) -> bool:
    """Whether a process of this machine has been given the name."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if process.read_bytes().split(b"\0")[0] == name.encode():
                return True
        except OSError:  # it has just ended
            continue
    return False
