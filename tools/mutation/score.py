"""Prints what became of the mutants of each module: `mutmut results --all true | ... score`.

The score is the share of all mutants that a test kills. A mutant that no test reaches, or under
which the tests run out of time, is not killed.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from init_egress.results import columns

_RESULT = re.compile(r"^\s*(?P<module>[\w.]+)\.x\S+__mutmut_\d+: (?P<status>.+)$")
"""Such as `    init_egress.rule.pod.x_read__mutmut_1: killed`; a method is `.xǁPodǁread`."""
_STATUSES = ("killed", "survived", "no tests", "timeout")
_NOT_RUN = "not checked"
"""Of a mutant that is not among those asked for."""


def main() -> None:
    """Print the table of the results on standard input; fail if there are none."""
    by_module = count(sys.stdin)
    if not by_module:
        sys.exit("no results of mutmut on standard input")
    print(table(by_module))


def count(lines: Iterable[str]) -> dict[str, Counter[str]]:
    """Count the mutants of each module that were run, by their status.

    Args:
        lines: what `mutmut results --all true` prints.
    """
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for line in lines:
        match = _RESULT.match(line)
        if match and match["status"] != _NOT_RUN:
            found[match["module"]][match["status"]] += 1
    return dict(found)


def table(by_module: Mapping[str, Counter[str]]) -> str:
    """Lay the counts out, a line for each module and one for all.

    Args:
        by_module: the number of mutants of each status.
    """
    total = sum(by_module.values(), Counter[str]())
    rows = [_row(name, statuses) for name, statuses in sorted(by_module.items())]
    header = ("module", "mutants", *_STATUSES, "other", "score")
    return columns(header, [*rows, _row("all", total)])


def _row(name: str, statuses: Counter[str]) -> tuple[str, ...]:
    mutants = statuses.total()
    counts = [statuses[status] for status in _STATUSES]
    numbers = (mutants, *counts, mutants - sum(counts))
    return (name, *map(str, numbers), f"{statuses['killed'] / mutants:.1%}")


if __name__ == "__main__":
    main()
