"""The workflows are as GitHub reads them, and name what the repository has.

actionlint is built from its Go module. zizmor looks for weaknesses as part of `make check`, and
Dependabot says itself when a folder that it watches is not there.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed import build

ROOT = Path(__file__).resolve().parents[2]
TEXT = "\n".join(path.read_text() for path in (ROOT / ".github" / "workflows").iterdir())
CHARMCRAFT: dict[str, Any] = yaml.safe_load((ROOT / "charmcraft.yaml").read_text())
ROCKCRAFT: dict[str, Any] = yaml.safe_load((ROOT / "rockcraft.yaml").read_text())
ACTIONLINT = build.Module(
    "actionlint", {"actionlint": "github.com/rhysd/actionlint/cmd/actionlint"}
)


def named(pattern: str) -> set[str]:
    """What the workflows name after something, such as make's targets."""
    found = set(re.findall(pattern, TEXT))
    assert found, f"no workflow names {pattern}"
    return found


def version(text: str) -> tuple[int, int]:
    """Major and minor of the first version in a text."""
    match = re.search(r"(\d+)\.(\d+)", text)
    assert match, text
    return int(match[1]), int(match[2])


def test_actionlint_finds_nothing() -> None:
    if not shutil.which("go"):
        pytest.skip("no Go, which builds actionlint")
    checked = subprocess.run(
        [build.product(ACTIONLINT, "actionlint"), "-no-color", "-shellcheck=", "-pyflakes="],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_makes_targets_and_toxs_environments_are_there() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    environments = re.findall(r"^\[testenv:(.+)\]", (ROOT / "tox.ini").read_text(), re.MULTILINE)

    assert named(r"(?m)run: (?:.* )?make ([a-z]+)$") <= set(targets)
    assert named(r"\btox -e ([\w-]+)") <= set(environments)


def test_the_platforms_that_are_built_are_those_declared() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "build.yaml").read_text())["jobs"]
    for job, declared in (("charm", CHARMCRAFT), ("rock", ROCKCRAFT)):
        built = jobs[job]["strategy"]["matrix"]["include"]
        assert [one["platform"] for one in built] == list(declared["platforms"])


def test_every_backend_and_the_juju_that_is_assumed_are_on_a_tested_controller() -> None:
    about = CHARMCRAFT["config"]["options"]["backend"]["description"]
    native = re.search(r"native: .*?Kubernetes (\d+\.\d+) and later", about)
    assert native
    assumed = next(a for a in CHARMCRAFT["assumes"] if isinstance(a, str) and "juju" in a)
    kubernetes = {version(one) for one in named(r"kubernetes: (.+)")}
    juju = {version(one) for one in named(r"juju: (.+)")}

    assert min(kubernetes) < version(native[1]) <= max(kubernetes)
    assert min(juju) == version(assumed)
    assert max(juju) >= (4, 0)


def test_the_image_and_the_resources_that_are_published_are_the_charms() -> None:
    (image,) = (resource["upstream-source"] for resource in CHARMCRAFT["resources"].values())
    owner = re.sub(r".*github\.com/([^/]+)/.*", r"\1", CHARMCRAFT["links"]["source"])

    assert image == f"ghcr.io/{owner}/{ROCKCRAFT['name']}:{ROCKCRAFT['version']}"
    assert named(r'upload-resource "\$charm" ([\w-]+)') == set(CHARMCRAFT["resources"])
    assert named(r'--resource="([\w-]+):') == set(CHARMCRAFT["resources"])
    assert named(r"packed/([\w-]+)_\*\.charm") >= {CHARMCRAFT["name"]}


def test_what_is_pinned_is_kept_current() -> None:
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    watched = {
        (update["package-ecosystem"], folder)
        for update in updates
        for pattern in update.get("directories", [update.get("directory")])
        for folder in (ROOT.glob(pattern.strip("/")) if pattern != "/" else [ROOT])
    }
    kinds = {"go.mod": "gomod", "requirements*.in": "pip", "versions.tf": "terraform"}
    pinned = {
        (kind, path.parent)
        for pattern, kind in kinds.items()
        for path in ROOT.rglob(pattern)
        if not path.relative_to(ROOT).parts[0].startswith((".", "build"))
    }

    assert pinned
    assert pinned | {("github-actions", ROOT)} <= watched
