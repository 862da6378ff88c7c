"""Which backend carries the rule out: what the operator asks for and what the cluster serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from init_egress.backends.backend import Backend, Unavailable
from init_egress.backends.registry import BACKENDS
from init_egress.config import BackendChoice, PolicyKind, Settings
from init_egress.kube.kinds import GlobalKind


def choose(
    settings: Settings,
    serves: Callable[[GlobalKind], bool],
    application: str,
    backends: Iterable[Backend] = tuple(BACKENDS.values()),
) -> Backend:
    """Choose a backend: the first that is asked for, can apply the remedy and is served.

    Args:
        settings: the configuration.
        serves: tells whether the cluster serves a kind.
        application: the application's name, for the commands in messages.
        backends: those to choose from, the most preferred first.

    Raises:
        Unavailable: the message names what is missing and a command that helps.
    """
    known = tuple(backends)
    asked_for = [backend for backend in known if _is_asked_for(backend, settings)]
    able = [backend for backend in asked_for if _can_apply_remedy(backend, settings)]
    if not able:
        raise Unavailable(_unable(settings, known, application))
    for backend in able:
        if serves(backend.resource):
            return backend
    raise Unavailable(_not_served(able, application))


def _is_asked_for(backend: Backend, settings: Settings) -> bool:
    by_choice = settings.backend in (BackendChoice.AUTO, backend.choice)
    by_kind = backend.policy_kind is None or settings.kyverno_kind in (
        PolicyKind.AUTO,
        backend.policy_kind,
    )
    return by_choice and by_kind


def _can_apply_remedy(backend: Backend, settings: Settings) -> bool:
    return settings.policy.remedy in backend.capabilities.remedies


def _unable(settings: Settings, known: Iterable[Backend], application: str) -> str:
    remedy = settings.policy.remedy
    able = [backend for backend in known if _can_apply_remedy(backend, settings)]
    choices = ", ".join(dict.fromkeys(backend.choice.value for backend in able))
    return (
        f"backend={settings.backend.value} does not support remedy={remedy.value}; supported by:"
        f" {choices or 'no backend'}; run: juju config {application} backend=auto"
    )


def _not_served(able: list[Backend], application: str) -> str:
    kinds = " or ".join(backend.requires for backend in able)
    options = ["backend=auto"]
    if any(backend.policy_kind for backend in able):
        options.append(f"kyverno-policy-kind={PolicyKind.AUTO.value}")
    command = f"run: juju config {application} {' '.join(options)}"
    fixes = dict.fromkeys(b.remedy_for_absence for b in able if b.remedy_for_absence)
    helps = ", or ".join([*fixes, command])
    return f"this cluster does not serve {kinds}; {helps}"
