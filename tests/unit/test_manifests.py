"""The objects that are written to a cluster: what they hold, and what they must never hold."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime, timezone
from itertools import combinations
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError

from init_egress.backends import manifests
from init_egress.backends.certificates import Lifetimes, Trust, signed
from init_egress.backends.manifests import (
    APPLICATION_LABEL,
    MODEL_LABEL,
    PROBE_CONTAINER,
    Application,
    BackendKind,
    Manifest,
    WebhookValues,
    probe_pod,
    to_yaml,
)
from init_egress.backends.webhook_deployment import Image, fill
from init_egress.config import Config, FailurePolicy, Settings
from init_egress.rule import istio, selector
from init_egress.rule.istio import EXCLUDE_RANGES, PROBE_LABEL
from init_egress.rule.policy import ExistingAnnotation, Policy, RemedyKind

OWNER = Application("istio-init-egress", "kubeflow")
AUTHORITY, IDENTITY = signed(
    None, None, frozenset({"a.svc"}), datetime.now(timezone.utc), Lifetimes()
)
POLICIES = ("MutatingAdmissionPolicy", "ClusterPolicy", "MutatingPolicy")
WEBHOOK_CONFIGURATION = "MutatingWebhookConfiguration"
LONG = Application("a" * 63, "m" * 63)

FORMS = pytest.mark.parametrize("form", list(BackendKind), ids=lambda f: f.value)
# The webhook carries the rule itself; the others are the rule, in another language.
POLICY_FORMS = pytest.mark.parametrize(
    "form", [f for f in BackendKind if f is not BackendKind.WEBHOOK], ids=lambda f: f.value
)
REMEDIES = pytest.mark.parametrize("remedy", list(RemedyKind), ids=lambda r: r.value)
EXISTING = pytest.mark.parametrize("existing", list(ExistingAnnotation), ids=lambda e: e.value)


def with_policy(**fields: Any) -> Settings:
    return Settings(policy=Policy(**fields))


def render(
    form: BackendKind,
    a_settings: Settings,
    owner: Application,
    *,
    injects_by_default: bool = False,
) -> list[Manifest]:
    """What is rendered, the webhook's with a certificate that the charm signed itself."""
    filled = _workload(a_settings, owner) if form is BackendKind.WEBHOOK else None
    return manifests.render(
        form, a_settings, owner, injects_by_default=injects_by_default, workload=filled
    )


def webhook_configuration(*, labels_canonical_name: bool) -> dict[str, Any]:
    """The webhook's configuration, by whether Istio is known to label every Pod."""
    filled = _workload(Settings(), OWNER)
    objects: list[Any] = manifests.render(
        BackendKind.WEBHOOK,
        Settings(),
        OWNER,
        labels_canonical_name=labels_canonical_name,
        workload=filled,
    )
    return next(o for o in objects if o["kind"] == WEBHOOK_CONFIGURATION)


def _workload(a_settings: Settings, owner: Application) -> WebhookValues:
    image = Image("registry.example.com/webhook:1", "user", "password")
    return fill(a_settings, owner, image, AUTHORITY, Trust(IDENTITY))


def policy_of(form: BackendKind, a_settings: Settings | None = None) -> dict[str, Any]:
    """The object that decides which Pods are asked about, typed loosely for convenience."""
    objects = render(form, a_settings or Settings(), OWNER)
    asked_about = (o for o in objects if o["kind"] != "NetworkPolicy")
    return next(o for o in asked_about if at(o, "namespaceSelector") or o["kind"] in POLICIES)


def metadata(manifest: Manifest) -> dict[str, Any]:
    found = manifest["metadata"]
    assert isinstance(found, dict)
    return found


def at(tree: object, key: str) -> list[Any]:
    """Every value that stands under this key, however deep."""
    if isinstance(tree, dict):
        here = [tree[key]] if key in tree else []
        return here + [found for value in tree.values() for found in at(value, key)]
    if isinstance(tree, list):
        return [found for value in tree for found in at(value, key)]
    return []


# --- Any form ------------------------------------------------------------------------------------


