"""mutmut, which also mutates properties: `mutate.py run`, `mutate.py browse`.

mutmut passes over functions with decorators, for it cannot know what these do. The rule keeps most
of what it knows of a Pod in properties, though. A property calls its function like any other does,
so it is mutated like any other: the choice between the original and its mutants goes inside.
"""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst  # pyright: ignore[reportMissingImports]
from mutmut.__main__ import cli  # pyright: ignore[reportMissingImports]
from mutmut.mutation import file_mutation  # pyright: ignore[reportMissingImports]

PROPERTIES = ("property", "cached_property", "_lazy")
"""Decorators that do nothing but call the function when the attribute is read."""

_skips = file_mutation.MutationVisitor._skip_node_and_children
_arrange = file_mutation.function_trampoline_arrangement


def is_property(node: cst.CSTNode) -> bool:
    """Whether a node is a function whose one decorator is among `PROPERTIES`."""
    if not isinstance(node, cst.FunctionDef) or len(node.decorators) != 1:
        return False
    decorator = node.decorators[0].decorator
    return isinstance(decorator, cst.Name) and decorator.value in PROPERTIES


def _skips_no_property(visitor: file_mutation.MutationVisitor, node: cst.CSTNode) -> bool:
    # The node itself is what the visitor remembers, so it stays, and only the answer differs.
    return _skips(visitor, node) and not is_property(node)


def _arrange_property(
    function: cst.FunctionDef, mutants: Iterable[object], class_name: str | None
) -> tuple:
    if not is_property(function):
        return _arrange(function, mutants, class_name)
    plain = function.with_changes(decorators=())
    empty, (choice, *variants), filled, names = _arrange(plain, mutants, class_name)
    choice = choice.with_changes(decorators=(*function.decorators, *choice.decorators))
    return empty, [choice, *variants], filled, names


# At the top, so that processes that import this file again have it too.
file_mutation.MutationVisitor._skip_node_and_children = _skips_no_property
file_mutation.function_trampoline_arrangement = _arrange_property

if __name__ == "__main__":
    cli()
