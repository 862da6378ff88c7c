"""Every command in the documents does, on a real cluster, what its page says.

A page's commands run in one shell, from the first to the last, in a folder of their own. `…` in
what they print stands for anything: in a line for some characters, alone for some lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lightkube import Client
from lightkube.resources.core_v1 import Namespace

from init_egress.kube.application import Application
from init_egress.kube.client import ApiClient
from tests.testbed.control_plane import ControlPlane
from tests.testbed.istio import Istiod
from tests.testbed.kwok import Kwok
from tools import documents
from tools.documents import ROOT, Block

PATIENCE = 120
"""Seconds that the commands of one page may take."""

BY_HAND = Application("istio-init-egress", "standalone")
"""Whose objects `python -m init_egress render` makes, unless it is told another name."""

_MARK = "---- the end of block"
RUN = {
    page.relative_to(ROOT).as_posix(): found
    for page in documents.pages()
    if (found := [block for block in documents.blocks(page) if not block.why_not_run])
}


@pytest.fixture
def mesh(
    cluster: ControlPlane, client: Client, istiod: Istiod, kwok: Kwok
) -> Iterator[ControlPlane]:
    """The cluster that the documents speak of; whatever a page does, nothing of it stays."""
    before = {item.metadata.name for item in client.list(Namespace) if item.metadata}
    yield cluster
    ApiClient.connect(client.config).prune(BY_HAND)
    for item in client.list(Namespace):
        if item.metadata and item.metadata.name and item.metadata.name not in before:
            client.delete(Namespace, item.metadata.name)


@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page_do_what_it_says(
    page: str, mesh: ControlPlane, tmp_path: Path
) -> None:
    blocks = RUN[page]

    printed, code = run(blocks, mesh, tmp_path)

    at = blocks[min(len(printed), len(blocks)) - 1]
    assert code == 0, f"{at.place} ended with {code}:\n{printed[-1]}"
    for block, output in zip(blocks, printed, strict=False):
        if block.printed is not None:
            assert matches(block.printed, output), f"{block.place} printed:\n{output}"


def run(blocks: list[Block], plane: ControlPlane, folder: Path) -> tuple[list[str], int]:
    """Run blocks in one shell, up to the first command that fails.

    Returns:
        What each block printed, the last of them perhaps in part, and the shell's exit code.
    """
    script = "".join(f"{block.text}\necho '{_MARK}'\n" for block in blocks)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, **plane.environment, "PATH": path, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.stdout.split(f"{_MARK}\n"), done.returncode


def matches(expected: str, output: str) -> bool:
    """Whether an output is as a page shows it; how far columns stand apart doesn't matter."""
    lines = [" ".join(line.split()) for line in expected.strip().splitlines()]
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*?") + r"\n"
        for line in lines
    )
    plain = "".join(" ".join(line.split()) + "\n" for line in output.strip().splitlines())
    return re.fullmatch(pattern, plain) is not None


@pytest.mark.parametrize(
    ("expected", "output", "same"),
    [
        ("a  b\n", "a b\n", True),
        ("a…c\n", "a b c\n", True),
        ("first\n…\nlast\n", "first\nsecond\nthird\nlast\n", True),
        ("first\n…\nlast\n", "first\nlast\n", True),
        ("first\n", "first\nsecond\n", False),
        ("a…\n", "b\n", False),
        ("a.c\n", "abc\n", False),
        ("a\n", "", False),
    ],
)
def test_what_is_printed_is_compared_but_for_the_wildcard(
    expected: str, output: str, same: bool
) -> None:
    assert matches(expected, output) is same
