"""A Kubernetes object as JSON has it, and the parts of it that every reader asks for."""

from __future__ import annotations

from collections.abc import Mapping

Manifest = dict[str, object]
"""An object as it is applied or read: JSON, not yet of any type."""


def name_of(manifest: Manifest) -> str:
    """The object's name; empty if it has none."""
    return str(mapping(manifest.get("metadata")).get("name", ""))


def namespace_of(manifest: Manifest) -> str:
    """The object's namespace; empty if it names none."""
    return str(mapping(manifest.get("metadata")).get("namespace", ""))


def labels_of(manifest: Manifest) -> Mapping[str, object]:
    """The object's labels."""
    return mapping(mapping(manifest.get("metadata")).get("labels"))


def title_of(manifest: Manifest) -> str:
    """The object as messages name it: `Kind name`."""
    return f"{manifest.get('kind')} {name_of(manifest)}"


def mapping(value: object) -> Mapping[str, object]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}
