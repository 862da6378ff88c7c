"""The documents hang together: links lead somewhere, each command is run or says why not."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from init_egress.config import Config
from init_egress.rule.verdict import Verdict
from tools import documents
from tools.documents import ROOT, Ambiguous, Block

NAMES = [page.relative_to(ROOT).as_posix() for page in documents.pages()]
OTHERS = [
    page.relative_to(ROOT).as_posix()
    for folder in (".github", "benchmarks", "bundle", "terraform", "tests")
    for page in (*ROOT.glob("*.md"), *(ROOT / folder).rglob("*.md"))
]
EVERY = sorted({*NAMES, *OTHERS})
TROUBLESHOOTING = ROOT / "docs" / "how-to" / "troubleshooting.md"
FOLDERS = ("tutorial", "how-to", "reference", "explanation")
CHARM = yaml.safe_load((ROOT / "charmcraft.yaml").read_text())
APPLICATION = CHARM["name"]
# Shown for what the charm says of them.
MISTAKES = ('juju config istio-init-egress exclude-outbound-ip-ranges="10.0.0.0/8, 192.168.1.1"',)
PLAIN_VERBS = (
    *("debug-log", "deploy", "refresh", "remove-application", "remove-relation"),
    *("scale-application", "status", "trust"),
)
# Where the words of a status come from.
SPEAKERS = {
    "charm.py": ("_reconcile",),
    "actions.py": ("message",),
    "init_egress/mesh/istiod.py": ("namespace", "remarks"),
    "init_egress/backends/choice.py": ("_unable", "_not_served"),
    "init_egress/backends/kyverno.py": ("why_not_ready",),
    "init_egress/backends/reconciler.py": ("message", "check_names"),
    "init_egress/backends/verification.py": ("verify", "prove"),
    "init_egress/backends/webhook.py": ("objects", "settle"),
    "init_egress/backends/webhook_deployment.py": ("__str__",),
}


@pytest.mark.parametrize("name", EVERY)
def test_every_link_within_the_repository_leads_to_a_file_and_a_heading(name: str) -> None:
    page = ROOT / name
    broken = [target for target in documents.links(page) if not leads_somewhere(page, target)]

    assert broken == []


def leads_somewhere(page: Path, target: str) -> bool:
    """Whether a link within the repository has its file and its heading; others are not asked."""
    if target.startswith(("https://", "http://", "mailto:")):
        return True
    path, _, anchor = target.partition("#")
    found = (page.parent / path).resolve() if path else page
    return found.exists() and (not anchor or anchor in documents.anchors(found))


def test_every_page_of_the_documents_can_be_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    reached, found = {index}, [index]
    while found:
        page = found.pop()
        for target in documents.links(page):
            other = (page.parent / target.partition("#")[0]).resolve()
            if other.suffix == ".md" and other.is_file() and other not in reached:
                reached.add(other)
                found.append(other)

    assert set((ROOT / "docs").rglob("*.md")) <= reached


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_index_names_every_page_of_each_kind(folder: str) -> None:
    index = ROOT / "docs" / "index.md"
    named = {(index.parent / target).resolve() for target in documents.links(index)}

    assert set((ROOT / "docs" / folder).glob("*.md")) <= named


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_run_or_has_a_reason_not_to_be(name: str) -> None:
    for block in documents.blocks(ROOT / name):
        assert block.commands, f"{block.place}: no command"
        _ = block.why_not_run  # raises Ambiguous


@pytest.mark.parametrize("name", NAMES)
def test_commands_stand_nowhere_but_in_blocks_that_are_looked_at(name: str) -> None:
    fences = [line for line in (ROOT / name).read_text().splitlines() if line.startswith("```")]

    assert not [fence for fence in fences if fence[3:].split(" ")[0] in ("sh", "bash", "console")]


def test_a_block_that_could_be_run_in_part_is_refused() -> None:
    block = Block(ROOT / "README.md", 1, "A=1 juju status\nkubectl get pods  # all\n")

    with pytest.raises(Ambiguous, match=r"README\.md:1"):
        _ = block.why_not_run


def test_the_page_of_licences_names_what_is_pinned() -> None:
    parts = (ROOT / "docs" / "reference" / "licences.md").read_text().split("\n## ")[1:]
    pins = [
        (part, Requirement(line.rstrip(" \\")))
        for part, name in zip(parts, ("requirements.txt", "requirements-webhook.txt"), strict=True)
        for line in (ROOT / name).read_text().splitlines()
        if re.match(r"[a-z]", line)
    ]
    shipped = {"python_full_version": "3.12.0", "sys_platform": "linux"}
    missing = [
        str(pin)
        for part, pin in pins
        if (pin.marker is None or pin.marker.evaluate(shipped))
        and not re.search(
            rf"^\| {pin.name.replace('-', '[-_]')} +\| {str(pin.specifier)[2:]} ",
            part,
            re.I | re.M,
        )
    ]

    assert pins
    assert missing == [], "run: make licences"


def test_the_figures_of_the_comparison_are_those_of_the_documented_runs() -> None:
    page = ROOT / "docs" / "explanation" / "backends-compared.md"
    results = {
        line
        for path in (ROOT / "benchmarks" / "results").glob("*.md")
        for line in path.read_text().splitlines()
    }
    section = page.read_text().partition("## What a Pod's creation costs")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]

    assert len(rows) > 10
    assert [row for row in rows if row not in results] == []


def test_troubleshooting_names_every_verdict() -> None:
    text = TROUBLESHOOTING.read_text()

    assert [v.value for v in Verdict if f"| `{v.value}`" not in text] == []


def test_troubleshooting_quotes_every_text_that_a_status_can_have() -> None:
    text = " ".join(TROUBLESHOOTING.read_text().split())

    assert [words for words in sorted(set(spoken())) if words not in text] == []


def spoken() -> Iterator[str]:
    """The longest fixed part of each text of a status, as the code has it."""
    for name, functions in SPEAKERS.items():
        tree = ast.parse((ROOT / "src" / name).read_text())
        found = {f.name: f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)}
        assert set(functions) <= set(found), name
        for function in (f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)):
            if function.name in functions:
                yield from _texts(function)


def _texts(function: ast.FunctionDef) -> Iterator[str]:
    docstring = ast.get_docstring(function, clean=False)
    joined = [node for node in ast.walk(function) if isinstance(node, ast.JoinedStr)]
    within = {id(part) for node in joined for part in ast.walk(node)}
    for node in ast.walk(function):
        if isinstance(node, ast.JoinedStr):
            parts = [str(p.value) for p in node.values if isinstance(p, ast.Constant)]
            yield from _worth(max(parts, key=len, default=""))
        elif isinstance(node, ast.Constant) and id(node) not in within and node.value != docstring:
            yield from _worth(node.value)


def _worth(value: object) -> Iterator[str]:
    words = " ".join(value.split()).strip(" ;:,()") if isinstance(value, str) else ""
    if " " in words and len(words) > 7:
        yield words


def juju_commands() -> Iterator[tuple[str, list[str]]]:
    """Each command of Juju's about the charm, in blocks and in prose, with its words."""
    for page in map(ROOT.joinpath, EVERY):
        inline = re.findall(r"`(juju [^`…<]+)`", page.read_text())
        within = [command for one in documents.blocks(page) for command in one.commands]
        for command in (*within, *inline):
            if command.startswith("juju ") and APPLICATION in command:
                yield command, shlex.split(command)[1:]


