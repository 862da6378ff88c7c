"""What every backend writes to a cluster, and what none may ever write."""

from __future__ import annotations

import json
import re
from itertools import combinations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from init_egress.backends.backend import Backend
from init_egress.backends.registry import (
    BACKENDS,
    CLUSTER_POLICY,
    NATIVE,
    WEBHOOK,
)
from init_egress.backends.render import to_yaml
from init_egress.config import Config, FailurePolicy, Settings
from init_egress.kube.application import APPLICATION_LABEL, MODEL_LABEL, Application
from init_egress.rule import istio, selector
from init_egress.rule.istio import EXCLUDE_RANGES
from init_egress.rule.policy import ExistingAnnotation, RemedyKind
from tests.rendering import (
    APPLICATION,
    EACH_BACKEND,
    EACH_EXISTING,
    EACH_POLICY_BACKEND,
    EACH_REMEDY,
    LONG,
    WEBHOOK_CONFIGURATION,
    at,
    metadata,
    policy_of,
    render,
    with_policy,
)


@EACH_BACKEND
@EACH_REMEDY
@EACH_EXISTING
@pytest.mark.parametrize(
    ("ranges", "ports"),
    [(("0.0.0.0/0", "::/0"), ()), ((), ("443",)), (("10.0.0.0/8",), ("443", "5432"))],
    ids=["ranges", "ports", "both"],
)
def test_whatever_is_configured_makes_objects_of_ours(
    backend: Backend,
    remedy: RemedyKind,
    existing: ExistingAnnotation,
    ranges: tuple[str, ...],
    ports: tuple[str, ...],
) -> None:
    a_settings = with_policy(remedy=remedy, existing=existing, ranges=ranges, ports=ports)
    objects = render(backend, a_settings, APPLICATION)
    assert objects
    for manifest in objects:
        assert isinstance(manifest["apiVersion"], str)
        assert isinstance(manifest["kind"], str)
        labels = metadata(manifest)["labels"]
        assert labels[APPLICATION_LABEL] == "istio-init-egress"
        assert labels[MODEL_LABEL] == "kubeflow"
        of_a_namespace = backend is WEBHOOK and manifest["kind"] != WEBHOOK_CONFIGURATION
        assert metadata(manifest).get("namespace") == ("kubeflow" if of_a_namespace else None)


@EACH_BACKEND
@EACH_REMEDY
@EACH_EXISTING
@pytest.mark.parametrize("injects_by_default", [False, True])
def test_the_yaml_that_is_shown_is_what_is_applied(
    backend: Backend, remedy: RemedyKind, existing: ExistingAnnotation, injects_by_default: bool
) -> None:
    a_settings = with_policy(
        remedy=remedy,
        existing=existing,
        ports=("443",),
        namespaces=selector.parse("team=ml,tier in (a,b,)"),
        pods=selector.parse("canary,!legacy,stage!=dev"),
    )
    objects = render(backend, a_settings, APPLICATION, by_default=injects_by_default)
    shown = to_yaml(objects)
    assert list(yaml.safe_load_all(shown)) == objects
    assert "&id0" not in shown


@EACH_BACKEND
@EACH_REMEDY
def test_expressions_are_shown_line_by_line(backend: Backend, remedy: RemedyKind) -> None:
    objects = render(backend, with_policy(remedy=remedy), APPLICATION)
    shown = {line.strip() for line in to_yaml(objects).splitlines()}
    of_several_lines = [text for text in _strings(objects) if "\n" in text]
    assert of_several_lines
    assert {line.strip() for text in of_several_lines for line in text.splitlines()} <= shown


@EACH_BACKEND
@EACH_REMEDY
@pytest.mark.parametrize("injects_by_default", [False, True])
def test_the_same_settings_make_the_same_objects(
    backend: Backend, remedy: RemedyKind, injects_by_default: bool
) -> None:
    a_settings = with_policy(remedy=remedy)
    first = render(backend, a_settings, APPLICATION, by_default=injects_by_default)
    assert render(backend, a_settings, APPLICATION, by_default=injects_by_default) == first