@FORMS
@REMEDIES
@EXISTING
@pytest.mark.parametrize(
    ("ranges", "ports"),
    [(("0.0.0.0/0", "::/0"), ()), ((), ("443",)), (("10.0.0.0/8",), ("443", "5432"))],
    ids=["ranges", "ports", "both"],
)
def test_whatever_is_configured_makes_objects_of_ours(
    form: BackendKind,
    remedy: RemedyKind,
    existing: ExistingAnnotation,
    ranges: tuple[str, ...],
    ports: tuple[str, ...],
) -> None:
    a_settings = with_policy(remedy=remedy, existing=existing, ranges=ranges, ports=ports)
    objects = render(form, a_settings, OWNER)
    assert objects
    for manifest in objects:
        assert isinstance(manifest["apiVersion"], str)
        assert isinstance(manifest["kind"], str)
        labels = metadata(manifest)["labels"]
        assert labels[APPLICATION_LABEL] == "istio-init-egress"
        assert labels[MODEL_LABEL] == "kubeflow"
        of_a_namespace = form is BackendKind.WEBHOOK and manifest["kind"] != WEBHOOK_CONFIGURATION
        assert metadata(manifest).get("namespace") == ("kubeflow" if of_a_namespace else None)


@FORMS
@REMEDIES
@EXISTING
@pytest.mark.parametrize("injects_by_default", [False, True])
def test_the_yaml_that_is_shown_is_what_is_applied(
    form: BackendKind, remedy: RemedyKind, existing: ExistingAnnotation, injects_by_default: bool
) -> None:
    a_settings = with_policy(
        remedy=remedy,
        existing=existing,
        ports=("443",),
        namespaces=selector.parse("team=ml,tier in (a,b,)"),
        pods=selector.parse("canary,!legacy,stage!=dev"),
    )
    objects = render(form, a_settings, OWNER, injects_by_default=injects_by_default)
    shown = to_yaml(objects)
    assert list(yaml.safe_load_all(shown)) == objects
    assert "&id0" not in shown


@FORMS
@REMEDIES
def test_expressions_are_shown_line_by_line(form: BackendKind, remedy: RemedyKind) -> None:
    objects = render(form, with_policy(remedy=remedy), OWNER)
    shown = {line.strip() for line in to_yaml(objects).splitlines()}
    of_several_lines = [text for text in _strings(objects) if "\n" in text]
    assert of_several_lines
    assert {line.strip() for text in of_several_lines for line in text.splitlines()} <= shown


@FORMS
@REMEDIES
@pytest.mark.parametrize("injects_by_default", [False, True])
def test_the_same_settings_make_the_same_objects(
    form: BackendKind, remedy: RemedyKind, injects_by_default: bool
) -> None:
    a_settings = with_policy(remedy=remedy)
    first = render(form, a_settings, OWNER, injects_by_default=injects_by_default)
    assert render(form, a_settings, OWNER, injects_by_default=injects_by_default) == first


@FORMS
def test_only_creations_of_pods_are_asked_for(form: BackendKind) -> None:
    objects = render(form, Settings(), OWNER, injects_by_default=True)
    assert at(objects, "operations") == [["CREATE"]]
    # A container's resources are none of what is asked for.
    resources = [r for r in at(objects, "resources") if "limits" not in r]
    assert at(resources, "kinds") == [["v1/Pod"]] or resources == [["pods"]]


@FORMS
@pytest.mark.parametrize(
    ("configured", "written"), [(FailurePolicy.IGNORE, "Ignore"), (FailurePolicy.FAIL, "Fail")]
)
def test_the_failure_policy_is_the_configured_one(
    form: BackendKind, configured: FailurePolicy, written: str
) -> None:
    objects = render(form, Settings(failure_policy=configured), OWNER)
    assert at(objects, "failurePolicy") == [written]


@FORMS
def test_system_namespaces_and_opted_out_namespaces_are_not_asked_about(form: BackendKind) -> None:
    a_settings = with_policy(namespaces=selector.parse("team=ml"))
    expressions = at(policy_of(form, a_settings), "namespaceSelector")[0]["matchExpressions"]
    assert expressions == [
        {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": list(istio.SYSTEM_NAMESPACES),
        },
        {"key": istio.SKIP_LABEL, "operator": "NotIn", "values": ["true"]},
        {"key": "team", "operator": "In", "values": ["ml"]},
    ]


