"""Which backend carries the rule out: what the operator asks for and what the cluster serves."""

from __future__ import annotations

from collections.abc import Callable

from init_egress.backends.manifests import Application, BackendKind
from init_egress.config import Backend, PolicyKind, Settings
from init_egress.kube.kinds import (
    CLUSTER_POLICY,
    MUTATING_POLICY,
    NATIVE_POLICY,
    WEBHOOK_CONFIGURATION,
    GlobalKind,
)

KINDS = {
    BackendKind.NATIVE: NATIVE_POLICY,
    BackendKind.CLUSTER_POLICY: CLUSTER_POLICY,
    BackendKind.MUTATING_POLICY: MUTATING_POLICY,
    BackendKind.WEBHOOK: WEBHOOK_CONFIGURATION,
}
_BY_POLICY_KIND = {
    PolicyKind.AUTO: (BackendKind.CLUSTER_POLICY, BackendKind.MUTATING_POLICY),
    PolicyKind.CLUSTER_POLICY: (BackendKind.CLUSTER_POLICY,),
    PolicyKind.MUTATING_POLICY: (BackendKind.MUTATING_POLICY,),
}
_NATIVE_NEEDS = "MutatingAdmissionPolicy (Kubernetes 1.36 or later)"


class Unavailable(Exception):
    """The cluster does not serve what the configuration asks for."""


def choose(
    settings: Settings, serves: Callable[[GlobalKind], bool], application: str
) -> BackendKind:
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


def policy_name(form: BackendKind, owner: Application) -> str:
    """The name of the object that carries a form out, which is of the kind `KINDS[form]`."""
    # The API server calls webhooks in the order of their configurations' names: after Istio's.
    return f"zz-{owner.name}" if form is BackendKind.WEBHOOK else owner.name


def _preferred(settings: Settings) -> tuple[BackendKind, ...]:
    kyverno = _BY_POLICY_KIND[settings.kyverno_kind]
    return {
        Backend.NATIVE: (BackendKind.NATIVE,),
        Backend.KYVERNO: kyverno,
        Backend.WEBHOOK: (BackendKind.WEBHOOK,),
        Backend.AUTO: (BackendKind.NATIVE, *kyverno, BackendKind.WEBHOOK),
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
