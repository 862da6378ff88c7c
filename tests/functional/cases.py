"""Cases: a Pod as its author submits it, and what must become of it (tests/cases/README.md)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from tests.testbed.istio import Mesh

Manifest = dict[str, Any]

FOLDER = Path(__file__).resolve().parents[1] / "cases"
EXTRA = "EXTRA_CASES"


@dataclass(frozen=True)
class Expectation:
    """What must be stored, and what the rule must say; `after` is the verdict after the remedy."""

    verdict: str | None
    annotations: Mapping[str, str | None]
    init_containers: Mapping[str, Mapping[str, int | None]]
    denied: bool
    after: str | None


@dataclass(frozen=True)
class Case:
    """One file of a folder of cases."""

    id: str
    mesh: Mesh
    namespace: str | None
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    config: Mapping[str, str]
    pod: Manifest
    late: tuple[Manifest, ...]
    expect: Expectation

    @property
    def order(self) -> tuple[str, str, str]:
        """Cases of one mesh and one configuration stand together: neither changes in a moment."""
        return repr(self.mesh), repr(sorted(self.config.items())), self.id


def load_all() -> list[Case]:
    """The project's cases and those of the folders that EXTRA_CASES lists, ready to be run.

    Raises:
        ValueError: a file isn't a case, or two cases have one id; the message names the file.
    """
    extra = [Path(entry) for entry in os.environ.get(EXTRA, "").split(os.pathsep) if entry]
    found: dict[str, Case] = {}
    for folder in (FOLDER, *extra):
        paths = sorted(folder.glob("*.yaml"))
        if not paths:
            raise ValueError(f"no case in {folder}")
        for path in paths:
            case = load(path)
            # A folder of further cases may hold the project's own as well.
            if case.id in found and found[case.id] != case:
                raise ValueError(f"{path}: another case has the id {case.id}")
            found[case.id] = case
    return sorted(found.values(), key=lambda case: case.order)


def load(path: Path) -> Case:
    """Read one case.

    Raises:
        ValueError: the file isn't a case; the message names it and what is wrong.
    """
    try:
        return _case(yaml.safe_load(path.read_text()))
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no case: {error!r}") from error


def _case(document: Manifest) -> Case:
    _reject_unknown(document, {"source", "about"} | {f.name for f in fields(Case)}, "the case")
    mesh, namespace = document.get("mesh") or {}, document.get("namespace") or {}
    _reject_unknown(mesh, {"cni", "native-sidecars", "values"}, "mesh")
    _reject_unknown(namespace, {"name", "labels", "annotations"}, "namespace")
    return Case(
        id=document["id"],
        mesh=Mesh(
            cni=mesh.get("cni", True),
            native_sidecars=mesh.get("native-sidecars", False),
            values={key: _text(value) for key, value in (mesh.get("values") or {}).items()},
        ),
        namespace=namespace.get("name"),
        labels=namespace.get("labels") or {},
        annotations=namespace.get("annotations") or {},
        config={key: _text(value) for key, value in (document.get("config") or {}).items()},
        pod={"apiVersion": "v1", "kind": "Pod", **document["pod"]},
        late=tuple(document.get("late") or ()),
        expect=_expectation(document["expect"]),
    )


def _text(value: object) -> str:
    """A value as it is typed on a command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _expectation(expect: Manifest) -> Expectation:
    known = {"verdict", "annotations", "init-containers", "denied", "after"}
    _reject_unknown(expect, known, "expect")
    return Expectation(
        verdict=expect["verdict"],
        annotations=expect.get("annotations") or {},
        init_containers=expect.get("init-containers") or {},
        denied=expect.get("denied", False),
        after=expect.get("after"),
    )


def _reject_unknown(mapping: Manifest, known: set[str], where: str) -> None:
    if unknown := sorted(set(mapping) - known):
        raise KeyError(f"{where} knows no {', '.join(unknown)}")


CASES = load_all()