@POLICY_FORMS
@REMEDIES
def test_everything_that_the_rule_depends_on_is_asked_for(
    form: BackendKind, remedy: RemedyKind
) -> None:
    a_settings = with_policy(remedy=remedy, ignored=("my-chown",), pods=selector.parse("canary"))
    text = json.dumps(policy_of(form, a_settings))
    for name in (
        istio.STATUS,
        istio.SKIP_LABEL,
        istio.INTERCEPTION_MODE,
        istio.INCLUDE_RANGES,
        istio.INCLUDE_PORTS,
        EXCLUDE_RANGES,
        "DISABLE_ENVOY",
        "my-chown",
        "canary",
        *istio.ISTIO_CONTAINERS,
    ):
        assert name in text


@POLICY_FORMS
@pytest.mark.parametrize(
    ("remedy", "written"),
    [
        (RemedyKind.EXCLUDE_IP_RANGES, EXCLUDE_RANGES),
        (RemedyKind.PROXY_USER, "securityContext/runAsUser"),
        (RemedyKind.PROXY_GROUP, "securityContext/runAsGroup"),
    ],
)
def test_a_remedy_writes_only_its_own_fields(
    form: BackendKind, remedy: RemedyKind, written: str
) -> None:
    found = policy_of(form, with_policy(remedy=remedy))
    mutations = at(found, "mutations") or at(found, "mutate")
    assert len(mutations) == 1
    text = json.dumps(mutations)
    if form is BackendKind.CLUSTER_POLICY or remedy is not RemedyKind.EXCLUDE_IP_RANGES:
        assert written in text
    for other in ("securityContext/runAsUser", "securityContext/runAsGroup"):
        assert (other in text) == (other == written)
    assert ("/spec/" in text) == (remedy is not RemedyKind.EXCLUDE_IP_RANGES)


@POLICY_FORMS
@pytest.mark.parametrize(
    ("ranges", "ports", "named", "unnamed"),
    [
        (("10.0.0.0/8",), (), "rangesWanted", "portsWanted"),
        ((), ("5432",), "portsWanted", "rangesWanted"),
    ],
    ids=["ranges", "ports"],
)
def test_an_annotation_that_is_not_configured_is_not_written(
    form: BackendKind, ranges: tuple[str, ...], ports: tuple[str, ...], named: str, unnamed: str
) -> None:
    text = json.dumps(policy_of(form, with_policy(ranges=ranges, ports=ports)))
    assert named in text
    assert unnamed not in text


# --- Names ---------------------------------------------------------------------------------------


def test_a_short_name_says_application_and_model() -> None:
    assert OWNER.name == "istio-init-egress.kubeflow"
    assert OWNER.labels == {APPLICATION_LABEL: "istio-init-egress", MODEL_LABEL: "kubeflow"}


def test_owners_that_look_alike_have_names_and_probes_of_their_own() -> None:
    owners = [
        Application("a-b", "c"),
        Application("a", "b-c"),
        Application("c", "a-b"),
        Application("a" * 63, "m" * 63),
        Application("a" * 63, "m" * 62),
        Application("a" * 62, "m" * 63),
        Application("a" * 35 + "-" + "b" * 27, "m" * 63),
    ]
    names = [
        {metadata(manifest)["name"] for manifest in render(BackendKind.NATIVE, Settings(), owner)}
        for owner in owners
    ]
    probes = [{owner.probe(form) for form in BackendKind} for owner in owners]
    assert all(one.isdisjoint(other) for one, other in combinations(names, 2))
    assert all(one.isdisjoint(other) for one, other in combinations(probes, 2))


@FORMS
@pytest.mark.parametrize(
    "owner",
    [OWNER, LONG, Application("a", "m"), Application("a" * 35 + "-" * 2 + "b" * 26, "m" * 63)],
    ids=["usual", "long", "short", "dashes-where-it-is-cut"],
)
def test_names_are_valid_and_short_enough_for_every_kind(
    form: BackendKind, owner: Application
) -> None:
    objects = render(form, Settings(), owner, injects_by_default=True)
    names = [metadata(manifest)["name"] for manifest in objects]
    label = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    for name in names:
        assert re.fullmatch(rf"{label}(\.{label})*", name)
        assert len(name) <= 63
    kinds = [(manifest["kind"], metadata(manifest)["name"]) for manifest in objects]
    assert len(set(kinds)) == len(kinds)


