"""The page of licences names what ships, and nothing ships whose licence is not known."""

from __future__ import annotations

import re
import sys

import pytest

from tools import licences

PYTHON = licences.PYTHON_OF_BASE[licences.base()]
ROW = re.compile(r"^\| (?:\[(?P<linked>[^]]+)\]\([^)]+\)|(?P<plain>[\w.-]+)) \| (?P<rest>.*) \|$")


def sections() -> dict[str, dict[str, tuple[str, str]]]:
    """Version and licence of each package of the page, by its heading and name."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for part in licences.PAGE.read_text().split("\n## ")[1:]:
        title, _, table = part.partition("\n")
        rows = [match for line in table.splitlines() if (match := ROW.match(line))]
        found[title] = {
            row["linked"] or row["plain"]: (
                row["rest"].split(" | ")[0],
                row["rest"].split(" | ")[1],
            )
            for row in rows
            if row["plain"] != "package" and row["rest"] != "---|---"
        }
    return found


@pytest.mark.parametrize("title", licences.SHIPPED)
def test_the_page_names_every_package_that_is_pinned(title: str) -> None:
    pinned = licences.pins((licences.ROOT / licences.SHIPPED[title]).read_text(), PYTHON)

    assert {name: version for name, (version, _) in sections()[title].items()} == pinned


@pytest.mark.parametrize("title", licences.SHIPPED)
def test_every_licence_of_the_page_may_ship(title: str) -> None:
    for name, (_, expression) in sections()[title].items():
        parts = set(re.split(" AND | OR ", expression))
        assert parts <= licences.ALLOWED, name


@pytest.mark.parametrize("title", licences.SHIPPED)
def test_the_page_says_what_the_packages_say(title: str) -> None:
    text = (licences.ROOT / licences.SHIPPED[title]).read_text()
    here = licences.pins(text, f"{sys.version_info.major}.{sys.version_info.minor}")
    # A few pins of an older Python are others than those of the base.
    shared = here.items() & licences.pins(text, PYTHON).items()

    assert len(shared) > len(here) / 2
    for name, version in shared:
        assert sections()[title][name] == (version, licences.package(name, version).licence)


def test_where_the_pins_are_those_of_the_base_the_page_is_what_make_licences_writes() -> None:
    if sys.version_info >= (3, 11):
        assert licences.page() == licences.PAGE.read_text()
    else:
        with pytest.raises(licences.UnknownLicence, match="isn't installed"):
            licences.page()


def test_a_pin_for_another_python_or_system_does_not_ship() -> None:
    text = """\
# a comment
old==1.0 ; python_full_version < '3.11' \\
    --hash=sha256:00
new==2.0 ; python_full_version >= '3.11' and sys_platform != 'emscripten' \\
    --hash=sha256:00
browser==3.0 ; sys_platform == 'emscripten'
    # via new
always==4.0.post1 \\
    --hash=sha256:00
"""

    assert licences.pins(text, "3.12") == {"new": "2.0", "always": "4.0.post1"}


@pytest.mark.parametrize(
    ("name", "fields", "classifiers", "expected"),
    [
        ("a", {"License-Expression": "MIT", "License": "BSD"}, [], "MIT"),
        ("a", {"License-Expression": "Apache-2.0 AND (MIT)"}, [], "Apache-2.0 AND (MIT)"),
        (
            "a",
            {"License": "BSD-3-Clause"},
            ["License :: OSI Approved :: MIT License"],
            "BSD-3-Clause",
        ),
        ("a", {"License": "Whole text"}, ["License :: OSI Approved :: MIT License"], "MIT"),
        ("jinja2", {}, ["License :: OSI Approved :: BSD License"], "BSD-3-Clause"),
    ],
)
def test_a_licence_is_told_from_the_metadata(
    name: str, fields: dict[str, str], classifiers: list[str], expected: str
) -> None:
    assert licences.licence(name, fields, classifiers) == expected


@pytest.mark.parametrize(
    ("fields", "classifiers"),
    [
        ({}, []),
        ({}, ["License :: OSI Approved :: BSD License"]),
        ({"License-Expression": "GPL-3.0-only"}, []),
        ({"License-Expression": "MIT AND GPL-2.0-only"}, []),
    ],
)
def test_a_package_whose_licence_is_not_known_is_named(
    fields: dict[str, str], classifiers: list[str]
) -> None:
    with pytest.raises(licences.UnknownLicence, match=r"^parcel: .*tools/licences\.py"):
        licences.licence("parcel", fields, classifiers)


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(licences.UnknownLicence, match=r"no-such-package 1\.0 isn't installed"):
        licences.package("no-such-package", "1.0")
