"""What the backends share that write the rule as a policy: the rule's values as CEL and JSON."""

from __future__ import annotations

import json
from abc import ABC
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from init_egress.backends.backend import Backend, Objects, PlanInputs
from init_egress.backends.render import render, render_text
from init_egress.config import FailurePolicy, Settings
from init_egress.kube.application import Application
from init_egress.kube.cluster import Cluster
from init_egress.kube.manifest import Manifest
from init_egress.mesh.injection import UNKNOWN, Injection
from init_egress.rule import istio
from init_egress.rule.patch import annotation_path
from init_egress.rule.policy import Policy
from init_egress.rule.remedies import REMEDIES
from init_egress.rule.selector import Operator, Requirement

INJECTED = f"{json.dumps(istio.STATUS)} in object.metadata.?annotations.orValue({{}})"
"""CEL: Istio injected the Pod."""

FAILURE_POLICY = MappingProxyType({FailurePolicy.IGNORE: "Ignore", FailurePolicy.FAIL: "Fail"})
"""The option as the API server spells it."""


class PolicyBackend(Backend, ABC):
    """A backend that is a policy and nothing else: it can be rendered without a cluster.

    Attributes:
        templates: the templates of its objects, in the order in which they are applied.
    """

    templates: ClassVar[tuple[str, ...]]

    def render(
        self, settings: Settings, application: Application, injection: Injection = UNKNOWN
    ) -> list[Manifest]:
        """Render the objects.

        Args:
            settings: the charm's configuration.
            application: the application that the objects belong to.
            injection: what selectors have to know of the mesh.
        """
        return render(self.templates, self._context(settings, application, injection))

    def objects(self, cluster: Cluster, inputs: PlanInputs) -> Objects:
        """See `Backend.objects`."""
        return Objects(self.render(inputs.settings, inputs.application, inputs.mesh.injection))

    def _context(
        self, settings: Settings, application: Application, injection: Injection
    ) -> Mapping[str, object]:
        policy = settings.policy
        remedy = REMEDIES[policy.remedy]
        context: dict[str, object] = {
            "rule": istio,
            "policy": policy,
            "name": self.object_name(application),
            "labels": application.labels,
            "probe": self.probe_label(application),
            "failure_policy": FAILURE_POLICY[settings.failure_policy],
            "namespace_expressions": namespace_expressions(policy),
            "pod_expressions": policy.pods.expressions(),
            "pod_conditions": [_condition(r) for r in policy.pods.requirements],
            "untouched": [*istio.ISTIO_CONTAINERS, *policy.ignored],
            "excludes": _excludes(policy),
            "identity": remedy.identity,
            "injected": INJECTED,
            "bindings": [binding.expressions() for binding in injection.bindings],
        }
        context["variables"] = "".join(render_text(name, context) for name in remedy.cel_variables)
        context["mutation"] = render_text(remedy.cel_mutation, context)
        return context


def namespace_expressions(policy: Policy) -> list[dict[str, object]]:
    """The namespaces to act in. A namespace's labels don't change during an admission."""
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

    `complete` is what becomes of one that lacks nothing: Istio wants ranges without spaces, while
    it trims ports.
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
