"""Which objects are asked about: those of a namespace, with some labels, or all."""

from __future__ import annotations

from dataclasses import dataclass

from init_egress.kube.paths import shown
from init_egress.rule import names, selector


@dataclass(frozen=True)
class Scope:
    """Which Pods are asked about.

    Attributes:
        namespace: their namespace; empty for all.
        selector: their labels, as `kubectl get -l` takes them; empty for all.

    Raises:
        ValueError: the namespace or the selector is not valid; the message says why.
    """

    namespace: str = ""
    selector: str = ""

    def __post_init__(self) -> None:
        if self.namespace:
            check_name(self.namespace, "Namespace")
        try:
            selector.parse(self.selector)
        except ValueError as error:
            raise ValueError(f"selector: {error}") from error

    def __str__(self) -> str:
        where = f"namespace {self.namespace}" if self.namespace else "all namespaces"
        return f"{where}, {self.selector}" if self.selector else where


def check_name(text: str, kind: str) -> None:
    """Check that a text can be an object's name.

    Args:
        text: what was given for a name.
        kind: the object's, `Namespace` or `Pod`.

    Raises:
        ValueError: it can't; the message says where names are listed.
    """
    is_valid = names.is_dns_label if kind == "Namespace" else names.is_dns_subdomain
    if not is_valid(text):
        everywhere = "" if kind == "Namespace" else " -A"
        raise ValueError(
            f"{shown(text)} is not a valid name of a {kind};"
            f" see: kubectl get {kind.lower()}s{everywhere}"
        )
