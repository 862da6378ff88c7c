"""The objects that carry the rule out on a cluster: settings and templates in, manifests out.

The templates hold the YAML that an operator reads; what goes into them is worked out here, so a
template has loops over lists, but no logic. jinja2 runs with StrictUndefined: a missing name is an
error, never an empty string on a cluster.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import MappingProxyType

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from init_egress.backends.certificates import Trust
from init_egress.config import FailurePolicy, Settings
from init_egress.rule import istio
from init_egress.rule.patch import annotation_path
from init_egress.rule.policy import Policy
from init_egress.rule.remedies import REMEDIES
from init_egress.rule.selector import Operator, Requirement

TEMPLATES = Path(__file__).resolve().parents[3] / "templates"
APPLICATION_LABEL = "istio-init-egress/application"
MODEL_LABEL = "istio-init-egress/model"
PROBE_CONTAINER = "istio-init-egress-probe"

# Kyverno takes no policy name of over 63 characters; a binding's name is the policy's and more.
_NAME_LIMIT = 45
# A Service's name is a DNS label of 63 characters, and the Secrets' names are longer than it.
_WORKLOAD_NAME_LIMIT = 40

Manifest = dict[str, object]


class BackendKind(str, Enum):
    """What is written to the cluster: a backend, or for Kyverno one of its kinds of policy."""

    NATIVE = "native"
    CLUSTER_POLICY = "kyverno-clusterpolicy"
    MUTATING_POLICY = "kyverno-mutatingpolicy"
    WEBHOOK = "webhook"

    @property
    def description(self) -> str:
        """The form as it is called in a status."""
        return {
            BackendKind.NATIVE: "native",
            BackendKind.CLUSTER_POLICY: "kyverno (ClusterPolicy)",
            BackendKind.MUTATING_POLICY: "kyverno (MutatingPolicy)",
            BackendKind.WEBHOOK: "webhook",
        }[self]


@dataclass(frozen=True)
class Application:
    """The application that owns the objects; it names and labels them.

    Attributes:
        application: the Juju application's name.
        model: the Juju model's name.
    """

    application: str
    model: str

    @property
    def name(self) -> str:
        """The objects' name: readable, unique among models, short enough for every kind."""
        # Neither part can hold a dot, so the two can't be taken for two others.
        full = f"{self.application}.{self.model}"
        if len(full) <= _NAME_LIMIT:
            return full
        digest = hashlib.sha256(full.encode()).hexdigest()[:8]
        return f"{self.application[: _NAME_LIMIT - 9].rstrip('-')}.{digest}"

    @property
    def workload_name(self) -> str:
        """The name of the webhook's Deployment, Service and so on, which holds no dot."""
        return self._dashed("webhook")

    @property
    def exporter_name(self) -> str:
        """The name of the exporter's Deployment, Service and so on, which holds no dot."""
        return self._dashed("exporter")

    def _dashed(self, part: str) -> str:
        full = f"{self.application}-{part}"
        if len(full) <= _WORKLOAD_NAME_LIMIT:
            return full
        digest = hashlib.sha256(full.encode()).hexdigest()[:8]
        return f"{self.application[:20].rstrip('-')}-{digest}-{part}"

    @property
    def labels(self) -> dict[str, str]:
        """The labels by which the objects are found again."""
        return {APPLICATION_LABEL: self.application, MODEL_LABEL: self.model}

    def probe(self, form: BackendKind) -> str:
        """The value of the probe label that only this owner's objects of this form answer."""
        return hashlib.sha256(
            f"{form.value}/{self.application}.{self.model}".encode()
        ).hexdigest()[:16]


@dataclass(frozen=True)
class WebhookValues:
    """What the webhook's templates are filled with; what ends up in a Secret is base64 already.

    Attributes:
        name: of the Deployment, the Service and the rest.
        namespace: the model's.
        image: where the image is.
        replicas: how many there are to be.
        selector: the labels of its Pods.
        settings: the mounted file, YAML.
        revision: changes with the settings.
        certificate_revision: changes with the certificate.
        authority: the data of the Secret of the charm's own authority.
        certificate: the data of the Secret of the certificate.
        registry: the credentials of a private registry, else empty.
        bundle: the authorities that the API server trusts.
        trust: the same, readable: what is served and trusted.
        logs: the mounted file that says where log lines go, JSON; empty if they go nowhere.
    """

    name: str
    namespace: str
    image: str
    replicas: int
    selector: Mapping[str, str]
    settings: str
    revision: str
    certificate_revision: str
    authority: Mapping[str, str]
    certificate: Mapping[str, str]
    registry: str
    bundle: str
    trust: Trust
    logs: str = ""