@FORMS
def test_labels_are_short_enough_for_the_longest_names(form: BackendKind) -> None:
    for manifest in render(form, Settings(), LONG):
        assert all(len(value) <= 63 for value in metadata(manifest)["labels"].values())
    assert all(len(value) <= 63 for value in LONG.labels.values())


def test_every_form_has_a_probe_of_its_own_and_a_description() -> None:
    assert len({OWNER.probe(form) for form in BackendKind}) == len(BackendKind)
    assert all(re.fullmatch(r"[a-z0-9]{1,63}", OWNER.probe(form)) for form in BackendKind)
    assert len({form.description for form in BackendKind}) == len(BackendKind)


_names = st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


@settings(deadline=None, database=None)
@given(st.lists(st.builds(Application, _names, _names), min_size=2, max_size=2, unique=True))
def test_any_two_owners_have_different_names(owners: list[Application]) -> None:
    one, other = owners
    assert one.name != other.name
    assert max(len(one.name), len(other.name)) <= 45


# --- The native policy: what is asked when -------------------------------------------------------


def test_the_native_policy_is_asked_again_after_the_webhooks() -> None:
    spec = policy_of(BackendKind.NATIVE)["spec"]
    assert spec["reinvocationPolicy"] == "IfNeeded"
    assert spec["matchConstraints"]["matchPolicy"] == "Equivalent"


@REMEDIES
def test_no_selector_or_condition_of_the_native_policy_asks_for_what_a_webhook_adds(
    remedy: RemedyKind,
) -> None:
    # A policy that is skipped in the first round isn't called in the second one.
    a_settings = with_policy(
        remedy=remedy, pods=selector.parse("added-by-a-webhook"), namespaces=selector.parse("team")
    )
    early = []
    for manifest in render(BackendKind.NATIVE, a_settings, OWNER, injects_by_default=True):
        assert at(manifest, "matchConditions") == []
        early += at(manifest, "matchConstraints") + at(manifest, "matchResources")
    assert early
    text = json.dumps(early)
    for late in (
        "initContainers",
        "sidecar.istio.io/status",
        "annotations",
        "istio-proxy",
        "added-by-a-webhook",
        PROBE_LABEL,
    ):
        assert late not in text
    assert istio.SKIP_LABEL not in json.dumps(at(early, "objectSelector"))


def test_what_a_webhook_adds_is_asked_in_the_variables_of_the_native_policy() -> None:
    a_settings = with_policy(pods=selector.parse("added-by-a-webhook"))
    spec = policy_of(BackendKind.NATIVE, a_settings)["spec"]
    text = json.dumps(spec["variables"])
    for late in ("initContainers", "sidecar.istio.io/status", "added-by-a-webhook", PROBE_LABEL):
        assert late in text


@pytest.mark.parametrize(
    "form", [BackendKind.NATIVE, BackendKind.MUTATING_POLICY], ids=lambda f: f.value
)
@REMEDIES
@EXISTING
def test_a_cel_variable_stands_before_it_is_used(
    form: BackendKind, remedy: RemedyKind, existing: ExistingAnnotation
) -> None:
    a_settings = with_policy(
        remedy=remedy, existing=existing, ports=("443",), pods=selector.parse("a in (b),!c")
    )
    spec = policy_of(form, a_settings)["spec"]
    known: set[str] = set()
    for variable in spec["variables"]:
        assert set(re.findall(r"variables\.(\w+)", variable["expression"])) <= known
        assert variable["name"] not in known
        known.add(variable["name"])
    (mutation,) = spec["mutations"]
    assert mutation["patchType"] == "JSONPatch"
    assert set(re.findall(r"variables\.(\w+)", mutation["jsonPatch"]["expression"])) <= known


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("a=b", '("a" in variables.labels && variables.labels["a"] in ["b"])'),
        ("a!=b", '!("a" in variables.labels && variables.labels["a"] in ["b"])'),
        ("a", '"a" in variables.labels'),
        ("!a", '!("a" in variables.labels)'),
    ],
)
def test_a_pod_selector_is_asked_in_cel(text: str, expression: str) -> None:
    spec = policy_of(BackendKind.NATIVE, with_policy(pods=selector.parse(text)))["spec"]
    (applies,) = [v["expression"] for v in spec["variables"] if v["name"] == "applies"]
    assert f"&& {expression}" in applies