def options(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """The options that `juju config` sets, and those that it resets."""
    reset = words[words.index("--reset") + 1].split(",") if "--reset" in words else []
    given = [word.partition("=") for word in words if "=" in word]
    return {name: value for name, _, value in given}, reset


@pytest.mark.parametrize(
    ("command", "words"),
    [pytest.param(*pair, id=pair[0]) for pair in dict(juju_commands()).items()],
)
def test_a_command_of_juju_names_what_the_charm_has(command: str, words: list[str]) -> None:
    verb, *rest = words
    if verb == "config":
        given, reset = options(rest)
        assert {*given, *reset} <= CHARM["config"]["options"].keys()
        if command not in MISTAKES:
            Config.from_options(given).settings()
    elif verb == "run":
        action = CHARM["actions"][rest[1]]
        given, _ = options(rest[2:])
        params = action.get("params") or {}
        assert given.keys() <= params.keys()
        assert set(action.get("required", ())) <= given.keys()
        assert all(value in params[key].get("enum", [value]) for key, value in given.items())
    elif verb == "integrate":
        ours = next(word.partition(":") for word in rest if word.startswith(f"{APPLICATION}:"))
        assert ours[2] in {**CHARM["requires"], **CHARM["provides"]}
    elif verb == "attach-resource":
        assert rest[1].partition("=")[0] in CHARM["resources"]
    else:
        assert verb in PLAIN_VERBS
