"""The workflows, and what keeps dependencies current, name only what is there.

They run where no test of ours can see them, so their text is held against the repository: make's
targets, tox' environments, files, platforms, versions and names. actionlint, which reads them as
GitHub does, is built from its Go module; zizmor, which looks for weaknesses, is part of
`make check`.
"""

from __future__ import annotations

import configparser
import re
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration import inputs
from tests.testbed import build
from tools import licences

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "workflows"
CHARMCRAFT: dict[str, Any] = yaml.safe_load((ROOT / "charmcraft.yaml").read_text())
ROCKCRAFT: dict[str, Any] = yaml.safe_load((ROOT / "rockcraft.yaml").read_text())
DEPENDABOT: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())
ACTIONLINT = build.Module(
    "actionlint", {"actionlint": "github.com/rhysd/actionlint/cmd/actionlint"}
)

PINNED = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*")


class Loader(yaml.SafeLoader):
    """YAML 1.2's idea of a truth value, so that the key `on` stays a text."""


Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false"), list("tf"))

WORKFLOWS: dict[str, dict[str, Any]] = {
    path.name: yaml.load(path.read_text(), Loader) for path in sorted(FOLDER.iterdir())
}
JOBS = {
    f"{name}:{job}": body
    for name, workflow in WORKFLOWS.items()
    for job, body in workflow["jobs"].items()
}
MATRIX: list[dict[str, str]] = JOBS["integration.yaml:integration"]["strategy"]["matrix"][
    "include"
]


def commands() -> Iterator[str]:
    """Every line that a workflow runs."""
    for job in JOBS.values():
        for step in job.get("steps", ()):
            yield from step.get("run", "").splitlines()


def named(pattern: str) -> set[str]:
    """What the commands name after something, such as make's targets."""
    found = {name for line in commands() for name in re.findall(pattern, line)}
    assert found, f"no command names {pattern}"
    return found


def files(pattern: str) -> list[Path]:
    """The files of the repository, not of what was installed beside it, that a pattern names."""
    found = ROOT.glob(pattern)
    return [path for path in found if not {".venv", ".tox"} & set(path.relative_to(ROOT).parts)]


def version(text: str) -> tuple[int, int]:
    """Major and minor of the first version in a text."""
    match = re.search(r"(\d+)\.(\d+)", text)
    assert match, text
    return int(match[1]), int(match[2])


