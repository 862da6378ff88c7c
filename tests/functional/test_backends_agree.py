"""The policies, written in CEL and in JMESPath, and the rule, written in Python, are one rule."""

from __future__ import annotations

import copy
import itertools
import json
import re

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from lightkube import Client

from init_egress.backends.backend import BackendKind
from init_egress.backends.probe import NO_BACKEND, labelled
from init_egress.kube.client import ApiClient
from init_egress.rule.decision import decide
from init_egress.rule.istio import CANONICAL_NAME, EXCLUDE_RANGES, STATUS
from init_egress.rule.pod import Namespace, Pod
from tests.functional.installation import Installation
from tests.functional.shapes import patched, shape
from tests.strategies import Json, cut_off, pods
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kyverno import Kyverno

CONFIGURATIONS: dict[str, dict[str, str]] = {
    "defaults": {},
    "keep": {"existing-annotation": "keep", "exclude-outbound-ports": "53,443"},
    "replace": {
        "existing-annotation": "replace",
        "exclude-outbound-ip-ranges": "10.0.0.0/8,fd00::/8",
        "exclude-outbound-ports": "443",
    },
    "ports-only": {"exclude-outbound-ip-ranges": "", "exclude-outbound-ports": "443,5432"},
    "user": {"remedy": "proxy-user", "ignore-init-containers": "fetch"},
    "group": {"remedy": "proxy-group", "exclude-outbound-ip-ranges": "10.0.0.0/8"},
    "group-without-ranges": {
        "remedy": "proxy-group",
        "exclude-outbound-ip-ranges": "",
        "exclude-outbound-ports": "53",
    },
    "selected": {"pod-selector": "app=x,tier notin (web)", "exclude-outbound-ports": "5432"},
}
# No istiod injects there, but the policies act there: the Pods come as if injected.
WHERE = {"istio.io/rev": "of-nobody"}


@pytest.mark.parametrize(
    ("form", "name"),
    list(itertools.product(BackendKind, CONFIGURATIONS)),
    ids=lambda value: value.value if isinstance(value, BackendKind) else value,
)
def test_a_backend_makes_of_any_pod_what_the_rule_says(
    form: BackendKind,
    name: str,
    cluster: ControlPlane,
    client: Client,
    kyverno: Kyverno,
    installation: Installation,
) -> None:
    policy = installation.use(form, CONFIGURATIONS[name]).policy
    cluster.create_namespace("any-pod", WHERE)
    where = Namespace("any-pod", WHERE)
    asked = ApiClient.connect(client.config)

    # derandomize: the same Pods in every run, so that a failure is a failure for everybody.
    @settings(
        max_examples=60,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        # Each Pod costs a round trip or two, and is small already.
        phases=[Phase.generate],
    )
    @given(cut_off | pods)
    def agree(raw: Json) -> None:
        # Kyverno merges by way of YAML, which has no control characters; it leaves such Pods as
        # they are, or turns U+0085 into a space.
        assume(form is not BackendKind.CLUSTER_POLICY or not _has_control_characters(raw))
        pod = _valid(raw)
        untouched = asked.dry_run(where.name, labelled(pod, NO_BACKEND))
        decision = decide(Pod.from_dict(untouched), where, policy)
        touched = asked.dry_run(where.name, pod)
        assert shape(touched) == shape(patched(untouched, decision.patch)), decision

    agree()


@pytest.mark.parametrize(
    ("status", "ranges"),
    [
        ("", ""),
        ("{}", "{{ request.object.metadata.name }}"),
        ("{}", "$(x),{{- 1 }},\\{{ y }}"),
        ("{}", "`[]`,'||',\"&&\""),
    ],
)
# Varies slowest: another backend takes longest to bring about.
@pytest.mark.parametrize("form", BackendKind, ids=lambda form: form.value)
def test_what_an_annotation_holds_is_never_code(
    form: BackendKind,
    status: str,
    ranges: str,
    cluster: ControlPlane,
    client: Client,
    kyverno: Kyverno,
    installation: Installation,
) -> None:
    policy = installation.use(form, {}).policy
    cluster.create_namespace("any-pod", WHERE)
    where = Namespace("any-pod", WHERE)
    annotations = {STATUS: status, EXCLUDE_RANGES: ranges}
    pod = _valid(
        {
            "metadata": {"name": "hostile", "annotations": annotations},
            "spec": {
                "initContainers": [{"name": "fetch"}],
                "containers": [{"name": "app"}, {"name": "istio-proxy"}],
            },
        }
    )

    untouched = ApiClient.connect(client.config).dry_run(where.name, labelled(pod, NO_BACKEND))
    touched = ApiClient.connect(client.config).dry_run(where.name, pod)

    decision = decide(Pod.from_dict(untouched), where, policy)
    assert decision.patch
    assert shape(touched) == shape(patched(untouched, decision.patch))


def _has_control_characters(raw: Json) -> bool:
    text = json.dumps(raw, ensure_ascii=False)
    return bool(re.search(r"[\x7f-\x9f]|\\[bfu]", text))


def _valid(raw: Json) -> Json:
    """The Pod with what the API server insists on, and without what it does not know."""
    pod = copy.deepcopy(raw)
    pod["metadata"].setdefault("name", "any")
    # As Istio's templates have it; the webhook selects by it.
    pod["metadata"].setdefault("labels", {}).setdefault(CANONICAL_NAME, "any")
    spec = pod["spec"]
    spec.pop("futureField", None)
    taken = {container["name"] for container in spec["initContainers"]}
    spec["containers"] = [c for c in spec["containers"] if c["name"] not in taken]
    for container in spec["initContainers"] + spec["containers"]:
        container["image"] = "example.com/any:1"
        container.pop("fieldOfTheFuture", None)
    for container in spec["containers"]:
        container.pop("restartPolicy", None)
    return {"apiVersion": "v1", "kind": "Pod", **pod}
