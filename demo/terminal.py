"""Text for people: headings, paragraphs, listings; in colour only on a terminal."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable
from typing import TextIO

_BOLD, _RED, _GREEN, _BLUE, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[34m", "\x1b[0m"
_WIDTH = 96


class Terminal:
    """Where a demo speaks to a person."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        # https://no-color.org
        self._coloured = stream.isatty() and not os.environ.get("NO_COLOR")

    def heading(self, text: str) -> None:
        """Begin a chapter."""
        self._write(f"\n{self._in(_BOLD, text)}\n{self._in(_BOLD, '=' * len(text))}")

    def say(self, text: str) -> None:
        """Say something in whole sentences."""
        self._write(textwrap.fill(text, _WIDTH))

    def command(self, text: str) -> None:
        """Show a command that an operator would type."""
        self._write(f"\n{self._in(_BLUE, f'$ {text}')}")

    def show(self, lines: Iterable[str]) -> None:
        """Show a listing; lines that begin with + or - are in green or red."""
        colours = {"+": _GREEN, "-": _RED}
        for line in lines:
            colour = colours.get(line[:1]) if line[1:2] == " " and line[2:3] != "" else None
            self._write(f"    {self._in(colour, line) if colour else line}")
        self._write("")

    def failure(self, text: str) -> None:
        """Say that something went wrong."""
        self._write(self._in(_RED, text))

    def _in(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self._coloured else text

    def _write(self, text: str) -> None:
        print(text, file=self._stream, flush=True)