def test_a_binding_stands_for_each_way_of_being_injected() -> None:
    objects: list[Any] = render(BackendKind.NATIVE, Settings(), OWNER)
    bindings = objects[1:]
    assert [o["kind"] for o in objects] == [
        "MutatingAdmissionPolicy",
        *["MutatingAdmissionPolicyBinding"] * 4,
    ]
    assert {b["spec"]["policyName"] for b in bindings} == {objects[0]["metadata"]["name"]}
    everywhere = render(BackendKind.NATIVE, Settings(), OWNER, injects_by_default=True)
    assert everywhere[:-1] == objects
    assert metadata(everywhere[-1])["name"] == f"{OWNER.name}.by-default"


@pytest.mark.parametrize(
    ("pod", "known", "unknown"),
    [
        pytest.param({istio.CANONICAL_NAME: "app"}, True, True, id="injected"),
        pytest.param({istio.CANONICAL_NAME: ""}, True, True, id="injected-without-a-name"),
        pytest.param({"app": "app"}, False, True, id="unknown-to-istio"),
        pytest.param(
            {istio.CANONICAL_NAME: "gateway", "sidecar.istio.io/inject": "false"},
            False,
            True,
            id="gateway-that-is-not-injected",
        ),
    ],
)
def test_the_webhook_selects_by_istios_label_only_where_istio_is_known_to_write_it(
    pod: dict[str, str], known: bool, unknown: bool
) -> None:
    for labels_canonical_name, expected in ((True, known), (False, unknown)):
        (chosen,) = at(
            webhook_configuration(labels_canonical_name=labels_canonical_name), "objectSelector"
        )
        assert _selects(chosen, pod) is expected


def test_the_api_server_weighs_pods_only_where_no_label_tells_the_injected_ones() -> None:
    assert at(webhook_configuration(labels_canonical_name=True), "matchConditions") == [[]]
    ((condition,),) = at(webhook_configuration(labels_canonical_name=False), "matchConditions")
    assert istio.STATUS in condition["expression"]


def test_nothing_else_of_the_webhook_goes_by_that_label() -> None:
    with_label, without = (
        webhook_configuration(labels_canonical_name=known)["webhooks"][0]
        for known in (True, False)
    )
    with_label["objectSelector"]["matchExpressions"][:2] = []
    with_label["matchConditions"] = without["matchConditions"]
    assert with_label == without


def _selects(label_selector: dict[str, Any], labels: dict[str, str]) -> bool:
    chosen = selector.Selector(
        tuple(
            selector.Requirement(
                e["key"], selector.Operator(e["operator"]), tuple(e.get("values", ()))
            )
            for e in label_selector["matchExpressions"]
        )
    )
    return chosen.matches(labels)


def bound(
    namespace: dict[str, str], pod: dict[str, str], *, injects_by_default: bool = False
) -> bool:
    """Whether any binding selects a Pod with these labels in a namespace with these labels."""
    objects: list[Any] = render(
        BackendKind.NATIVE, Settings(), OWNER, injects_by_default=injects_by_default
    )
    resources = [o["spec"]["matchResources"] for o in objects[1:]]
    return any(
        _selects(r["namespaceSelector"], namespace) and _selects(r["objectSelector"], pod)
        for r in resources
    )