@dataclass(frozen=True)
class ExporterValues:
    """What the exporter's template is filled with.

    Attributes:
        name: of the Deployment, the Service and the rest.
        namespace: the model's.
        image: where the image is; it is the webhook's.
        selector: the labels of its Pod.
        snapshot: the mounted file, JSON.
        registry: the credentials of a private registry, base64, else empty.
    """

    name: str
    namespace: str
    image: str
    selector: Mapping[str, str]
    snapshot: str
    registry: str = ""


@dataclass(frozen=True)
class Binding:
    """One way in which Pods come to be injected, as selectors."""

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
# What Istio's own templates leave on a Pod. Gateways and waypoints that are not injected carry the
# name too, and refuse (istio/istio: manifests/charts/gateways, files/waypoint.yaml of istiod's).
_HAS_CANONICAL_NAME = (Requirement(istio.CANONICAL_NAME, Operator.EXISTS), _NOT_REFUSED)
_UNLABELLED = (_by_injection_label(Operator.DOES_NOT_EXIST), _by_revision(Operator.DOES_NOT_EXIST))

# istio/istio: manifests/charts/istio-control/istio-discovery/templates/mutatingwebhook.yaml, with
# any revision in the place of each: a superset of what the istiods of the cluster inject.
INJECTION = (
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


def render(
    form: BackendKind,
    settings: Settings,
    owner: Application,
    *,
    injects_by_default: bool = False,
    labels_canonical_name: bool = False,
    workload: WebhookValues | None = None,
) -> list[Manifest]:
    """Render the objects of one form.

    Args:
        form: what to write.
        settings: the charm's configuration.
        owner: the application whose objects they are.
        injects_by_default: whether istiod injects namespaces that have no label
            (`sidecarInjectorWebhook.enableNamespacesByDefault`).
        labels_canonical_name: whether every Pod that istiod injects carries the label of its
            canonical name, so that the webhook may select by it.
        workload: what the webhook's templates are filled with; only that form needs it.
    """
    environment = _environment()
    policy = settings.policy
    remedy = REMEDIES[policy.remedy]
    injected = f"{json.dumps(istio.STATUS)} in object.metadata.?annotations.orValue({{}})"
    context: dict[str, object] = {
        "rule": istio,
        "policy": policy,
        "name": owner.name,
        "labels": owner.labels,
        "probe": owner.probe(form),
        "failure_policy": _FAILURE[settings.failure_policy],
        "namespace_expressions": _namespace_expressions(policy),
        "pod_expressions": policy.pods.expressions(),
        "pod_conditions": [_condition(r) for r in policy.pods.requirements],
        "untouched": [*istio.ISTIO_CONTAINERS, *policy.ignored],
        "excludes": _excludes(policy),
        "identity": remedy.identity,
        "injected": injected,
        "injected_expressions": [r.expression() for r in _HAS_CANONICAL_NAME]
        if labels_canonical_name
        else [],
        "injected_conditions": [] if labels_canonical_name else [injected],
        "workload": workload,
        "bindings": [
            b.expressions() for b in (*INJECTION, *([BY_DEFAULT] if injects_by_default else []))
        ],
    }
    context["variables"] = "".join(
        environment.get_template(t).render(context) for t in remedy.cel_variables
    )
    context["mutation"] = environment.get_template(remedy.cel_mutation).render(context)
    text = "---\n".join(environment.get_template(t).render(context) for t in _TEMPLATES[form])
    return [document for document in yaml.load_all(text, _Loader) if document]


def render_exporter(exporter: ExporterValues, owner: Application) -> list[Manifest]:
    """Render the objects of the exporter.

    Args:
        exporter: what its template is filled with.
        owner: whose objects they are.
    """
    template = _environment().get_template("exporter/workload.yaml.j2")
    text = template.render(exporter=exporter, labels=owner.labels)
    return [document for document in yaml.load_all(text, _Loader) if document]


def probe_pod(
    policy: Policy,
    *,
    labels: Mapping[str, str] = MappingProxyType({}),
    annotations: Mapping[str, str] = MappingProxyType({}),
) -> Manifest:
    """A Pod that would need the remedy if Istio injected it, for a server-side dry run.

    Args:
        policy: what the operator configured; the Pod satisfies its pod-selector where it can.
        labels: further labels.
        annotations: its annotations, such as one that refuses a native sidecar.
    """
    template = _environment().get_template("probe.yaml.j2")
    text = template.render(
        labels={**policy.pods.example(), **labels},
        annotations={**annotations},
        container=PROBE_CONTAINER,
    )
    return yaml.load(text, _Loader)  # noqa: S506 - it is a safe loader


def labelled(pod: Manifest, label: str) -> Manifest:
    """The Pod as a probe that only the form with this probe label answers."""
    metadata = pod["metadata"]
    if not isinstance(metadata, dict):
        raise TypeError("a Pod without metadata")
    labels = {**(metadata.get("labels") or {}), istio.PROBE_LABEL: label}
    return {**pod, "metadata": {**metadata, "labels": labels}}


def to_yaml(manifests: list[Manifest]) -> str:
    """Write manifests the way `kubectl apply -f` reads them, expressions line by line."""
    return yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, width=100)


