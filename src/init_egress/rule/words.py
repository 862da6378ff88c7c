"""How the rule speaks of what it read. A Pod's text is a tenant's: it is quoted and cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from init_egress.rule.patch import PatchOperation, unescape
from init_egress.rule.pod import Container, Pod

LONGEST_TEXT = 1000
"""Characters of foreign text in a document, table, log, status or message."""

_LONGEST = 400
"""Characters of a value that are shown; annotations may hold 256 KiB."""

_MOST_NAMES = 10
"""Names of containers that are listed; a Pod may have thousands."""


def printable(text: str, longest: int = LONGEST_TEXT) -> str:
    """Foreign text (of a tenant, or of the API server) as it may be shown: a line, and not long.

    What can't be printed is escaped: a line feed would forge a row of a table, an escape sequence
    would act on a terminal, and NUL can't be an argument of `action-set`.

    Args:
        text: any text.
        longest: characters that are shown.
    """
    shown = text if len(text) <= longest else text[:longest]
    if not shown.isprintable():
        shown = "".join(map(_escaped, shown))
    if len(text) <= longest and len(shown) <= longest:
        return shown
    return f"{shown[: longest - 1]}…"


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


def quoted(value: str) -> str:
    """A value between quotes, with what can't be printed escaped."""
    return repr(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…")


def presence(present: bool) -> str:
    """Whether something is there."""
    return "present" if present else "absent"


def annotation(pod: Pod, key: str) -> str:
    """An annotation of the Pod, as a fact."""
    value = pod.annotations.get(key)
    return f"annotation {key}: {'absent' if value is None else quoted(value)}"


def joined(names: Sequence[str]) -> str:
    """Names in a row, the first ten of many."""
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"


def names_of(containers: Iterable[Container]) -> str:
    """Names of containers in a row; `none` if there are none."""
    return joined([container.name for container in containers]) or "none"


def change(pod: Pod, operation: PatchOperation) -> str:
    """Say in words what one operation of a remedy's patch changes.

    Args:
        pod: the Pod that it changes.
        operation: of a patch that a remedy made.
    """
    _, first, second, *rest = operation.path.split("/")
    if (first, second) == ("metadata", "annotations"):
        return f"annotation {unescape(rest[0])}: {quoted(str(operation.value))}"
    name = pod.init_containers[int(rest[0])].name
    fields = operation.value if isinstance(operation.value, dict) else {rest[-1]: operation.value}
    return f"{name}: " + ", ".join(f"{field} {value}" for field, value in fields.items())
