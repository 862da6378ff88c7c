"""What is in the packed charm, and what charmcraft says of it."""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.packed import pack

CHARMCRAFT: dict[str, Any] = yaml.safe_load((pack.ROOT / "charmcraft.yaml").read_text())
# What charmcraft makes of charmcraft.yaml.
MADE = {"actions.yaml", "config.yaml", "dispatch", "manifest.yaml", "metadata.yaml"}
STAGED = {name for part in CHARMCRAFT["parts"].values() for name in part["stage"]}
OURS = sorted(STAGED - {"venv"})


@pytest.fixture(scope="module")
def archive(packed: Path) -> Iterator[zipfile.ZipFile]:
    """The packed charm's files."""
    with zipfile.ZipFile(packed) as archive:
        yield archive


def test_the_charm_holds_what_the_parts_stage_and_nothing_else(archive: zipfile.ZipFile) -> None:
    names = {name.partition("/")[0] for name in archive.namelist()}

    assert names == STAGED | MADE


@pytest.mark.parametrize("folder", OURS)
def test_the_charm_holds_the_trees_files_as_they_are(
    archive: zipfile.ZipFile, folder: str
) -> None:
    command = ["git", "ls-files", "-co", "--exclude-standard", folder]
    listed = subprocess.run(command, cwd=pack.ROOT, capture_output=True, text=True, check=True)
    tree = {name for name in listed.stdout.split() if (pack.ROOT / name).exists()}

    packed = [name for name in archive.namelist() if name.startswith(f"{folder}/")]

    assert {name for name in packed if not name.endswith("/")} == tree
    assert [n for n in tree if archive.read(n) != (pack.ROOT / n).read_bytes()] == []


def test_juju_reads_what_charmcraft_yaml_says(archive: zipfile.ZipFile) -> None:
    metadata, config, actions = (
        yaml.safe_load(archive.read(f"{name}.yaml")) for name in ("metadata", "config", "actions")
    )

    assert config == CHARMCRAFT["config"]
    assert actions == CHARMCRAFT["actions"]
    for key in ("name", "requires", "provides", "resources", "assumes", "charm-user"):
        assert metadata.get(key) == CHARMCRAFT.get(key), key


def test_the_charms_packages_are_those_that_are_pinned(archive: zipfile.ZipFile) -> None:
    pinned = re.findall(
        r"^([\w.-]+)==([\w.]+)", (pack.ROOT / "requirements.txt").read_text(), re.MULTILINE
    )
    folders = {
        found[1]
        for name in archive.namelist()
        if (found := re.match(r"venv/lib/[^/]+/site-packages/([^/]+)\.dist-info/", name))
    }

    packed = {_normal(*folder.rsplit("-", 1)) for folder in folders}

    assert packed <= {_normal(name, version) for name, version in pinned}
    assert {"ops", "lightkube", "jinja2"} <= {name for name, _ in packed}


def test_charmcrafts_linters_have_nothing_against_it(packed: Path) -> None:
    """All that charmcraft 4.5 has; `nonapplicable` says that there is nothing to look at.

    Three of them read the last word of the dispatch script as a path, and charmcraft's own script
    ends with "${dispatch_path}/src/charm.py", which is none for them (charmcraft/linters.py,
    get_entrypoint_from_dispatch). What they would look for is the next test's.
    """
    results = {check.name: check.result for check in pack.analyse(packed)}

    assert results == {
        "metadata": "ok",
        "juju-actions": "ok",
        "juju-config": "ok",
        "naming-conventions": "ok",
        "pip-check": "ok",
        "pydeps": "nonapplicable",  # no charm libraries
        "additional-files": "nonapplicable",  # it was looked at while packing
        "language": "unknown",
        "framework": "unknown",
        "ops-main-call": "nonapplicable",
        "entrypoint": "error",
    }


def test_the_dispatch_script_starts_the_charm(archive: zipfile.ZipFile) -> None:
    script = archive.read("dispatch").decode()
    *_, last = script.strip().splitlines()
    entry = archive.getinfo("src/charm.py")

    assert last == 'exec "${python_path}" "${dispatch_path}/src/charm.py"'
    assert (archive.getinfo("dispatch").external_attr >> 16) & os.X_OK
    assert (entry.external_attr >> 16) & os.X_OK
    assert "ops.main(" in archive.read(entry).decode()


def _normal(name: str, version: str) -> tuple[str, str]:
    return re.sub(r"[-_.]+", "-", name).lower(), version
