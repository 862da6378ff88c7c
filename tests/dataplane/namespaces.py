"""Network namespaces without names, and processes in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.testbed.process import Process, wait_until

_HERE = Path(__file__).parent
# Nothing but the standard library, so that it starts at once.
_PYTHON = (sys.executable, "-I", "-S")


class Target(NamedTuple):
    """Whom to ask: protocol `tcp` or `udp`, an address of either family, a port."""

    protocol: str
    address: str
    port: int


class Identity(NamedTuple):
    """The user that a process runs as; it has no supplementary groups."""

    uid: int
    gid: int

    def __str__(self) -> str:
        return f"{self.uid}:{self.gid}"


ROOT = Identity(0, 0)


class NetworkNamespace:
    """A network namespace that is gone when the process that holds it ends, however it ends."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        # As the pause container of a Pod.
        self._holder = Process(name, ["unshare", "--net", "sleep", "infinity"], folder)
        try:
            wait_until(self._is_apart, f"{name} has a network namespace", processes=[self._holder])
            self.run("ip", "link", "set", "lo", "up")
        except BaseException:
            self._holder.stop()
            raise

    @property
    def pid(self) -> int:
        """The process that holds it."""
        return self._holder.pid

    @property
    def path(self) -> Path:
        """Where it can be entered."""
        return Path(f"/proc/{self.pid}/ns/net")

    def run(self, *command: str, text: str = "") -> str:
        """Run a command in it, with a text as its input; returns what it writes.

        Raises:
            RuntimeError: it failed; the message holds its error output.
        """
        return run(*self._inside(command), text=text)

    def ask(self, targets: Sequence[Target], identity: Identity = ROOT) -> list[str]:
        """What answers each target, asked from here as a user (client.py)."""
        client = (*_PYTHON, str(_HERE / "client.py"), *map(str, identity))
        return json.loads(self.run(*client, text=json.dumps(targets)))

    def serve(
        self, name: str, word: str, targets: Iterable[Target], identity: Identity = ROOT
    ) -> Process:
        """A server that answers with a word (server.py); it listens when this returns."""
        endpoints = ["@".join(map(str, target)) for target in targets]
        command = (*_PYTHON, str(_HERE / "server.py"), *map(str, identity), word, *endpoints)
        server = Process(name, self._inside(command), self._folder)
        try:
            wait_until(lambda: "ready" in server.log.read_text(), name, processes=[server])
        except BaseException:
            server.stop()
            raise
        return server

    def __enter__(self) -> NetworkNamespace:
        """Nothing is left to do: it is there since it was made."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let go of it."""
        self._holder.stop()

    def _inside(self, command: Sequence[str]) -> list[str]:
        return ["nsenter", f"--net={self.path}", "--", *command]

    def _is_apart(self) -> bool:
        return os.readlink(self.path) != os.readlink("/proc/self/ns/net")


def run(*command: str, text: str = "") -> str:
    """Run a command where this process is, with a text as its input; returns what it writes.

    Raises:
        RuntimeError: it failed; the message holds its error output.
    """
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done.stdout
