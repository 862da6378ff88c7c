"""JSON patches (RFC 6902), as far as the rule writes them."""

from __future__ import annotations

import msgspec


class PatchOperation(msgspec.Struct, frozen=True):
    """One operation of a JSON patch.

    Attributes:
        op: `add`, which also replaces.
        path: where, as a JSON pointer (RFC 6901).
        value: what is put there.
    """

    op: str
    path: str
    value: str | int | dict[str, int]


def escape(key: str) -> str:
    """Escape a map key as one step of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def unescape(step: str) -> str:
    """The map key that one step of a JSON pointer stands for."""
    return step.replace("~1", "/").replace("~0", "~")


def annotation_path(key: str) -> str:
    """Where an annotation is, as a JSON pointer."""
    return f"/metadata/annotations/{escape(key)}"
