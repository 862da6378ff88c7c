"""Conditions to wait for, as `jubilant.Juju.wait` takes them."""

from __future__ import annotations

from collections.abc import Callable

import jubilant

from tests.integration import names

Condition = Callable[[jubilant.Status], bool]


def units(status: jubilant.Status) -> list[jubilant.statustypes.UnitStatus]:
    """The charm's units."""
    return list(status.get_units(names.APP).values())


def leader(status: jubilant.Status) -> jubilant.statustypes.StatusInfo:
    """The leader's status; empty while there is none."""
    leading = [unit.workload_status for unit in units(status) if unit.leader]
    return leading[0] if len(leading) == 1 else jubilant.statustypes.StatusInfo()


def blocked(*phrases: str) -> Condition:
    """The leader is blocked, and its message holds every one of these phrases."""

    def is_blocked(status: jubilant.Status) -> bool:
        told = leader(status)
        return told.current == "blocked" and all(phrase in told.message for phrase in phrases)

    return is_blocked


def blocked_with_any(*phrases: str) -> Condition:
    """The leader is blocked, and its message holds one of these phrases."""
    return lambda status: any(blocked(phrase)(status) for phrase in phrases)


def active_with(*backends: str) -> Condition:
    """The leader is active with one of these backends; nothing is under way."""

    def is_active(status: jubilant.Status) -> bool:
        told = leader(status)
        return (
            told.current == "active"
            and told.message.startswith(backends)
            and jubilant.all_agents_idle(status, names.APP)
        )

    return is_active


active = active_with(*names.BACKENDS)
"""The leader is active and names its backend; nothing is under way."""


def active_with_standbys(count: int) -> Condition:
    """The leader is active, and this many other units stand by and say so."""

    def is_so(status: jubilant.Status) -> bool:
        others = [unit.workload_status for unit in units(status) if not unit.leader]
        return (
            active(status)
            and len(others) == count
            and all(told.current == "active" for told in others)
            and all(told.message == names.STANDBY for told in others)
        )

    return is_so


def revision(status: jubilant.Status) -> int:
    """The charm's revision."""
    return status.apps[names.APP].charm_rev


def gone(status: jubilant.Status) -> bool:
    """The application is not in the model any more."""
    return names.APP not in status.apps


def hook_failed(status: jubilant.Status) -> bool:
    """A unit of the charm stands in a failed hook."""
    told = [unit.workload_status for unit in units(status)]
    return any(one.current == "error" and "hook failed" in one.message for one in told)