@pytest.mark.parametrize(
    ("namespace", "pod", "expected"),
    [
        pytest.param({"istio-injection": "enabled"}, {}, True, id="namespace"),
        pytest.param(
            {"istio-injection": "enabled"}, {"sidecar.istio.io/inject": "true"}, True, id="both"
        ),
        pytest.param(
            {"istio-injection": "enabled"}, {"sidecar.istio.io/inject": "False"}, True, id="False"
        ),
        pytest.param(
            {"istio-injection": "enabled"},
            {"sidecar.istio.io/inject": "false"},
            False,
            id="pod-no",
        ),
        pytest.param(
            {"istio-injection": "disabled"},
            {"sidecar.istio.io/inject": "true"},
            False,
            id="namespace-no",
        ),
        pytest.param(
            {"istio-injection": "enabled", "istio.io/rev": "canary"}, {}, True, id="both-labels"
        ),
        pytest.param({"istio.io/rev": "canary"}, {}, True, id="revision"),
        pytest.param(
            {"istio.io/rev": "canary"},
            {"sidecar.istio.io/inject": "false"},
            False,
            id="revision-no",
        ),
        pytest.param({}, {"sidecar.istio.io/inject": "true"}, True, id="pod"),
        pytest.param({}, {"istio.io/rev": "canary"}, True, id="pod-revision"),
        pytest.param(
            {},
            {"istio.io/rev": "canary", "sidecar.istio.io/inject": "true"},
            True,
            id="pod-revision-and-label",
        ),
        pytest.param(
            {},
            {"istio.io/rev": "canary", "sidecar.istio.io/inject": "false"},
            False,
            id="pod-revision-no",
        ),
        pytest.param({}, {}, False, id="outside"),
        pytest.param({"istio.io/dataplane-mode": "ambient"}, {}, False, id="ambient"),
    ],
)
def test_pods_outside_the_mesh_cost_nothing_and_none_inside_is_missed(
    namespace: dict[str, str], pod: dict[str, str], expected: bool
) -> None:
    assert bound(namespace, pod) is expected


@pytest.mark.parametrize(
    ("namespace", "pod", "expected"),
    [
        pytest.param({}, {}, True, id="unlabelled"),
        pytest.param({}, {"sidecar.istio.io/inject": "true"}, True, id="asks"),
        pytest.param({}, {"sidecar.istio.io/inject": "false"}, False, id="refuses"),
        pytest.param({"istio-injection": "disabled"}, {}, False, id="namespace-refuses"),
    ],
)
def test_where_istio_injects_by_default_namespaces_without_a_label_are_bound(
    namespace: dict[str, str], pod: dict[str, str], expected: bool
) -> None:
    assert bound(namespace, pod, injects_by_default=True) is expected


# --- Kyverno -------------------------------------------------------------------------------------


def test_kyverno_makes_no_rules_for_the_owners_of_pods() -> None:
    annotations = metadata(policy_of(BackendKind.CLUSTER_POLICY))["annotations"]
    assert annotations["pod-policies.kyverno.io/autogen-controllers"] == "none"
    autogen = policy_of(BackendKind.MUTATING_POLICY)["spec"]["autogen"]
    assert autogen == {"podControllers": {"controllers": []}}


def test_kyverno_leaves_stored_pods_alone() -> None:
    assert policy_of(BackendKind.CLUSTER_POLICY)["spec"]["background"] is False
    evaluation = policy_of(BackendKind.MUTATING_POLICY)["spec"]["evaluation"]
    assert evaluation["background"] == {"enabled": False}
    assert evaluation["mutateExisting"] == {"enabled": False}


def test_a_cluster_policy_never_merges_into_the_list_of_init_containers() -> None:
    # A strategic merge puts what it names first, and so a native sidecar last.
    for remedy in RemedyKind:
        found = policy_of(BackendKind.CLUSTER_POLICY, with_policy(remedy=remedy))
        for merge in at(found, "patchStrategicMerge"):
            assert set(merge) == {"metadata"}


# --- The probe -----------------------------------------------------------------------------------


def test_the_probe_would_need_the_remedy_if_it_were_injected() -> None:
    probe: Any = probe_pod(Policy())
    names = [container["name"] for container in probe["spec"]["initContainers"]]
    assert names == [PROBE_CONTAINER]
    assert "name" not in probe["metadata"]
    assert probe["metadata"]["generateName"].startswith("istio-init-egress-")


