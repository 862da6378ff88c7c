"""What a run takes from its environment: charms, their configuration and their images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.integration import names

ROOT = Path(__file__).parents[2]
PROVIDER = Path(__file__).parent / "gateway_info_provider"

HOW_TO_PACK = "run `charmcraft pack` and set CHARM_PATH to the .charm file that it writes"


class InputError(ValueError):
    """The environment lacks something; the message says what to set."""


@dataclass(frozen=True)
class Deployment:
    """What `juju deploy` is given.

    Attributes:
        charm: the path of a packed charm, or a name on Charmhub.
        channel: the channel of a published charm; None for a packed one.
        config: options that differ from their defaults.
        resources: an image for every OCI resource.
    """

    charm: str
    channel: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)


def read_charmcraft(folder: Path) -> dict[str, Any]:
    """The charmcraft.yaml of a charm's source."""
    return yaml.safe_load((folder / "charmcraft.yaml").read_text())


def charm(environ: Mapping[str, str]) -> Deployment:
    """The charm under test: CHARM_PATH and an image for each of its resources.

    Raises:
        InputError: no packed charm is named, or an image is missing.
    """
    path = environ.get("CHARM_PATH", "")
    if not path:
        raise InputError(f"no packed charm: {HOW_TO_PACK}")
    return Deployment(
        charm=_packed(path, "CHARM_PATH"), resources=images(read_charmcraft(ROOT), environ)
    )


def pilot(environ: Mapping[str, str]) -> Deployment:
    """The other end of gateway-info: ISTIO_PILOT, a packed charm or a name on Charmhub.

    Raises:
        InputError: a path is given where no packed charm is, or the configuration can't be read.
    """
    charm = environ.get("ISTIO_PILOT") or names.PILOT
    config = _settings(environ.get("ISTIO_PILOT_CONFIG", ""))
    if "/" in charm or charm.endswith(".charm"):
        return Deployment(charm=_packed(charm, "ISTIO_PILOT"), config=config)
    return Deployment(
        charm=charm, channel=environ.get("ISTIO_PILOT_CHANNEL") or "1.28/stable", config=config
    )


def images(charmcraft: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """An image for every OCI resource that a charm declares.

    Raises:
        InputError: naming every variable that is missing, where the charm names no image itself.
    """
    resources = charmcraft.get("resources") or {}
    found = {
        name: environ.get(image_variable(name)) or resource.get("upstream-source", "")
        for name, resource in resources.items()
        if resource["type"] == "oci-image"
    }
    missing = [image_variable(name) for name, image in found.items() if not image]
    if missing:
        raise InputError(f"no image for every resource: set {', '.join(missing)}")
    return found


def image_variable(resource: str) -> str:
    """The environment variable that names the image of a resource."""
    return f"{resource.upper().replace('-', '_')}_IMAGE"


def _packed(path: str, variable: str) -> str:
    """An absolute path: Juju takes a path without a leading `/` or `.` for a name on Charmhub."""
    if not path.endswith(".charm") or not Path(path).is_file():
        raise InputError(f"{variable}={path} is no packed charm; {HOW_TO_PACK}")
    return str(Path(path).absolute())


def _settings(text: str) -> dict[str, str]:
    """`key=value` pairs that stand apart by spaces."""
    pairs = [pair.partition("=") for pair in text.split()]
    faulty = [key for key, equals, _ in pairs if not key or not equals]
    if faulty:
        raise InputError(f"ISTIO_PILOT_CONFIG is no list of key=value: {', '.join(faulty)}")
    return {key: value for key, _, value in pairs}
