"""Which backend carries the rule out: what the operator asks for and what the cluster serves."""

from __future__ import annotations

from collections.abc import Callable

from init_egress.cluster import (
    CLUSTER_POLICY,
    MUTATING_POLICY,
    NATIVE_POLICY,
    WEBHOOK_CONFIGURATION,
    GlobalKind,
)
from init_egress.manifests import Form, Owner
from init_egress.settings import Backend, PolicyKind, Settings

KINDS = {
    Form.NATIVE: NATIVE_POLICY,
    Form.CLUSTER_POLICY: CLUSTER_POLICY,
    Form.MUTATING_POLICY: MUTATING_POLICY,
    Form.WEBHOOK: WEBHOOK_CONFIGURATION,
}
_BY_POLICY_KIND = {
    PolicyKind.AUTO: (Form.CLUSTER_POLICY, Form.MUTATING_POLICY),
    PolicyKind.CLUSTER_POLICY: (Form.CLUSTER_POLICY,),
    PolicyKind.MUTATING_POLICY: (Form.MUTATING_POLICY,),
}
_NATIVE_NEEDS = "MutatingAdmissionPolicy (Kubernetes 1.36 or later)"


class Unavailable(Exception):
    """The cluster does not serve what the configuration asks for."""


def choose(settings: Settings, serves: Callable[[GlobalKind], bool], application: str) -> Form:
    """Choose what to write.

    Args:
        settings: the configuration.
        serves: tells whether the cluster serves a kind.
        application: our application's name, for the commands in messages.

    Raises:
        Unavailable: the message names what is missing and a command that helps.
    """
    for form in _preferred(settings):
        if serves(KINDS[form]):
            return form
    raise Unavailable(_missing(settings, application))


def policy_name(form: Form, owner: Owner) -> str:
    """The name of the object that carries a form out, which is of the kind `KINDS[form]`."""
    # The API server calls webhooks in the order of their configurations' names: after Istio's.
    return f"zz-{owner.name}" if form is Form.WEBHOOK else owner.name


def _preferred(settings: Settings) -> tuple[Form, ...]:
    kyverno = _BY_POLICY_KIND[settings.kyverno_kind]
    return {
        Backend.NATIVE: (Form.NATIVE,),
        Backend.KYVERNO: kyverno,
        Backend.WEBHOOK: (Form.WEBHOOK,),
        Backend.AUTO: (Form.NATIVE, *kyverno, Form.WEBHOOK),
    }[settings.backend]


def _missing(settings: Settings, application: str) -> str:
    if settings.backend is Backend.NATIVE:
        return (
            f"this cluster serves no {_NATIVE_NEEDS}; run: juju config {application} backend=auto"
        )
    kinds = " or ".join(KINDS[form].__name__ for form in _BY_POLICY_KIND[settings.kyverno_kind])
    return (
        f"this cluster serves no {kinds}: install Kyverno,"
        f" or run: juju config {application} backend=auto kyverno-policy-kind=auto"
    )
