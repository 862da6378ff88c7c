"""The pages of the reference say what charmcraft.yaml and the code say."""

from __future__ import annotations

import re

import pytest

from tools import reference


@pytest.mark.parametrize("name", reference.PAGES)
def test_each_page_is_what_make_reference_writes(name: str) -> None:
    written = (reference.FOLDER / name).read_text()

    assert plain(written) == plain(reference.PAGES[name]()), "run: make reference"


def plain(page: str) -> str:
    """A page without what argparse does in one Python and not in another.

    Python 3.13 writes `-o, --output X` where it was `-o X, --output X`, and folds lines otherwise.
    """
    return "".join(re.sub(r"(-\w) [\w{},]+(, --[\w-]+ )", r"\1\2", page).split())


@pytest.mark.parametrize("section", ["config", "actions", "resources"])
def test_no_part_of_charmcraft_is_left_out(section: str) -> None:
    described = reference.charm()[section]
    names = described["options"] if section == "config" else described
    text = "".join(
        write() for write in (reference.configuration, reference.actions, reference.relations)
    )

    assert [name for name in names if f" {name}\n" not in text] == []


def test_no_endpoint_is_left_out() -> None:
    described = reference.charm()
    names = [
        name for role in ("requires", "provides", "peers") for name in described.get(role) or ()
    ]

    assert [name for name in names if f"## {name}\n" not in reference.relations()] == []
