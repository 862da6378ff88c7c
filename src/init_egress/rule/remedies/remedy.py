"""What a remedy is: what it changes, what it can't help, and how it is spoken of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from init_egress.rule.inspection import Inspection
from init_egress.rule.patch import PatchOperation
from init_egress.rule.pod import Pod
from init_egress.rule.policy import Policy, RemedyKind

Configure = Callable[[str, str], str]
"""The command that sets one of our options: its name and its value in, the command out."""


@dataclass(frozen=True)
class Identity:
    """The field by which a container is made to run as the proxy.

    Attributes:
        field: of a container's securityContext.
        variable: the CEL variable, and the JMESPath one, that holds the proxy's value.
    """

    field: str
    variable: str


class Remedy(ABC):
    """How a cut-off init container gets its network back.

    Attributes:
        kind: the value of the option `remedy`.
        documentation: what it does and what it costs, for an operator.
        cel_variables: the templates of the CEL variables that it needs, in order.
        cel_mutation: the template of the CEL expression that gives the patch.
    """

    kind: ClassVar[RemedyKind]
    documentation: ClassVar[str]
    cel_variables: ClassVar[tuple[str, ...]]
    cel_mutation: ClassVar[str]

    @property
    def identity(self) -> Identity | None:
        """The field that it sets on containers; None if it sets annotations."""
        return None

    @abstractmethod
    def is_satisfied(self, found: Inspection) -> bool:
        """Whether the Pod's annotations give its init containers what is configured already."""

    @abstractmethod
    def can_help(self, found: Inspection) -> bool:
        """Whether it can change anything for the init containers that aren't exempt."""

    @abstractmethod
    def patch(self, found: Inspection) -> tuple[PatchOperation, ...]:
        """What it changes on a Pod that it can help."""

    @abstractmethod
    def why_satisfied(self, policy: Policy) -> str:
        """Why a Pod that is satisfied is left as it is."""

    @abstractmethod
    def why_beyond(self, names: Sequence[str]) -> str:
        """Why it can't help these init containers."""

    @abstractmethod
    def facts_of_satisfaction(self, found: Inspection) -> list[str]:
        """What was read to tell whether the Pod is satisfied, a fact each."""

    @abstractmethod
    def facts_of_help(self, found: Inspection) -> list[str]:
        """What was read to tell whether it can help, a fact each."""

    @abstractmethod
    def status(self, policy: Policy) -> str:
        """What is done, in the few words of a unit's status."""

    @abstractmethod
    def warning(self, pod: Pod, patch: Sequence[PatchOperation]) -> str:
        """What was changed, for whoever creates the Pod."""

    @abstractmethod
    def advice(self, names: Sequence[str], configure: Configure) -> str:
        """What an operator can do about init containers that it can't help."""
