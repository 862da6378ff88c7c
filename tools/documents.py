"""The documents: their pages, the commands in them, and which of these no test runs.

A block of commands is fenced as `shell`; a block fenced as `text` right behind it shows what they
print, where `…` stands for anything. A block is run unless each of its commands belongs to a
program that the testbed hasn't got, or its fence says `shell not-run: why`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_RUN_PAGE = ROOT / "docs" / "reference" / "commands-not-run.md"

ELSEWHERE = {
    "juju": "needs a Juju controller",
    "terraform": "needs a Juju controller",
    "make": "builds, or runs all of this itself",
}
"""Programs that the testbed hasn't got, and why."""

_FENCE = re.compile(r"^(?P<ticks>`{3,})(?P<info>.*)$")
_HEREDOC = re.compile(r"<<-?\s*['\"]?(?P<word>\w+)['\"]?")
_ASSIGNMENT = re.compile(r"^\w+=\S*$")
_LINK = re.compile(r"!?\[[^]]*\]\((?P<target>[^)\s]+)\)")
_NOT_RUN = "not-run:"


class Ambiguous(ValueError):
    """A block mixes commands that are run with others that are not."""


@dataclass(frozen=True)
class Block:
    """Commands that a reader is to type.

    Attributes:
        page: where they stand.
        line: of the fence, counted from 1.
        text: the commands.
        printed: what they print; None if the page doesn't say.
        excuse: why the page says that they are not run; empty if it doesn't.
    """

    page: Path
    line: int
    text: str
    printed: str | None = None
    excuse: str = ""

    @property
    def place(self) -> str:
        """The page and the line, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """Each command with its continued lines joined; without comments and here-documents."""
        found: list[str] = []
        end = ""
        for line in self.text.replace("\\\n", " ").splitlines():
            if end:
                end = "" if line.strip() == end else end
                continue
            bare = " ".join(re.sub(r"(^|\s+)#\s.*$", "", line).split())
            if bare:
                found.append(bare)
            if heredoc := _HEREDOC.search(line):
                end = heredoc["word"]
        return found

    @property
    def why_not_run(self) -> str:
        """Why no test runs it; empty if one does.

        Raises:
            Ambiguous: some of its commands could be run and others not.
        """
        if self.excuse:
            return self.excuse
        reasons = [ELSEWHERE.get(_program(command), "") for command in self.commands]
        if any(reasons) and not all(reasons):
            raise Ambiguous(f"{self.place}: put what a test can run in a block of its own")
        return "; ".join(dict.fromkeys(filter(None, reasons)))


def pages() -> list[Path]:
    """All pages whose commands and links are looked at, README.md first."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The commands of a page, in their order."""
    found: list[Block] = []
    behind = False  # whether nothing but blank lines stands between the last commands and here
    for line, info, text in _parts(page.read_text()):
        language, _, rest = info.partition(" ")
        if language == "shell":
            excuse = rest.strip().removeprefix(_NOT_RUN).strip()
            found.append(Block(page, line, text, excuse=excuse))
        elif language == "text" and behind:
            last = found.pop()
            found.append(Block(last.page, last.line, last.text, text, last.excuse))
        behind = language == "shell" or (behind and not info and not text.strip())
    return found


def links(page: Path) -> list[str]:
    """The targets of a page's links, but for those in code."""
    prose = "".join(text for _, info, text in _parts(page.read_text()) if not info)
    return [match["target"] for match in _LINK.finditer(re.sub(r"`[^`\n]*`", "", prose))]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    prose = "".join(text for _, info, text in _parts(page.read_text()) if not info)
    for heading in re.findall(r"^#+ +(.+?)\s*$", prose, re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        copies = (f"{name}-{number}" for number in range(1, 1000))
        found.add(name if name not in found else next(one for one in copies if one not in found))
    return found


def not_run_page() -> str:
    """The page of the commands that no test runs."""
    parts = [_HEAD]
    for page in pages():
        listed = [
            f"| `{command.replace('|', chr(92) + '|')}` | {block.why_not_run} |"
            for block in blocks(page)
            if block.why_not_run
            for command in block.commands
        ]
        if listed:
            name = page.relative_to(ROOT)
            link = f"[{name}]({'../' * 2 if name.parts[0] != 'docs' else '../'}{_from_docs(name)})"
            rows = dict.fromkeys(listed)
            parts.append("\n".join([f"## {link}\n", "| command | why |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


_HEAD = """\
# Commands that no test runs

<!-- Made by `make reference` out of the documents; don't edit it by hand. -->

Every command in README.md and in these documents is run by `tests/functional/test_documents.py`,
on a real API server with a real istiod, and what it prints is compared with what the page shows.
These are the others. The steps with Juju are those of
[tests/integration](../../tests/integration/README.md), which needs a Juju controller."""


def _from_docs(name: Path) -> str:
    return name.relative_to("docs").as_posix() if name.parts[0] == "docs" else name.as_posix()


def _parts(text: str) -> Iterator[tuple[int, str, str]]:
    """A page cut at its fences: the line of each part, its fence's info (`` in prose), its text.

    A fence without a language has the info `-`.
    """
    line, info, ticks, begun = 1, "", "", 1
    collected: list[str] = []
    for line, content in enumerate(text.splitlines(keepends=True), 1):
        fence = _FENCE.match(content.rstrip("\n"))
        if fence and (not ticks or (fence["ticks"] == ticks and not fence["info"].strip())):
            yield begun, info, "".join(collected)
            collected, begun = [], line
            info = "" if ticks else fence["info"].strip() or "-"
            ticks = "" if ticks else fence["ticks"]
            continue
        collected.append(content)
    yield begun, info, "".join(collected)


def _program(command: str) -> str:
    words = [word for word in command.split() if not _ASSIGNMENT.match(word)]
    return words[0] if words else ""
