"""How Pods come to be injected, as the selectors of istiod's webhooks have it.

Source: istio/istio, manifests/charts/istio-control/istio-discovery/templates/mutatingwebhook.yaml.
Any revision stands in the place of each one, so this is a superset of what the istiods of a
cluster inject.
"""

from __future__ import annotations

from dataclasses import dataclass

from init_egress.rule.istio import CANONICAL_NAME
from init_egress.rule.selector import Operator, Requirement


@dataclass(frozen=True)
class Binding:
    """One way in which Pods come to be injected.

    Attributes:
        name: what asks for the injection.
        namespaces: what holds for the labels of the namespace.
        pods: what holds for the labels of the Pod.
    """

    name: str
    namespaces: tuple[Requirement, ...]
    pods: tuple[Requirement, ...] = ()

    def expressions(self) -> dict[str, object]:
        """The binding with its selectors as matchExpressions."""
        return {
            "name": self.name,
            "namespaces": [requirement.expression() for requirement in self.namespaces],
            "pods": [requirement.expression() for requirement in self.pods],
        }


def _by_injection_label(operator: Operator, *values: str) -> Requirement:
    return Requirement("istio-injection", operator, values)


def _by_revision(operator: Operator) -> Requirement:
    return Requirement("istio.io/rev", operator)


_NOT_REFUSED = Requirement("sidecar.istio.io/inject", Operator.NOT_IN, ("false",))
_ASKED_FOR = Requirement("sidecar.istio.io/inject", Operator.IN, ("true",))
_UNLABELLED = (_by_injection_label(Operator.DOES_NOT_EXIST), _by_revision(Operator.DOES_NOT_EXIST))

BY_LABEL = (
    Binding("namespace", (_by_injection_label(Operator.IN, "enabled"),), (_NOT_REFUSED,)),
    Binding(
        "revision",
        (_by_revision(Operator.EXISTS), _by_injection_label(Operator.DOES_NOT_EXIST)),
        (_NOT_REFUSED,),
    ),
    Binding("pod", _UNLABELLED, (_ASKED_FOR, _by_revision(Operator.DOES_NOT_EXIST))),
    Binding("pod-revision", _UNLABELLED, (_NOT_REFUSED, _by_revision(Operator.EXISTS))),
)
# Only with sidecarInjectorWebhook.enableNamespacesByDefault. A Pod that asks is bound already.
BY_DEFAULT = Binding(
    "by-default",
    _UNLABELLED,
    (
        Requirement("sidecar.istio.io/inject", Operator.DOES_NOT_EXIST),
        _by_revision(Operator.DOES_NOT_EXIST),
    ),
)

INJECTED = (Requirement(CANONICAL_NAME, Operator.EXISTS), _NOT_REFUSED)
"""What the labels of an injected Pod satisfy where each of Istio's templates writes its name.

Gateways and waypoints that are not injected carry the name too, and refuse injection
(istio/istio: manifests/charts/gateways, files/waypoint.yaml of istiod's chart).
"""


@dataclass(frozen=True)
class Injection:
    """What selectors have to know of the istiods of a mesh.

    Attributes:
        by_default: whether istiod injects namespaces without a label
            (`sidecarInjectorWebhook.enableNamespacesByDefault`).
        labels_canonical_name: whether every injected Pod carries the label of its canonical name.
    """

    by_default: bool = False
    labels_canonical_name: bool = False

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """Every way in which a Pod may come to be injected."""
        return (*BY_LABEL, BY_DEFAULT) if self.by_default else BY_LABEL


UNKNOWN = Injection()
"""What holds where nothing is known of the mesh: Istio's defaults, and no reliance on labels."""
