"""Writes docs/reference/licences.md: the Python packages that ship, and their licences.

The pins in requirements.txt and requirements-webhook.txt say what ships on the charm's base; the
packages' own metadata, as installed beside this, says under which licence. `make licences` runs
it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "licences.md"
SHIPPED = {
    "The charm": "requirements.txt",
    "The webhook's image": "requirements-webhook.txt",
}
# https://documentation.ubuntu.com/ubuntu-for-developers/reference/availability/python/
PYTHON_OF_BASE = {"ubuntu@22.04": "3.10", "ubuntu@24.04": "3.12", "ubuntu@26.04": "3.14"}

# Licences that may ship: none asks anything of a user but to keep its notice.
ALLOWED = frozenset(
    ("Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "PSF-2.0", "Unlicense")
)
_OF_CLASSIFIER = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: ISC License (ISCL)": "ISC",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Python Software Foundation License": "PSF-2.0",
}
_FIELDS = ("License-Expression", "License", "Home-page")
# Where the metadata names only a family, from the licence file that the package carries.
_STATED = {"jinja2": "BSD-3-Clause"}

_HEAD = """\
# Licences of what ships

<!-- Made by `make licences` out of the pins and the packages' metadata; don't edit it by hand. -->

istio-init-egress is under the [Apache License 2.0](../../LICENSE). Packed with it, on {base}
(Python {python}), are the Python packages below, each under its own licence; their licence files
are inside. The image also holds Ubuntu packages, whose licences are in its
`/usr/share/doc/*/copyright`. Each release carries the same lists as CycloneDX documents, which
`make sbom` writes.
"""


class UnknownLicence(ValueError):
    """A package's licence can't be told, or may not ship; the message says what to do."""


@dataclass(frozen=True)
class Package:
    """A package that ships.

    Attributes:
        name: as pinned.
        version: as pinned.
        licence: an SPDX expression.
        source: the URL of its source; empty if its metadata has none.
    """

    name: str
    version: str
    licence: str
    source: str


def base() -> str:
    """The base that charmcraft.yaml names."""
    return yaml.safe_load((ROOT / "charmcraft.yaml").read_text())["base"]


def pins(text: str, python: str) -> dict[str, str]:
    """The versions that a requirements file pins on Linux, by name.

    Args:
        text: the file.
        python: the version of Python, such as 3.12.
    """
    environment = {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }
    found = (Requirement(line) for line in _requirements(text))
    return {
        one.name: str(one.specifier).removeprefix("==")
        for one in found
        if one.marker is None or one.marker.evaluate(environment)
    }


def _requirements(text: str) -> Iterator[str]:
    """The lines of a requirements file that name a package, without hashes and comments."""
    for line in text.splitlines():
        if re.match(r"[A-Za-z0-9]", line):
            yield line.removesuffix("\\").strip()


def licence(name: str, fields: Mapping[str, str], classifiers: list[str]) -> str:
    """The licence that a package's metadata names, as an SPDX expression.

    Args:
        name: of the package.
        fields: its metadata, `License-Expression` and `License` among it where it has them.
        classifiers: its trove classifiers.

    Raises:
        UnknownLicence: the metadata names none, or one that may not ship.
    """
    known = sorted({_OF_CLASSIFIER[one] for one in classifiers if one in _OF_CLASSIFIER})
    text = fields.get("License", "")
    found = (
        fields.get("License-Expression")
        or _STATED.get(name)
        or (text if text in ALLOWED else "")
        or " OR ".join(known)
    )
    parts = set(re.split(r" (?:AND|OR) ", found.replace("(", "").replace(")", "")))
    if not parts <= ALLOWED:
        raise UnknownLicence(
            f"{name}: {found or 'its metadata names no licence'}; read its licence file, then add "
            "it to _STATED or ALLOWED in tools/licences.py, or ship another package"
        )
    return found


def package(name: str, version: str) -> Package:
    """What the installed package says of itself.

    Raises:
        UnknownLicence: it isn't installed in that version, or its licence can't ship.
    """
    try:
        found = metadata(name)
    except PackageNotFoundError:
        found = None
    if found is None or found["Version"] != version:
        raise UnknownLicence(
            f"{name} {version} isn't installed: use the Python of {base()}, "
            f"{PYTHON_OF_BASE[base()]}, or a newer one, and `make licences`"
        )
    fields = {name: found[name] for name in _FIELDS if name in found}
    classifiers = found.get_all("Classifier") or []
    urls = found.get_all("Project-URL") or []
    source = _source(urls) or fields.get("Home-page", "")
    return Package(name, version, licence(name, fields, classifiers), source)


def _source(urls: list[str]) -> str:
    labelled = {label.strip().lower(): url.strip() for label, _, url in map(_split, urls)}
    for label in ("source", "source code", "repository", "github", "homepage"):
        if label in labelled:
            return labelled[label]
    return ""


def _split(url: str) -> tuple[str, str, str]:
    return url.partition(",")


def page() -> str:
    """The whole page.

    Raises:
        UnknownLicence: of a package whose licence can't be told, or may not ship.
    """
    python = PYTHON_OF_BASE[base()]
    parts = [_HEAD.format(base=base(), python=python)]
    for title, name in SHIPPED.items():
        rows = [
            f"| {_linked(package(*pin))} | {pin[1]} | {package(*pin).licence} |"
            for pin in sorted(pins((ROOT / name).read_text(), python).items())
        ]
        table = "\n".join(["| package | version | licence |", "|---|---|---|", *rows])
        parts.append(f"## {title}\n\n{table}\n")
    return "\n".join(parts)


def _linked(shipped: Package) -> str:
    return f"[{shipped.name}]({shipped.source})" if shipped.source else shipped.name


def main() -> int:
    """Write the page; returns the exit code."""
    try:
        text = page()
    except UnknownLicence as error:
        print(f"licences: {error}", file=sys.stderr)
        return 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
