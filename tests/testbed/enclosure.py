"""A place for processes that mount, fork and limit: nothing that they make outlasts it.

Inside, the folders where a node's software keeps its state are folders of the testbed's, mounts
are seen by nobody else, and process ids count from one. When the first process in it ends, the
kernel kills all others, whoever started them, and the mounts go with the last; and the first one
ends with the process that made the enclosure, however that ends.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.process import Process, wait_until

_OWN = ("run", "var/lib", "var/log")
_UNSHARE = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")
# A node's software wants its mounts shared; with the machine they are shared no more. The shell
# stays to reap whoever is left an orphan.
_FIRST = f"""
mount --make-rshared / || exit
for place in {" ".join(_OWN)}; do mount --bind "$1/$place" "/$place" || exit; done
touch "$1/ready"
trap exit TERM
sleep infinity & wait
"""


@dataclass(frozen=True)
class Enclosure:
    """An enclosure that is there."""

    process: Process

    def command(self, *words: str | Path) -> list[str | Path]:
        """The command line that runs a command inside."""
        namespaces = f"/proc/{self.process.pid}/ns"
        enter = f"--mount={namespaces}/mnt", f"--pid={namespaces}/pid_for_children"
        return ["nsenter", *enter, "--", *words]

    def run(self, *words: str | Path) -> str:
        """Run a command inside and return what it prints."""
        done = subprocess.run(self.command(*words), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr or done.stdout}")
        return done.stdout


@contextmanager
def enclosure(name: str, folder: Path) -> Iterator[Enclosure]:
    """Make an enclosure that keeps in `folder` what its processes keep in /run and /var."""
    for place in _OWN:
        Path(folder, place).mkdir(parents=True)
    command = [*_UNSHARE, "--mount-proc", "sh", "-c", _FIRST, name, folder]
    with Process(name, command, folder) as process:
        try:
            ready = folder / "ready"
            wait_until(ready.exists, f"{name} is there", deadline=10, processes=[process])
            yield Enclosure(process)
        finally:
            # To the first process, which unshare(1) doesn't hand it to; the kernel ends the rest.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


@contextmanager
def control_group(name: str) -> Iterator[str]:
    """Make a control group in each hierarchy of this machine, and remove it with all below it."""
    folders = [hierarchy / name for hierarchy in hierarchies()]
    for folder in folders:
        folder.mkdir()
    try:
        yield f"/{name}"
    finally:
        wait_until(lambda: _remove(folders), f"the control groups {name} are empty", deadline=20)


def hierarchies() -> list[Path]:
    """Where the kernel's control groups are: one place in version 2, several in version 1."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(place) for _, place, kind, *_ in mounts if kind in ("cgroup", "cgroup2")]


def _remove(folders: list[Path]) -> bool:
    for folder in folders:
        for place, _, _ in os.walk(folder, topdown=False):
            os.rmdir(place)
    return True
