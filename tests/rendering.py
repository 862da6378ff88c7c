"""What the backends render, for tests that look into it."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from init_egress.backends.backend import Backend
from init_egress.backends.certificates import Lifetimes, Trust, signed
from init_egress.backends.policy import PolicyBackend
from init_egress.backends.registry import BACKENDS, POLICY_BACKENDS, WEBHOOK
from init_egress.backends.webhook_deployment import Image, fill
from init_egress.config import Settings
from init_egress.kube.application import Application
from init_egress.kube.manifest import Manifest
from init_egress.mesh.injection import Injection
from init_egress.rule import selector
from init_egress.rule.policy import ExistingAnnotation, Policy, RemedyKind

APPLICATION = Application("istio-init-egress", "kubeflow")
LONG = Application("a" * 63, "m" * 63)
POLICIES = ("MutatingAdmissionPolicy", "ClusterPolicy", "MutatingPolicy")
WEBHOOK_CONFIGURATION = "MutatingWebhookConfiguration"

EACH_BACKEND = pytest.mark.parametrize(
    "backend", BACKENDS.values(), ids=lambda backend: backend.kind.value
)
# The webhook carries the rule itself; the others are the rule, in another language.
EACH_POLICY_BACKEND = pytest.mark.parametrize(
    "backend", POLICY_BACKENDS, ids=lambda backend: backend.kind.value
)
EACH_REMEDY = pytest.mark.parametrize("remedy", list(RemedyKind), ids=lambda r: r.value)
EACH_EXISTING = pytest.mark.parametrize(
    "existing", list(ExistingAnnotation), ids=lambda e: e.value
)

_AUTHORITY, _IDENTITY = signed(
    None, None, frozenset({"a.svc"}), datetime.now(timezone.utc), Lifetimes()
)


def with_policy(**fields: Any) -> Settings:
    """Settings with these fields of the policy."""
    return Settings(policy=Policy(**fields))


def render(
    backend: Backend,
    settings: Settings,
    application: Application = APPLICATION,
    *,
    by_default: bool = False,
    labels_canonical_name: bool = False,
) -> list[Manifest]:
    """What a backend renders, the webhook's with a certificate that the charm signed itself."""
    injection = Injection(by_default, labels_canonical_name)
    if isinstance(backend, PolicyBackend):
        return backend.render(settings, application, injection)
    assert backend is WEBHOOK
    image = Image("registry.example.com/webhook:1", "user", "password")
    label = WEBHOOK.probe_label(application)
    values = fill(settings, application, label, image, _AUTHORITY, Trust(_IDENTITY))
    return WEBHOOK.render(settings, application, injection, values)


def policy_of(backend: Backend, settings: Settings | None = None) -> dict[str, Any]:
    """The object that decides which Pods are asked about, typed loosely for convenience."""
    objects = render(backend, settings or Settings())
    asked_about = (o for o in objects if o["kind"] != "NetworkPolicy")
    return next(o for o in asked_about if at(o, "namespaceSelector") or o["kind"] in POLICIES)


def metadata(manifest: Manifest) -> dict[str, Any]:
    """An object's metadata."""
    found = manifest["metadata"]
    assert isinstance(found, dict)
    return found


def at(tree: object, key: str) -> list[Any]:
    """Every value of this key, however deep."""
    if isinstance(tree, dict):
        here = [tree[key]] if key in tree else []
        return here + [found for value in tree.values() for found in at(value, key)]
    if isinstance(tree, list):
        return [found for value in tree for found in at(value, key)]
    return []


def selects(label_selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether matchExpressions select these labels."""
    chosen = selector.Selector(
        tuple(
            selector.Requirement(
                e["key"], selector.Operator(e["operator"]), tuple(e.get("values", ()))
            )
            for e in label_selector["matchExpressions"]
        )
    )
    return chosen.matches(labels)
