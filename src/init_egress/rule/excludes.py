"""The two exclude annotations: what they hold, and what they should hold."""

from __future__ import annotations

from collections.abc import Mapping

from init_egress.rule.istio import EXCLUDE_PORTS, EXCLUDE_RANGES, GO_SPACE
from init_egress.rule.policy import ExistingAnnotation, Policy


def elements(value: str) -> list[str]:
    """The elements of a comma-separated annotation, without the space around them."""
    return [element for part in value.split(",") if (element := part.strip(GO_SPACE))]


def changes(annotations: Mapping[str, str], policy: Policy) -> dict[str, str]:
    """The exclude annotations that differ from what they should be, with their new values."""
    found: dict[str, str] = {}
    if policy.ranges:
        value = annotations.get(EXCLUDE_RANGES)
        # Istio denies a Pod, or its CNI plugin refuses it, for a space in this list, so it
        # is written without spaces even where nothing is missing.
        if (wanted := _merged(value, policy.ranges, policy.existing)) != value:
            found[EXCLUDE_RANGES] = wanted
    if policy.ports:
        value = annotations.get(EXCLUDE_PORTS)
        wanted = _merged(value, policy.ports, policy.existing)
        # Istio trims ports, so a list that lacks nothing stays as it is.
        if value is None or elements(wanted) != elements(value):
            found[EXCLUDE_PORTS] = wanted
    return found


def holds_all_ranges(annotations: Mapping[str, str], policy: Policy) -> bool:
    """Whether the ranges annotation holds every configured range, and there is one."""
    present = elements(annotations.get(EXCLUDE_RANGES, ""))
    return bool(policy.ranges) and set(policy.ranges) <= set(present)


def _merged(value: str | None, configured: tuple[str, ...], existing: ExistingAnnotation) -> str:
    if value is None:
        return ",".join(configured)
    if existing is ExistingAnnotation.KEEP:
        return value
    present = elements(value)
    if existing is ExistingAnnotation.REPLACE:
        same = set(present) == set(configured)
        return ",".join(present if same else configured)
    found = set(present)
    return ",".join(present + [element for element in configured if element not in found])
