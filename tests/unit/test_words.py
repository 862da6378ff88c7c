"""Foreign text is shown on one line, printable and not long."""

from __future__ import annotations

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from init_egress.kube.errors import from_answer
from init_egress.kube.scope import Scope
from init_egress.rule.words import LONGEST_TEXT, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("web-1", "web-1"),
        ("größe", "größe"),
        ("web\nother   evicted", "web\\nother   evicted"),
        ("\x1b[2Jweb", "\\x1b[2Jweb"),
        ("web\0", "web\\x00"),
        ("web\u202eb", "web\\u202eb"),
        ("web\ud800", "web\\ud800"),
    ],
    ids=["plain", "letters", "line feed", "escape", "NUL", "right to left", "lone surrogate"],
)
def test_what_cannot_be_printed_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_long_text_is_cut_and_the_cut_is_visible() -> None:
    assert printable("x" * 11, 10) == f"{'x' * 9}…"


@given(text=st.text(alphabet=st.characters()), longest=st.integers(1, 50))
def test_any_text_becomes_one_printable_line_within_the_limit(text: str, longest: int) -> None:
    shown = printable(text, longest)
    assert shown.isprintable()
    assert len(shown) <= longest


def test_the_api_servers_words_cannot_forge_a_line_nor_fill_a_result() -> None:
    message = "denied\n\x1b[31mall is well" + "!" * 5000
    error = from_answer("create Pod team/web", httpx2.Response(400, json={"message": message}))
    assert str(error).isprintable()
    assert "denied\\n\\x1b[31mall is well" in str(error)
    assert len(str(error)) <= LONGEST_TEXT + len("can't create Pod team/web: ")


def test_a_wrong_selector_is_named() -> None:
    with pytest.raises(ValueError, match="selector: a condition is empty"):
        Scope("team", "a,,b")