@EACH_BACKEND
def test_only_creations_of_pods_are_asked_for(backend: Backend) -> None:
    objects = render(backend, Settings(), APPLICATION, by_default=True)
    assert at(objects, "operations") == [["CREATE"]]
    # A container's resources are none of what is asked for.
    resources = [r for r in at(objects, "resources") if "limits" not in r]
    assert at(resources, "kinds") == [["v1/Pod"]] or resources == [["pods"]]


@EACH_BACKEND
@pytest.mark.parametrize(
    ("configured", "written"), [(FailurePolicy.IGNORE, "Ignore"), (FailurePolicy.FAIL, "Fail")]
)
def test_the_failure_policy_is_the_configured_one(
    backend: Backend, configured: FailurePolicy, written: str
) -> None:
    objects = render(backend, Settings(failure_policy=configured), APPLICATION)
    assert at(objects, "failurePolicy") == [written]


@EACH_BACKEND
def test_system_namespaces_and_opted_out_namespaces_are_not_asked_about(backend: Backend) -> None:
    a_settings = with_policy(namespaces=selector.parse("team=ml"))
    expressions = at(policy_of(backend, a_settings), "namespaceSelector")[0]["matchExpressions"]
    assert expressions == [
        {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": list(istio.SYSTEM_NAMESPACES),
        },
        {"key": istio.SKIP_LABEL, "operator": "NotIn", "values": ["true"]},
        {"key": "team", "operator": "In", "values": ["ml"]},
    ]


@EACH_POLICY_BACKEND
@EACH_REMEDY
def test_everything_that_the_rule_depends_on_is_asked_for(
    backend: Backend, remedy: RemedyKind
) -> None:
    a_settings = with_policy(remedy=remedy, ignored=("my-chown",), pods=selector.parse("canary"))
    text = json.dumps(policy_of(backend, a_settings))
    for name in (
        istio.STATUS,
        istio.SKIP_LABEL,
        istio.INTERCEPTION_MODE,
        istio.INCLUDE_RANGES,
        istio.INCLUDE_PORTS,
        istio.EXCLUDE_RANGES,
        "DISABLE_ENVOY",
        "my-chown",
        "canary",
        *istio.ISTIO_CONTAINERS,
    ):
        assert name in text


@EACH_POLICY_BACKEND
@pytest.mark.parametrize(
    ("remedy", "written"),
    [
        (RemedyKind.EXCLUDE_IP_RANGES, EXCLUDE_RANGES),
        (RemedyKind.PROXY_USER, "securityContext/runAsUser"),
        (RemedyKind.PROXY_GROUP, "securityContext/runAsGroup"),
    ],
)
def test_a_remedy_writes_only_its_own_fields(
    backend: Backend, remedy: RemedyKind, written: str
) -> None:
    found = policy_of(backend, with_policy(remedy=remedy))
    mutations = at(found, "mutations") or at(found, "mutate")
    assert len(mutations) == 1
    text = json.dumps(mutations)
    if backend is CLUSTER_POLICY or remedy is not RemedyKind.EXCLUDE_IP_RANGES:
        assert written in text
    for other in ("securityContext/runAsUser", "securityContext/runAsGroup"):
        assert (other in text) == (other == written)
    assert ("/spec/" in text) == (remedy is not RemedyKind.EXCLUDE_IP_RANGES)


