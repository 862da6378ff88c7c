"""What an operator is to do about a Pod, in one line, with the command that helps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from init_egress.existing.survey import JudgedPod
from init_egress.rule.policy import Policy
from init_egress.rule.remedies import REMEDIES
from init_egress.rule.verdict import Verdict


class Commands(Protocol):
    """How an operator does what helps."""

    def renew(self, seen: JudgedPod) -> str:
        """Have a Pod that is stuck recreated by its controller."""
        ...

    def restart(self, seen: JudgedPod) -> str:
        """Have a Pod that runs recreated by its controller."""
        ...

    def configure(self, option: str, value: str) -> str:
        """Set one of our options."""
        ...


@dataclass(frozen=True)
class Juju:
    """Commands of Juju, where the charm runs.

    Attributes:
        application: its name.
    """

    application: str

    def renew(self, seen: JudgedPod) -> str:
        """Run the charm's action."""
        return f"{self._action} namespace={seen.namespace.name}"

    def restart(self, seen: JudgedPod) -> str:
        """Run the charm's action for all."""
        return f"{self._action} namespace={seen.namespace.name} restart=all"

    def configure(self, option: str, value: str) -> str:
        """Set the charm's option."""
        return f"juju config {self.application} {option}={value}"

    @property
    def _action(self) -> str:
        return f"juju run {self.application}/leader mutate-existing-pods"


@dataclass(frozen=True)
class Kubectl:
    """Commands of kubectl, where what was rendered is applied by hand."""

    def renew(self, seen: JudgedPod) -> str:
        """Delete it; its controller makes another."""
        return f"kubectl delete pod -n {seen.namespace.name} {seen.pod.metadata.name}"

    def restart(self, seen: JudgedPod) -> str:
        """Restart its owner."""
        return f"kubectl rollout restart -n {seen.namespace.name} <its owner>"

    def configure(self, option: str, value: str) -> str:
        """Render and apply again."""
        return f"render again with --{option} {value}, and apply"


def todo(seen: JudgedPod, policy: Policy, commands: Commands) -> str:
    """One line that says what an operator is to do about a Pod.

    Args:
        seen: the Pod.
        policy: what the operator configured.
        commands: how the operator does it.
    """
    if seen.pod.is_finished:
        return "nothing: it has finished"
    if seen.pod.is_going:
        return "nothing: it is being deleted"
    if seen.stuck and not seen.stuck.for_want_of_network:
        return f"{seen.stuck.container} can't start ({seen.stuck.reason}): not for want of network"
    if seen.decision.verdict is Verdict.NEEDS_REMEDY or (seen.too_late and seen.stuck):
        return _renewal(seen, commands)
    if seen.decision.verdict is Verdict.BEYOND_REMEDY:
        return REMEDIES[policy.remedy].advice(seen.decision.cut_off, commands.configure)
    if seen.too_late:
        return "nothing now: its annotations take effect when it is recreated"
    if seen.stuck:
        log = f"kubectl logs -n {seen.namespace.name} {seen.pod.metadata.name}"
        return f"it was made with the remedy; see why it fails: {log} -c {seen.stuck.container}"
    return "nothing"


def _renewal(seen: JudgedPod, commands: Commands) -> str:
    if seen.pod.metadata.controller is None:
        return "delete it and create it again; no controller would"
    if seen.stuck:
        return f"have it recreated: {commands.renew(seen)}"
    if seen.pod.status.phase == "Running":
        return f"nothing now: its init containers are done; to renew it: {commands.restart(seen)}"
    return f"wait; if it gets stuck: {commands.renew(seen)}"
