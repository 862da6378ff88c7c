"""Servers that run as child processes, and waiting for what they do."""

import os
import shutil
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

from lightkube import ApiError

T = TypeVar("T")


class ProcessDiedError(RuntimeError):
    """A server has ended although nobody told it to."""


class Process:
    """A server that runs until it is stopped, and never longer than the process that started it.

    It works in a folder of its own below `folder` and writes to `<folder>/<name>.log`. It has its
    own session, so Ctrl-C reaches only the one who has to stop it in order.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        working_folder = folder / name
        working_folder.mkdir(exist_ok=True)
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [*_dies_with_its_parent(), *command],
                cwd=working_folder,
                env={**_without_proxies(os.environ), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._child.pid

    def check(self) -> None:
        """Raise ProcessDiedError, with the end of its log, if it runs no more."""
        if (code := self._child.poll()) is not None:
            raise ProcessDiedError(f"{self.name} ended with {code}\n{self.log_tail()}")

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of its log."""
        text = self.log.read_text(errors="replace")
        return "\n".join([f"--- {self.log}", *text.splitlines()[-lines:]])

    def stop(self, deadline: float = 10) -> None:
        """Ask it to end, and end it if it has not done so within `deadline` seconds."""
        self._child.terminate()
        try:
            self._child.wait(deadline)
        except subprocess.TimeoutExpired:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()

    def __enter__(self) -> "Process":
        """Nothing is left to do: it runs since it was made."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it."""
        self.stop()


def wait_until(
    condition: Callable[[], T | None],
    what: str,
    *,
    deadline: float = 60,
    processes: Iterable[Process] = (),
) -> T:
    """Ask until the condition holds, and return what it returned.

    While it raises ApiError or OSError it does not hold yet. When one of the processes dies, or
    the deadline passes, the error says what was awaited, what happened last, and the logs' ends.
    """
    processes = tuple(processes)
    end = time.monotonic() + deadline
    while True:
        last: object = None
        try:
            if result := condition():
                return result
            last = result
        except (ApiError, OSError) as error:
            last = error
        for process in processes:
            process.check()
        if time.monotonic() > end:
            logs = "\n".join(process.log_tail() for process in processes)
            raise TimeoutError(f"{what}: not within {deadline:.0f} s; last: {last!r}\n{logs}")
        time.sleep(0.1)


def answers(url: str, authority: Path | None = None) -> bool:
    """Whether a GET is answered with 200; without an authority no certificate is looked at."""
    context = ssl.create_default_context(cafile=authority)
    if authority is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    handlers = ProxyHandler({}), HTTPSHandler(context=context)
    with build_opener(*handlers).open(url, timeout=5) as response:
        return response.status == 200


def _dies_with_its_parent() -> list[str]:
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []


def _without_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if not k.lower().endswith("_proxy")}
