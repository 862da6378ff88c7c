"""The tables of docs/reference/data-plane.md, out of what a run has seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.dataplane.namespaces import Identity
from tests.dataplane.pods import APP, INIT
from tests.dataplane.promise import CASES, COLUMNS, INBOUND, REFUSED, REMEDIES, Case, Packet
from tests.testbed import build

PATH = Path(__file__).parents[2] / "docs" / "reference" / "data-plane.md"
_GO_MOD = build.ISTIO.path / "go.mod"
UPDATE = "UPDATE_DOCS"  # the environment variable that has the page written again
_BEGIN = "<!-- begin: written by `make dataplane UPDATE_DOCS=1` -->\n"
_END = "<!-- end -->\n"

_CONTAINERS = {INIT: "init", APP: "app"}
_TITLES = {
    "near:80/tcp": "TCP 80, in the ranges",
    "far:80/tcp": "TCP 80, elsewhere",
    "far:5432/tcp": "TCP 5432, elsewhere",
    "far:123/udp": "UDP 123, elsewhere",
    "near:53/udp": "UDP 53, in the ranges",
    "near:53/tcp": "TCP 53, in the ranges",
    "far:53/udp": "UDP 53, elsewhere",
    "far:53/tcp": "TCP 53, elsewhere",
    INBOUND: "what comes in",
}
_DNS = tuple(column for column in COLUMNS if ":53/" in column)
_OTHER = tuple(column for column in COLUMNS if column not in _DNS)


@dataclass
class Seen:
    """What a run has seen.

    Attributes:
        packets: what became of each.
        identities: whom the init container ran as, by case.
        denials: what istiod said to a Pod with a value that it refuses, by value.
        failures: what the CNI plugin said to one that was written later, by value.
    """

    packets: dict[Case, Mapping[Packet, str]] = field(default_factory=dict)
    identities: dict[Case, Identity] = field(default_factory=dict)
    denials: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether all that the page tells was seen."""
        values = set(REFUSED.values())
        refused = set(self.denials) == set(self.failures) == values
        return refused and set(self.packets) == set(CASES)


def page(seen: Seen) -> str:
    """The page as it is after a run; what stands around its tables is written by hand."""
    before, _, rest = PATH.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{_generated(seen)}\n\n{_END}{after}"


def _generated(seen: Seen) -> str:
    captured = [case for case in CASES if case.capture]
    uncaptured = [case for case in CASES if not case.capture]
    parts = [
        "### The remedies",
        _remedies(seen),
        "### All but DNS",
        _packets(seen, CASES, _OTHER),
        "### DNS, where Istio does not capture it",
        _packets(seen, uncaptured, _DNS),
        "### DNS, where Istio captures it",
        _packets(seen, captured, _DNS),
        "### Values that Istio refuses",
        _refusals(seen),
        f"Seen with {len(CASES)} Pods on Istio {_istio()}: with IPv4, IPv6 and both, each with "
        "rules of iptables\nand of nftables. Where a line names none of these, it is the same in "
        "all.",
    ]
    return "\n\n".join(parts)


def _remedies(seen: Seen) -> str:
    lines: list[list[str]] = []
    for remedy, options in REMEDIES.items():
        told = ", ".join(f"`{key}={value}`" for key, value in (options or {}).items())
        users = {str(user) for case, user in seen.identities.items() if case.remedy == remedy}
        lines.append([remedy, told or "no charm", " or ".join(sorted(users))])
    return _table(["remedy", "the charm's options", "the init container runs as"], lines)


def _packets(seen: Seen, cases: Sequence[Case], columns: Sequence[str]) -> str:
    lines: list[list[str]] = []
    for remedy in REMEDIES:
        for container, title in _CONTAINERS.items():
            found = {
                _Variant(case, family): tuple(
                    seen.packets[case][Packet(container, family, column)] for column in columns
                )
                for case in cases
                if case.remedy == remedy
                for family in case.stack.families
            }
            lines += [[f"{remedy}{where}", title, *cells] for where, cells in _merged(found)]
    return _table(["remedy", "container", *(_TITLES[column] for column in columns)], lines)


@dataclass(frozen=True)
class _Variant:
    """Where a line of the page was seen."""

    case: Case
    family: str

    def traits(self) -> tuple[str, ...]:
        """What a line can be told apart by, what tells most first."""
        capture = "DNS captured" if self.case.capture else "DNS not captured"
        return self.family, self.case.rules.value, self.case.stack.value, capture


def _merged(
    found: Mapping[_Variant, tuple[str, ...]],
) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Each different line once, with where it was seen if not everywhere."""
    for cells in dict.fromkeys(found.values()):
        variants = {variant for variant, seen in found.items() if seen == cells}
        yield _where(variants, set(found)), cells


def _where(variants: set[_Variant], all_of_them: set[_Variant]) -> str:
    if variants == all_of_them:
        return ""
    for index in range(len(next(iter(variants)).traits())):
        values = {variant.traits()[index] for variant in variants}
        if variants == {other for other in all_of_them if other.traits()[index] in values}:
            return f" ({', '.join(sorted(values))})"
    return f" ({'; '.join(sorted(', '.join(variant.traits()) for variant in variants))})"


def _refusals(seen: Seen) -> str:
    lines = [
        [name, *map(_code, (value, _denial(seen.denials[value]), seen.failures[value]))]
        for name, value in REFUSED.items()
    ]
    titles = [
        "value",
        "the annotation",
        "istiod, when the Pod is created",
        "the plugin, if it is written later",
    ]
    return _table(titles, lines)


def _denial(message: str) -> str:
    """What istiod says, without the API server's words and the line breaks."""
    return " ".join(message.rpartition("* ")[2].split())


def _code(text: str) -> str:
    return f"`{text}`"


def _istio() -> str:
    """The version of Istio that the testbed pins."""
    (line,) = (line for line in _GO_MOD.read_text().splitlines() if " istio.io/istio v" in line)
    return line.split()[-1]


def _table(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [titles, ["---"] * len(titles), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
