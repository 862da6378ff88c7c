"""Packs the charm with charmcraft, from what git has or would have of the tree.

    python -m tests.packed.pack

prints the path of the packed charm. What is made lies in the project's cache: charmcraft with its
pinned requirements, and the charm under a name that says what it was packed from.

The charm's dependencies are those of this machine's Python and not of the base's, so such a charm
is for tests. Charmcraft packs only on the base that charmcraft.yaml names; here it is shown that
base's os-release, in a mount namespace of its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.testbed import build

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
# Debian's, since python3-apt, which charmcraft needs, is there for no other.
PYTHON = Path("/usr/bin/python3")
OS_RELEASE = 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n'
_KEPT = 5  # packed charms


class Unavailable(RuntimeError):
    """Nothing can be packed on this machine; the message says why."""


class PackError(RuntimeError):
    """Charmcraft failed; the message is what it said."""


@dataclass(frozen=True)
class Check:
    """What one of charmcraft's linters says."""

    name: str
    result: str
    text: str


def pack() -> Path:
    """The path of the charm that charmcraft packs from the tree, packed now if it has to be.

    Raises:
        Unavailable: it can't be packed on this machine.
        PackError: charmcraft refused.
    """
    files = list(_files())
    folder = _cache() / f"charm-{_fingerprint(files)}"
    with _alone(folder.name):
        if not list(folder.glob("*.charm")):
            _pack_into(folder, files)
            _forget_old()
    (charm,) = folder.glob("*.charm")
    return charm


def analyse(charm: Path) -> list[Check]:
    """What `charmcraft analyse` says of a packed charm."""
    done = _charmcraft("analyse", "--format=json", str(charm), folder=charm.parent)
    return [
        Check(check["name"], check["result"], check["text"]) for check in json.loads(done.stdout)
    ]


def _files() -> Iterator[Path]:
    """The files that git has or would have, by their place in the tree."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"git can't tell what belongs to the tree: {error}") from error
    for name in sorted(set(listed.stdout.split("\0")) - {""}):
        if (ROOT / name).is_file():
            yield Path(name)


def _fingerprint(files: Iterable[Path]) -> str:
    """A digest of what comes into the charm, and of what packs it."""
    parts = yaml.safe_load((ROOT / "charmcraft.yaml").read_text())["parts"].values()
    names = {name for part in parts for name in part["stage"]}
    digest = hashlib.sha256(REQUIREMENTS.read_bytes() + _python_version().encode())
    for file in files:
        if file.parts[0] not in {"charmcraft.yaml", "requirements.txt", *names}:
            continue
        path = ROOT / file
        digest.update(f"{file}\0{path.stat().st_mode & 0o111}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _pack_into(folder: Path, files: Iterable[Path]) -> None:
    with tempfile.TemporaryDirectory(prefix="packing-", dir=_cache()) as name:
        tree = Path(name, "tree")
        for file in files:
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, tree / file)
        with _told("packing the charm"):
            _charmcraft("pack", "--destructive-mode", "--platform", _platform(), folder=tree)
        (charm,) = tree.glob("*.charm")
        made = Path(name, "made")
        made.mkdir()
        charm.rename(made / charm.name)
        made.rename(folder)


def _forget_old() -> None:
    charms = sorted(_cache().glob("charm-*"), key=lambda path: path.stat().st_mtime)
    for folder in charms[:-_KEPT]:
        shutil.rmtree(folder)


def _charmcraft(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run charmcraft as if this were the charm's base."""
    environment = _environment()
    with tempfile.TemporaryDirectory(prefix="charmcraft-") as state:
        os_release = Path(state, "os-release")
        os_release.write_text(OS_RELEASE)
        script = 'mount --bind "$1" /etc/os-release && shift && exec charmcraft "$@"'
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, "sh", os_release, *arguments],
            cwd=folder,
            env={
                **_inherited(),
                "PATH": f"{environment / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin",
                "XDG_STATE_HOME": state,  # its logs
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    # `analyse` ends with 2 or 3 where a linter objects, and says which one.
    if done.returncode and not (arguments[0] == "analyse" and done.stdout):
        raise PackError(f"charmcraft {' '.join(arguments)}:\n{done.stdout}{done.stderr}")
    return done


def _environment() -> Path:
    """A virtual environment with charmcraft."""
    if reason := _obstacle():
        raise Unavailable(reason)
    pinned = hashlib.sha256(REQUIREMENTS.read_bytes() + _python_version().encode())
    folder = _cache() / f"charmcraft-{pinned.hexdigest()[:16]}"
    with _alone(folder.name):
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            with _told("installing charmcraft"):
                # python3-apt is the system's; all else is pinned, whatever the system has of it.
                _run(PYTHON, "-m", "venv", "--system-site-packages", folder)
                pip = (folder / "bin" / "pip", "install", "--quiet", "--ignore-installed")
                _run(*pip, "--require-hashes", "--requirement", REQUIREMENTS)
            (folder / "ready").touch()
    return folder


def _obstacle() -> str:
    """Why nothing can be packed here; empty if nothing is in the way."""
    if not PYTHON.exists():
        return f"charmcraft needs {PYTHON}"
    probe: list[str | Path] = [PYTHON, "-c", "import apt_pkg, ensurepip"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        return "charmcraft needs the packages python3-apt, python3-dev and python3-venv"
    if not shutil.which("unshare"):
        return "unshare is missing (package util-linux)"
    probe = ["unshare", "--mount", "true"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        return "no mount namespace can be made (no root)"
    return ""


def _inherited() -> dict[str, str]:
    """This process's environment without what would lead a Python elsewhere."""
    own = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in own}


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, env=_inherited(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise PackError(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")


def _python_version() -> str:
    if not PYTHON.exists():
        return ""
    asked = [PYTHON, "-c", "import sys; print(sys.version)"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout


def _platform() -> str:
    """This machine's, by its name in charmcraft.yaml."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def _cache() -> Path:
    folder = build.cache().parent / "packed"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Let nobody else make the same meanwhile; the lock goes with the process."""
    with open(_cache() / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Say what is done, and then how long it took."""
    began = time.monotonic()
    print(f"packed: {what}", file=sys.stderr, flush=True)
    yield
    print(f"packed: {what}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        print(pack())
    except (Unavailable, PackError) as error:
        sys.exit(str(error))
