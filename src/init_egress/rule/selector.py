"""Label selectors in kubectl's syntax: parsed once, matched here, written as matchExpressions.

The grammar is that of `kubectl get -l`, without the comparisons `>` and `<`, which a LabelSelector
in a manifest can't hold
(https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

_PREFIX = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:(?P<prefix>{_PREFIX})/)?{_NAME}")
_VALUE = re.compile(rf"(?:{_NAME})?")
_SET = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY = re.compile(r"(?P<key>[^=!\s]+)\s*(?P<operator>==|!=|=)\s*(?P<value>\S*)")
_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")

EXAMPLE = "team=ml,tier in (train,serve),!legacy"


class Operator(str, Enum):
    """The operators of a LabelSelector's matchExpressions."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


@dataclass(frozen=True)
class Requirement:
    """One condition on one label. A label that is absent satisfies NotIn, as in Kubernetes."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether an object with these labels satisfies the condition."""
        value = labels.get(self.key)
        if self.operator is Operator.IN:
            return value is not None and value in self.values
        if self.operator is Operator.NOT_IN:
            return value is None or value not in self.values
        return (value is not None) is (self.operator is Operator.EXISTS)

    def expression(self) -> dict[str, object]:
        """The condition as an element of matchExpressions."""
        plain: dict[str, object] = {"key": self.key, "operator": self.operator.value}
        return {**plain, "values": list(self.values)} if self.values else plain

    def __str__(self) -> str:
        values = ",".join(self.values)
        return {
            Operator.IN: f"{self.key} in ({values})",
            Operator.NOT_IN: f"{self.key} notin ({values})",
            Operator.EXISTS: self.key,
            Operator.DOES_NOT_EXIST: f"!{self.key}",
        }[self.operator]


@dataclass(frozen=True)
class Selector:
    """Conditions that must all hold; no condition matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether an object with these labels is selected."""
        for requirement in self.requirements:  # noqa: SIM110 - all() costs three times as much
            if not requirement.matches(labels):
                return False
        return True

    def example(self) -> dict[str, str]:
        """Labels that satisfy the selector, unless its conditions contradict each other."""
        return {
            requirement.key: (requirement.values or ("",))[0]
            for requirement in self.requirements
            if requirement.operator in (Operator.IN, Operator.EXISTS)
        }

    def expressions(self) -> list[dict[str, object]]:
        """The selector as matchExpressions."""
        return [requirement.expression() for requirement in self.requirements]

    def __str__(self) -> str:
        return ",".join(str(requirement) for requirement in self.requirements)


EVERYTHING = Selector()


def parse(text: str) -> Selector:
    """Read a selector in kubectl's syntax, such as `team=ml,tier in (train,serve),!legacy`.

    Raises:
        ValueError: the text is no selector; the message quotes the part that is wrong.
    """
    if not text.strip():
        return EVERYTHING
    parts = _COMMA_OUTSIDE_PARENTHESES.split(text)
    return Selector(tuple(_requirement(part.strip()) for part in parts))


def _requirement(text: str) -> Requirement:
    if not text:
        raise ValueError("a condition is empty (two commas, or one at the end)")
    if found := _SET.fullmatch(text):
        operator = Operator.IN if found["operator"] == "in" else Operator.NOT_IN
        values = tuple(value.strip() for value in found["values"].split(","))
        return _checked(Requirement(found["key"], operator, values), text)
    if found := _EQUALITY.fullmatch(text):
        operator = Operator.NOT_IN if found["operator"] == "!=" else Operator.IN
        return _checked(Requirement(found["key"], operator, (found["value"],)), text)
    if text.startswith("!"):
        return _checked(Requirement(text[1:].strip(), Operator.DOES_NOT_EXIST), text)
    return _checked(Requirement(text, Operator.EXISTS), text)


def _checked(requirement: Requirement, text: str) -> Requirement:
    key = _KEY.fullmatch(requirement.key)
    if not key or len(key["prefix"] or "") > 253:
        raise ValueError(f"{text!r}: {requirement.key!r} is no label key")
    for value in requirement.values:
        if not _VALUE.fullmatch(value):
            raise ValueError(f"{text!r}: {value!r} is no label value")
    return requirement