# In C where PyYAML was built with libyaml: ten times as fast, and each event renders.
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a literal block."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


_FAILURE = {FailurePolicy.IGNORE: "Ignore", FailurePolicy.FAIL: "Fail"}
_TEMPLATES = {
    BackendKind.NATIVE: ("native/policy.yaml.j2", "native/bindings.yaml.j2"),
    BackendKind.CLUSTER_POLICY: ("kyverno/cluster-policy.yaml.j2",),
    BackendKind.MUTATING_POLICY: ("kyverno/mutating-policy.yaml.j2",),
    BackendKind.WEBHOOK: ("webhook/workload.yaml.j2", "webhook/configuration.yaml.j2"),
}


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - YAML and CEL, not HTML
    )
    # A JSON string or list of strings is a CEL literal.
    environment.filters["cel"] = json.dumps
    environment.filters["jmes"] = lambda value: f"`{json.dumps(value)}`"
    environment.filters["kyverno"] = lambda expression: f"{{{{ {expression} }}}}"
    return environment


def _namespace_expressions(policy: Policy) -> list[dict[str, object]]:
    """Namespaces the charm acts in. Labels of a namespace don't change during an admission."""
    always = (
        Requirement("kubernetes.io/metadata.name", Operator.NOT_IN, istio.SYSTEM_NAMESPACES),
        Requirement(istio.SKIP_LABEL, Operator.NOT_IN, ("true",)),
    )
    return [requirement.expression() for requirement in (*always, *policy.namespaces.requirements)]


def _condition(requirement: Requirement) -> str:
    """A requirement on the Pod's labels in CEL, asked on the Pod as injected."""
    key = json.dumps(requirement.key)
    values = json.dumps(requirement.values)
    present = f"{key} in variables.labels"
    among = f"({present} && variables.labels[{key}] in {values})"
    return {
        Operator.IN: among,
        Operator.NOT_IN: f"!{among}",
        Operator.EXISTS: present,
        Operator.DOES_NOT_EXIST: f"!({present})",
    }[requirement.operator]


def _excludes(policy: Policy) -> list[dict[str, object]]:
    """The annotations that the configuration asks for.

    `complete` is what stays of one that lacks nothing: Istio wants ranges without spaces, while it
    trims ports.
    """
    ranges = {
        "name": "ranges",
        "key": istio.EXCLUDE_RANGES,
        "elements": policy.ranges,
        "text": ",".join(policy.ranges),
        "complete": 'variables.ranges.join(",")',
        "complete_jmes": "join(',', ranges)",
    }
    ports = {
        "name": "ports",
        "key": istio.EXCLUDE_PORTS,
        "elements": policy.ports,
        "text": ",".join(policy.ports),
        "complete": f"variables.annotations[{json.dumps(istio.EXCLUDE_PORTS)}]",
        "complete_jmes": f"podAnnotations.{json.dumps(istio.EXCLUDE_PORTS)}",
    }
    return [
        {**exclude, "path": annotation_path(str(exclude["key"]))}
        for exclude in (ranges, ports)
        if exclude["elements"]
    ]