def test_the_probe_passes_pod_security_restricted() -> None:
    spec: Any = probe_pod(Policy())["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["initContainers"] + spec["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "runAsUser" not in container["securityContext"]


@pytest.mark.parametrize("text", ["", "a=b", "a==b,c", "a in (b,c),d!=e,!f", "x.io/y", "a="])
def test_the_probe_satisfies_a_pod_selector_where_it_can(text: str) -> None:
    pods = selector.parse(text)
    labels = metadata(probe_pod(Policy(pods=pods))).get("labels") or {}
    assert pods.matches(labels)


# --- Nothing breaks out --------------------------------------------------------------------------


def test_an_undefined_name_in_a_template_is_an_error() -> None:
    environment = manifests._environment()
    with pytest.raises(UndefinedError):
        environment.from_string("{{ nothing }}").render()
    with pytest.raises(UndefinedError):
        environment.from_string("{{ policy.nothing }}").render(policy=Policy())


HOSTILE = (
    '"',
    "'",
    "\\",
    "\n",
    "`",
    "{{",
    "}}",
    "{%",
    ": ",
    " #",
    "]",
    ")",
    '" || true || "',
    "'\n- op: remove",
    "\n---\nkind: Pod",
    "$(HOME)",
)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(
    "option",
    [
        "exclude_outbound_ip_ranges",
        "exclude_outbound_ports",
        "ignore_init_containers",
        "mesh_namespace",
        "existing_annotation",
        "remedy",
        "failure_policy",
        "kyverno_policy_kind",
        "backend",
    ],
)
def test_no_sign_that_means_something_in_yaml_or_cel_gets_past_the_settings(
    option: str, text: str
) -> None:
    for value in (text, f"a{text}b", f"443{text}", f"10.0.0.0/8{text}"):
        with pytest.raises(ValueError, match=option.replace("_", "-")):
            replace(Config(), **{option: value}).settings()


def _strings(tree: object) -> list[str]:
    if isinstance(tree, dict):
        return [*map(str, tree), *(s for value in tree.values() for s in _strings(value))]
    if isinstance(tree, list):
        return [s for value in tree for s in _strings(value)]
    return [str(tree)]


_signs = st.text(st.sampled_from("ab1./-_=!, ()\"'\\`{}%#:\n"), max_size=12)


@settings(deadline=None, database=None)
@given(_signs, st.sampled_from(BackendKind))
def test_a_selector_is_refused_or_stays_a_label(text: str, form: BackendKind) -> None:
    try:
        found = Config(namespace_selector=text, pod_selector=text).settings()
    except ValueError:
        return
    labels = {word for r in found.policy.pods.requirements for word in (r.key, *r.values) if word}
    assert all(re.fullmatch(r"[A-Za-z0-9./_-]+", label) for label in labels)
    objects = render(form, found, OWNER)
    plain = render(form, Settings(), OWNER)
    assert len(objects) == len(plain)
    assert [metadata(o)["name"] for o in objects] == [metadata(o)["name"] for o in plain]
    assert list(yaml.safe_load_all(to_yaml(objects))) == objects


@FORMS
@REMEDIES
@pytest.mark.parametrize("name", ["null", "true", "1e3", "0x1", "no", "0", "1337", "12-34-56"])
def test_a_name_that_yaml_would_read_as_something_else_stays_text(
    form: BackendKind, remedy: RemedyKind, name: str
) -> None:
    options = Config(
        remedy=remedy.value,
        ignore_init_containers=name,
        namespace_selector=f"{name}={name}",
        pod_selector=f"{name}={name}",
    )
    objects = render(form, options.settings(), Application(name, name))
    assert all(isinstance(key, str) for key in _keys(objects))
    for manifest in objects:
        assert metadata(manifest)["labels"] == {APPLICATION_LABEL: name, MODEL_LABEL: name}
    admission = [o for o in objects if o["kind"] != "NetworkPolicy"]
    chosen = at(admission, "namespaceSelector")[0]["matchExpressions"][-1]
    assert chosen == {"key": name, "operator": "In", "values": [name]}
    assert list(yaml.safe_load_all(to_yaml(objects))) == objects


def _keys(tree: object) -> list[object]:
    if isinstance(tree, dict):
        return [*tree, *(key for value in tree.values() for key in _keys(value))]
    if isinstance(tree, list):
        return [key for value in tree for key in _keys(value)]
    return []


def test_a_single_port_stays_text_in_a_cluster_policy() -> None:
    defaults = at(
        policy_of(BackendKind.CLUSTER_POLICY, with_policy(ranges=(), ports=("443",))), "default"
    )
    assert "443" in defaults
    assert 443 not in defaults