@EACH_POLICY_BACKEND
@pytest.mark.parametrize(
    ("ranges", "ports", "named", "unnamed"),
    [
        (("10.0.0.0/8",), (), "rangesWanted", "portsWanted"),
        ((), ("5432",), "portsWanted", "rangesWanted"),
    ],
    ids=["ranges", "ports"],
)
def test_an_annotation_that_is_not_configured_is_not_written(
    backend: Backend, ranges: tuple[str, ...], ports: tuple[str, ...], named: str, unnamed: str
) -> None:
    text = json.dumps(policy_of(backend, with_policy(ranges=ranges, ports=ports)))
    assert named in text
    assert unnamed not in text


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
        {metadata(manifest)["name"] for manifest in render(NATIVE, Settings(), owner)}
        for owner in owners
    ]
    probes = [{backend.probe_label(owner) for backend in BACKENDS.values()} for owner in owners]
    assert all(one.isdisjoint(other) for one, other in combinations(names, 2))
    assert all(one.isdisjoint(other) for one, other in combinations(probes, 2))


@EACH_BACKEND
@pytest.mark.parametrize(
    "application",
    [
        APPLICATION,
        LONG,
        Application("a", "m"),
        Application("a" * 35 + "-" * 2 + "b" * 26, "m" * 63),
    ],
    ids=["usual", "long", "short", "dashes-where-it-is-cut"],
)
def test_names_are_valid_and_short_enough_for_every_kind(
    backend: Backend, application: Application
) -> None:
    objects = render(backend, Settings(), application, by_default=True)
    names = [metadata(manifest)["name"] for manifest in objects]
    label = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    for name in names:
        assert re.fullmatch(rf"{label}(\.{label})*", name)
        assert len(name) <= 63
    kinds = [(manifest["kind"], metadata(manifest)["name"]) for manifest in objects]
    assert len(set(kinds)) == len(kinds)


@EACH_BACKEND
def test_labels_are_short_enough_for_the_longest_names(backend: Backend) -> None:
    for manifest in render(backend, Settings(), LONG):
        assert all(len(value) <= 63 for value in metadata(manifest)["labels"].values())
    assert all(len(value) <= 63 for value in LONG.labels.values())


def test_every_backend_has_a_probe_label_and_a_title_of_its_own() -> None:
    labels = {backend.probe_label(APPLICATION) for backend in BACKENDS.values()}
    assert len(labels) == len(BACKENDS)
    assert all(re.fullmatch(r"[a-z0-9]{1,63}", label) for label in labels)
    assert len({backend.title for backend in BACKENDS.values()}) == len(BACKENDS)


def _strings(tree: object) -> list[str]:
    if isinstance(tree, dict):
        return [*map(str, tree), *(s for value in tree.values() for s in _strings(value))]
    if isinstance(tree, list):
        return [s for value in tree for s in _strings(value)]
    return [str(tree)]


_signs = st.text(st.sampled_from("ab1./-_=!, ()\"'\\`{}%#:\n"), max_size=12)


@settings(deadline=None, database=None)
@given(_signs, st.sampled_from([*BACKENDS.values()]))
def test_a_selector_is_refused_or_stays_a_label(text: str, backend: Backend) -> None:
    try:
        found = Config(namespace_selector=text, pod_selector=text).settings()
    except ValueError:
        return
    labels = {word for r in found.policy.pods.requirements for word in (r.key, *r.values) if word}
    assert all(re.fullmatch(r"[A-Za-z0-9./_-]+", label) for label in labels)
    objects = render(backend, found, APPLICATION)
    plain = render(backend, Settings(), APPLICATION)
    assert len(objects) == len(plain)
    assert [metadata(o)["name"] for o in objects] == [metadata(o)["name"] for o in plain]
    assert list(yaml.safe_load_all(to_yaml(objects))) == objects


@EACH_BACKEND
@EACH_REMEDY
@pytest.mark.parametrize("name", ["null", "true", "1e3", "0x1", "no", "0", "1337", "12-34-56"])
def test_a_name_that_yaml_would_read_as_something_else_stays_text(
    backend: Backend, remedy: RemedyKind, name: str
) -> None:
    options = Config(
        remedy=remedy.value,
        ignore_init_containers=name,
        namespace_selector=f"{name}={name}",
        pod_selector=f"{name}={name}",
    )
    objects = render(backend, options.settings(), Application(name, name))
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
