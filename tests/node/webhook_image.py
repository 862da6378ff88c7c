"""The image of the webhook's workload, made to the content of rockcraft.yaml.

rockcraft needs LXD and the network; this needs pip. What goes in is what rockcraft.yaml says: the
packages of its requirements files and of this repository, installed by pip into a virtual
environment, its user, and its service's command as the entry point. The rest differs: this
machine's Python is in it in place of Ubuntu's, and no Pebble; the charm's Deployment starts the
command by itself.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.testbed.build import cache
from tests.testbed.images import VERSION, Image, write_packages_layer

REFERENCE = "example.com/istio-init-egress-webhook:0.1"
_ROOT = Path(__file__).parents[2]
# What `pip install .` reads; in a copy, since it leaves its traces beside it.
_SOURCES = ("pyproject.toml", "README.md", "src")


@dataclass(frozen=True)
class Rock:
    """What rockcraft.yaml says of the image."""

    user: str
    command: Sequence[str]
    arguments: Sequence[str]
    requirements: Sequence[str]
    packages: Sequence[str]


def read_rock(path: Path = _ROOT / "rockcraft.yaml") -> Rock:
    """Read rockcraft.yaml, as far as the image is made of it.

    Raises:
        KeyError: a key is missing.
        ValueError: there is not exactly one part.
    """
    project: dict[str, Any] = yaml.safe_load(path.read_text())
    [part] = project["parts"].values()
    # Pebble's form: what is in brackets is the default of what the user may give.
    command, _, arguments = project["services"][project["entrypoint-service"]][
        "command"
    ].partition("[")
    return Rock(
        user=project["run-user"],
        command=command.split(),
        arguments=arguments.removesuffix("]").split(),
        requirements=part["python-requirements"],
        packages=part["python-packages"],
    )


class PipError(RuntimeError):
    """pip could not install a package; the message is its own."""


def install(rock: Rock, folder: Path) -> Path:
    """Make a folder with all Python packages of the image; what is pinned is fetched only once.

    Raises:
        PipError: a package can't be had.
    """
    packages, sources = folder / "packages", folder / "sources"
    shutil.copytree(_pinned(rock), packages, symlinks=True)
    sources.mkdir()
    for source in _SOURCES:
        _copy(_ROOT / source, sources / source)
    _pip("--no-deps", f"--target={packages}", *rock.packages, folder=sources)
    return packages


def image(rock: Rock, base: Path, packages: Path, folder: Path) -> Image:
    """The image, from the layer with Python and the packages; a layer is written to the folder."""
    layer = write_packages_layer(folder / "webhook.tar", packages)
    return Image(REFERENCE, [base, layer], rock.command, rock.arguments, rock.user)


def _pinned(rock: Rock) -> Path:
    files = [_ROOT / name for name in rock.requirements]
    digest = hashlib.sha256(VERSION.encode())
    for file in files:
        digest.update(file.read_bytes())
    folder = cache() / f"webhook-image-{digest.hexdigest()[:16]}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".webhook-image-", dir=folder.parent))
        flags = [f"--requirement={file}" for file in files]
        _pip("--require-hashes", f"--target={partial}", *flags, folder=_ROOT)
        partial.rename(folder)
    return folder


def _pip(*arguments: str, folder: Path) -> None:
    flags = ("--quiet", "--disable-pip-version-check", "--upgrade")
    command = [sys.executable, "-m", "pip", "install", *flags, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PipError(f"{' '.join(command)}:\n{done.stderr}")


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    else:
        shutil.copyfile(source, target)