def test_actionlint_finds_nothing() -> None:
    if not build.shutil.which("go"):
        pytest.skip("no Go, which builds actionlint")
    checked = subprocess.run(
        [build.product(ACTIONLINT, "actionlint"), "-no-color", "-shellcheck=", "-pyflakes="],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_starts_with_no_rights_and_gives_each_job_what_it_needs(name: str) -> None:
    assert WORKFLOWS[name]["permissions"] == {}
    for job in WORKFLOWS[name]["jobs"].values():
        assert job["permissions"]


@pytest.mark.parametrize("name", JOBS)
def test_only_what_publishes_may_write(name: str) -> None:
    rights = JOBS[name]["permissions"]
    writes = {right for right, access in rights.items() if access != "read"}

    assert not writes or name in ("release.yaml:image", "release.yaml:charm")


@pytest.mark.parametrize("name", [name for name, job in JOBS.items() if "steps" in job])
def test_a_job_ends_in_time(name: str) -> None:
    assert JOBS[name]["timeout-minutes"] <= 120


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_that_starts_by_itself_is_alone(name: str) -> None:
    called = set(WORKFLOWS[name]["on"]) == {"workflow_call"}

    assert called or WORKFLOWS[name]["concurrency"]["group"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_an_action_is_pinned_to_a_commit_and_says_its_version(name: str) -> None:
    lines = (FOLDER / name).read_text().splitlines()
    used = [line.strip(" -") for line in lines if line.strip(" -").startswith("uses: ")]

    assert used
    assert [line for line in used if not PINNED.fullmatch(line) and "uses: ./" not in line] == []


def test_an_action_is_pinned_to_one_commit_everywhere() -> None:
    text = "".join((FOLDER / name).read_text() for name in WORKFLOWS)
    pins = set(re.findall(r"uses: ([\w./-]+)@([0-9a-f]{40})", text))

    assert len({action for action, _ in pins}) == len(pins)


def test_a_workflow_that_is_called_is_there_and_can_be_called() -> None:
    called = {job["uses"] for job in JOBS.values() if "uses" in job}

    assert called
    for path in called:
        assert "workflow_call" in WORKFLOWS[Path(path).name]["on"]
        assert (ROOT / path).parent == FOLDER


def test_makes_targets_are_there() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert named(r"\bmake ([a-z]+)\b") <= set(targets)


def test_tox_environments_are_there() -> None:
    tox = configparser.ConfigParser()
    tox.read(ROOT / "tox.ini")
    environments = {section.removeprefix("testenv:") for section in tox.sections()}

    assert named(r"\btox -e ([\w-]+)") <= environments


def test_what_the_integration_tests_are_told_reaches_them() -> None:
    tox = configparser.ConfigParser()
    tox.read(ROOT / "tox.ini")
    passed = tox["testenv:integration"]["pass_env"].split()

    for name in named(r"\b(ISTIO_PILOT|ISTIO_PILOT_CONFIG|CHARM_PATH)="):
        assert any(fnmatchcase(name, pattern) for pattern in passed), name


def test_files_and_folders_are_there() -> None:
    text = "\n".join((FOLDER / name).read_text() for name in WORKFLOWS)
    folders = re.findall(r"working-directory: (\S+)", text)
    versions = re.findall(r"go-version-file: (\S+)", text)
    hashed = [
        path for found in re.findall(r"hashFiles\((.*?)\)", text) for path in found.split(", ")
    ]
    read = re.findall(r"[\w./-]+/[\w-]+\.md|\w+craft\.yaml|\.ci/run", text)

    assert folders
    assert versions
    assert hashed
    assert read
    for path in (*folders, *versions, *(one.strip("'") for one in hashed), *read):
        assert files(path), path


def test_the_platforms_that_are_built_are_those_declared() -> None:
    for job, declared in (("charm", CHARMCRAFT), ("rock", ROCKCRAFT)):
        built = JOBS[f"build.yaml:{job}"]["strategy"]["matrix"]["include"]
        assert [one["platform"] for one in built] == list(declared["platforms"])
        runners = {one["platform"]: one["runner"] for one in built}
        system = declared["base"].replace("@", "-")
        assert runners == {"amd64": system, "arm64": f"{system}-arm"}


def test_the_unit_tests_run_on_the_pythons_that_the_charm_runs_on() -> None:
    pythons = JOBS["checks.yaml:unit"]["strategy"]["matrix"]["python"]
    lowest = re.search(r'requires-python = ">=(.*)"', (ROOT / "pyproject.toml").read_text())

    assert licences.PYTHON_OF_BASE[CHARMCRAFT["base"]] in pythons
    assert lowest
    assert lowest[1] in pythons


def test_the_kubernetes_versions_reach_every_backend() -> None:
    about = CHARMCRAFT["config"]["options"]["backend"]["description"]
    native = re.search(r"native: .*?Kubernetes (\d+\.\d+) and later", about)
    assert native
    tested = {version(one["kubernetes"]) for one in MATRIX}

    assert any(one >= version(native[1]) for one in tested)
    assert len([one for one in tested if one < version(native[1])]) > 1


def test_the_juju_versions_are_those_that_the_charm_assumes() -> None:
    (assumed,) = (
        one for one in CHARMCRAFT["assumes"] if isinstance(one, str) and one.startswith("juju")
    )
    tested = {version(one["juju"]) for one in MATRIX}

    assert min(tested) == version(assumed)
    assert any(major == 4 for major, _ in tested)


def test_the_machine_that_concierge_makes_is_one_of_those() -> None:
    concierge = yaml.safe_load((ROOT / "concierge.yaml").read_text())

    assert concierge["juju"]["channel"] in {one["juju"] for one in MATRIX}
    assert concierge["providers"]["k8s"]["channel"] in {one["kubernetes"] for one in MATRIX}


def test_the_packed_charms_are_found_by_their_names() -> None:
    text = "\n".join(commands())

    assert f"packed/{CHARMCRAFT['name']}_*.charm" in text
    assert f"packed/{inputs.read_charmcraft(inputs.PROVIDER)['name']}_*.charm" in text


def test_the_image_that_is_published_is_the_one_that_the_charm_names() -> None:
    (image,) = (resource["upstream-source"] for resource in CHARMCRAFT["resources"].values())
    owner = re.sub(r".*github\.com/([^/]+)/.*", r"\1", CHARMCRAFT["links"]["source"])

    assert image == f"ghcr.io/{owner}/{ROCKCRAFT['name']}:{ROCKCRAFT['version']}"


def test_every_resource_is_uploaded() -> None:
    assert named(r'upload-resource "\$charm" ([\w-]+)') == set(CHARMCRAFT["resources"])
    assert named(r'--resource="([\w-]+):') == set(CHARMCRAFT["resources"])


def test_what_is_pinned_is_kept_current() -> None:
    watched = {
        (update["package-ecosystem"], path)
        for update in DEPENDABOT["updates"]
        for pattern in update.get("directories", [update.get("directory")])
        for path in ([ROOT, *ROOT.glob(pattern.strip("/"))] if pattern != "/" else [ROOT])
    }
    pinned = {
        *(("gomod", path.parent) for path in files("**/go.mod")),
        *(("pip", path.parent) for path in files("**/requirements*.in")),
        *(("terraform", path.parent) for path in files("**/versions.tf")),
        ("github-actions", ROOT),
    }

    assert pinned <= watched


def test_dependabot_watches_only_what_is_there() -> None:
    for update in DEPENDABOT["updates"]:
        for pattern in update.get("directories", [update.get("directory")]):
            assert pattern == "/" or list(ROOT.glob(pattern.strip("/"))), pattern
