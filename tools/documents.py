"""The documents: their pages, the commands in them, which of these no test runs, their links.

A block of commands is fenced as `shell`; a block fenced as `text` right behind it shows what they
print, where `…` stands for anything. A block is run unless each of its commands belongs to a
program that the testbed hasn't got, or its fence says `shell not-run: why`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import count, pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[1]

ELSEWHERE = {
    "juju": "needs a Juju controller",
    "terraform": "needs a Juju controller",
    "make": "builds, or runs all of this itself",
}
"""Programs that the testbed hasn't got, and why."""

_HEREDOC = re.compile(r"<<-?\s*['\"]?(?P<word>\w+)['\"]?")
_ASSIGNMENT = re.compile(r"^\w+=\S*$")
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
    behind = False  # whether the token before this one is a block of commands
    for token in _tokens(page):
        language, _, rest = token.info.partition(" ") if token.type == "fence" else ("", "", "")
        if language == "shell" and token.map:
            excuse = rest.strip().removeprefix(_NOT_RUN).strip()
            found.append(Block(page, token.map[0] + 1, token.content, excuse=excuse))
        elif language == "text" and behind:
            found[-1] = replace(found[-1], printed=token.content)
        behind = language == "shell"
    return found


def links(page: Path) -> list[str]:
    """The targets of a page's links and images."""
    within = [child for token in _tokens(page) for child in token.children or ()]
    targets = [child.attrGet("href") or child.attrGet("src") for child in within]
    return [str(target) for target in targets if target]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    tokens = _tokens(page)
    for opening, heading in pairwise(tokens):
        if opening.type != "heading_open":
            continue
        plain = "".join(child.content for child in heading.children or ()).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        copies = (f"{name}-{number}" for number in count(1))
        found.add(name if name not in found else next(one for one in copies if one not in found))
    return found


def _tokens(page: Path) -> list[Token]:
    return MarkdownIt().parse(page.read_text())


def _program(command: str) -> str:
    words = [word for word in command.split() if not _ASSIGNMENT.match(word)]
    return words[0] if words else ""
