"""Pods, policies and namespaces for hypothesis."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Any

from hypothesis import strategies as st

from init_egress.rule import selector
from init_egress.rule.istio import (
    EXCLUDE_PORTS,
    EXCLUDE_RANGES,
    GO_SPACE,
    INCLUDE_PORTS,
    INCLUDE_RANGES,
    INTERCEPTION_MODE,
    ISTIO_CONTAINERS,
    SKIP_LABEL,
    STATUS,
    SYSTEM_NAMESPACES,
)
from init_egress.rule.pod import Namespace
from init_egress.rule.policy import ExistingAnnotation, Policy, RemedyKind

Json = dict[str, Any]

TEAM = Namespace("team", {"app": "x"})
RANGES = ("0.0.0.0/0", "::/0", "10.0.0.0/8", "fd00::/8")
PORTS = ("53", "443", "5432")
OWN = ("fetch", "wait-for-db", "storage-initializer", "volume-permissions")


# --- Pods. Whatever can be is drawn from a table: the more examples fit into the time ------------

_IDS = (None, 0, 1000, 1337, 5000)
CONTEXTS: list[Json | None] = [
    None,
    *(
        {
            **({} if user is None else {"runAsUser": user}),
            **({} if group is None else {"runAsGroup": group}),
            **other,
        }
        for user, group, other in product(_IDS, _IDS, ({}, {"runAsNonRoot": True}))
    ),
]
_ARGS = ({}, {"args": ["proxy", "sidecar"]}, {"args": ["proxy"]}, {"args": ["proxy", "router"]})
_ENV = (
    {},
    {"env": [{"name": "DISABLE_ENVOY", "value": "false"}]},
    {"env": [{"name": "OTHER"}, {"name": "DISABLE_ENVOY", "value": "true"}]},
)
_EXTRA = (
    {},
    {"restartPolicy": "Always"},
    {"restartPolicy": "OnFailure", "fieldOfTheFuture": {"deep": [1, None, "x"]}},
)
_FEATURES = [({}, {}), ({}, {}), ({}, {}), *product(_ARGS, _ENV)]

contexts = st.sampled_from(CONTEXTS)


def _containers(names: tuple[str, ...]) -> st.SearchStrategy[Json]:
    return st.sampled_from(
        [
            {
                "name": name,
                **({} if context is None else {"securityContext": context}),
                **extra,
                **(feature[0] | feature[1]),
            }
            for name in names
            for context, extra in product(CONTEXTS, _EXTRA)
            for feature in (_FEATURES if name == "istio-proxy" else [({}, {})])
        ]
    )


def _any_order(names: tuple[str, ...]) -> st.SearchStrategy[list[Json]]:
    """Containers of these names in any order, each name once."""
    drawn = st.lists(st.one_of([_containers((name,)) for name in names]), max_size=5)
    return drawn.map(lambda found: list({c["name"]: c for c in found}.values()))


# Lists as authors write them: elements known and weird, with any space and any number of commas.
_WEIRD = ("*", "/", "10.0.0.0/8 ::/0", "\x1c::/0", "é\U0001f6d1", "\u2003", "", "", " ")


def _lists(known: tuple[str, ...]) -> st.SearchStrategy[str | None]:
    spaced = (f"{GO_SPACE}{known[0]}", *(f" {element}\t" for element in known))
    drawn = st.lists(st.sampled_from([*known, *spaced, *_WEIRD]), max_size=4)
    complete = st.just(", ".join(reversed(known)))
    return st.none() | complete | drawn.map(",".join) | st.text(max_size=5)


_redirection = st.sampled_from(
    [
        *[{}] * 8,
        {INTERCEPTION_MODE: "NONE"},
        {INTERCEPTION_MODE: "REDIRECT", "example.com/other": "é, ~1/"},
        {INCLUDE_RANGES: ""},
        {INCLUDE_RANGES: "", INCLUDE_PORTS: "\u3000"},
        {INCLUDE_RANGES: "", INCLUDE_PORTS: "443"},
        {INCLUDE_RANGES: "*"},
    ]
)


def _pod(
    init_containers: list[Json],
    sidecar: Json,
    ranges: str | None,
    ports: str | None,
    redirection: Json,
    shared: Json | None,
    metadata: Json,
) -> Json:
    native = any(container["name"] == "istio-proxy" for container in init_containers)
    annotations = {
        **metadata.get("annotations", {}),
        **({} if ranges is None else {EXCLUDE_RANGES: ranges}),
        **({} if ports is None else {EXCLUDE_PORTS: ports}),
        **redirection,
    }
    spec: Json = {
        "initContainers": init_containers,
        "containers": [{"name": "app"}, *([] if native else [sidecar])],
        "futureField": 1,
    }
    if shared is not None:
        spec["securityContext"] = shared
    pod = {"kind": "Pod", "metadata": {**metadata, "annotations": annotations}, "spec": spec}
    # What is drawn from a table twice is one object; changed in one place, it would be in both.
    return json.loads(json.dumps(pod))


def _pods(
    init_containers: st.SearchStrategy[list[Json]],
    sidecar: st.SearchStrategy[Json],
    redirection: st.SearchStrategy[Json],
    metadata: st.SearchStrategy[Json],
) -> st.SearchStrategy[Json]:
    shared = st.none() | contexts
    ranges, ports = _lists(RANGES), _lists(PORTS)
    return st.builds(_pod, init_containers, sidecar, ranges, ports, redirection, shared, metadata)


INJECTED: Json = {"generateName": "app-", "annotations": {STATUS: "{}"}}
METADATA: list[Json] = [
    INJECTED,
    {"name": "app-0", "annotations": {STATUS: "{}"}, "labels": {"app": "x"}},
    {"name": "app-0", "annotations": {STATUS: "{}"}, "labels": {SKIP_LABEL: "true"}},
    {"name": "app-0"},
]
SIDECAR: Json = {"name": "istio-proxy"}
pods = _pods(
    _any_order((*OWN, *ISTIO_CONTAINERS)),
    _containers(("istio-proxy", "other")),
    _redirection,
    st.sampled_from(METADATA),
)


def _cut_off(*names: str) -> st.SearchStrategy[Json]:
    """Injected Pods, one of whose init containers is cut off and names no user and no group."""
    last = st.sampled_from(
        [
            [{"name": "migrate"}],
            [{"name": "migrate", "securityContext": {}}],
            [{"name": "migrate", "securityContext": {"runAsNonRoot": True}}, SIDECAR],
            [{"name": "migrate", "restartPolicy": "Always"}, SIDECAR, {"name": "behind"}],
        ]
    )
    return _pods(
        st.builds(lambda first, then: first + then, _any_order((*OWN, *names)), last),
        st.builds(lambda context: {**SIDECAR, "securityContext": context}, _identities),
        st.sampled_from([{}, {"example.com/other": "é, ~1/"}, {INCLUDE_RANGES: "*"}]),
        st.just(INJECTED),
    )


_identities = st.sampled_from([context for context in CONTEXTS if context is not None])
under_cni = _cut_off("istio-validation", "enable-core-dump")
cut_off = _cut_off("istio-validation", "enable-core-dump", "istio-init")


def _subsets(known: tuple[str, ...], least: int = 0) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(known), unique=True, min_size=least, max_size=3).map(tuple)


_selectors = st.sampled_from([*[""] * 5, "app", "app=x", "!app", "app in (y)"]).map(selector.parse)
unrestricted = st.builds(
    Policy,
    remedy=st.sampled_from(RemedyKind),
    ranges=_subsets(RANGES, 1),
    ports=_subsets(PORTS),
    existing=st.sampled_from(ExistingAnnotation),
    ignored=st.sampled_from([(), (), ("volume-permissions",)]),
) | st.builds(
    Policy,
    remedy=st.sampled_from(RemedyKind),
    ranges=st.just(()),
    ports=_subsets(PORTS, 1),
    existing=st.sampled_from(ExistingAnnotation),
)
policies = st.builds(replace, unrestricted, namespaces=_selectors, pods=_selectors)
by_annotation = st.builds(replace, unrestricted, remedy=st.just(RemedyKind.EXCLUDE_IP_RANGES))
by_identity = st.builds(
    replace, unrestricted, remedy=st.sampled_from([RemedyKind.PROXY_USER, RemedyKind.PROXY_GROUP])
)
namespaces = st.sampled_from(
    [TEAM, TEAM, TEAM, Namespace(SYSTEM_NAMESPACES[0]), Namespace("team", {SKIP_LABEL: "true"})]
)
