"""How the webhook answers: bytes in, bytes out (the server is in tests/functional)."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from init_egress.rule import decision, istio
from init_egress.rule.decision import Decision, decide
from init_egress.rule.patch import PatchOperation, escape
from init_egress.rule.pod import Namespace, Pod
from init_egress.rule.policy import Policy, RemedyKind
from init_egress.rule.selector import EVERYTHING
from init_egress.rule.verdict import Verdict
from init_egress.webhook import review
from init_egress.webhook.review import Context, NotAReview, answer
from tests.strategies import Json, pods, policies, unrestricted

searching = settings(
    max_examples=200,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
CONTEXT = Context(Policy())
INTERESTING = (Verdict.NEEDS_REMEDY.value, Verdict.BEYOND_REMEDY.value)


def pod(*names: str, **spec: Any) -> Json:
    return {
        "metadata": {"annotations": {istio.STATUS: "{}"}},
        "spec": {
            "initContainers": [{"name": name} for name in names or ("fetch",)],
            "containers": [{"name": "istio-proxy"}],
            **spec,
        },
    }


def asked(obj: object, **request: object) -> Json:
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "a-uid",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": "CREATE",
            "namespace": "team",
            "object": obj,
            **request,
        },
    }


def encoded(document: object) -> bytes:
    return json.dumps(document).encode()


def response(body: bytes, context: Context = CONTEXT) -> Json:
    """The response, checked for what holds of each."""
    found = json.loads(answer(body, context).body)
    assert (found["kind"], found["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
    told = found["response"]
    assert told["allowed"] is True
    assert ("patch" in told) == ("patchType" in told)
    assert verdict_of(told) in review.VERDICTS
    for warning in told.get("warnings", ()):
        assert len(warning) <= review.WARNING_LIMIT
        assert warning.isprintable()
        warning.encode()
    return told


def verdict_of(told: Json) -> str:
    """The one audit annotation's key."""
    (verdict,) = told["auditAnnotations"]
    return verdict


def patch_of(told: Json) -> list[Json]:
    return json.loads(base64.b64decode(told["patch"])) if "patch" in told else []


# --- What the rule says is what is answered ------------------------------------------------------


@searching
@given(pods, policies, st.sampled_from(["team", "kube-system"]), st.booleans())
def test_the_answer_is_the_rules(raw: Json, policy: Policy, name: str, dry_run: bool) -> None:
    policy = replace(policy, namespaces=EVERYTHING)
    expected = decide(Pod.from_dict(raw), Namespace(name), policy)
    body = encoded(asked(raw, namespace=name, dryRun=dry_run))
    told = response(body, Context(policy))
    assert told["auditAnnotations"] == {expected.verdict.value: expected.reason}
    assert patch_of(told) == [msgspec.to_builtins(change) for change in expected.patch]
    assert bool(told.get("warnings")) == (expected.verdict.value in INTERESTING)
    found = answer(body, Context(policy))
    assert (found.namespace, found.dry_run) == (name, dry_run)
    assert found.patch == expected.patch


def asked_twice(raw: Json, policy: Policy) -> tuple[Json, Json]:
    """The responses to a Pod, and to the Pod as the first leaves it."""
    first = response(encoded(asked(raw)), Context(policy))
    after = jsonpatch.apply_patch(raw, patch_of(first))
    return first, response(encoded(asked(after)), Context(policy))


@searching
@given(pods, unrestricted)
def test_a_second_call_repeats_no_warning(raw: Json, policy: Policy) -> None:
    _, second = asked_twice(raw, policy)
    assert "patch" not in second
    assert bool(second.get("warnings")) == (verdict_of(second) == Verdict.BEYOND_REMEDY.value)


@searching
@given(pods, unrestricted)
def test_a_second_call_contradicts_no_audit_annotation(raw: Json, policy: Policy) -> None:
    # The API server keeps the first, and logs a warning.
    first, second = (told["auditAnnotations"] for told in asked_twice(raw, policy))
    for key, reason in second.items():
        assert first.get(key, reason) == reason


@pytest.mark.parametrize("verdict", sorted(review.VERDICTS))
def test_a_verdict_can_be_the_key_of_an_audit_annotation(verdict: str) -> None:
    # k8s.io/apimachinery, pkg/util/validation: the name of a qualified name
    assert re.fullmatch(r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]", verdict)


# --- What is said --------------------------------------------------------------------------------


def test_a_warning_says_what_was_set_and_why() -> None:
    (warning,) = response(encoded(asked(pod("fetch", "wait"))))["warnings"]
    assert warning == (
        "istio-init-egress: fetch, wait cut off before the sidecar runs; "
        f"set {istio.EXCLUDE_RANGES}=0.0.0.0/0,::/0"
    )


@pytest.mark.parametrize(
    ("remedy", "field", "change"),
    [
        (RemedyKind.PROXY_USER, "runAsUser", "set runAsUser 1337 on fetch, third"),
        (RemedyKind.PROXY_GROUP, "runAsGroup", "set runAsGroup 1337 on fetch, third"),
    ],
)
def test_a_warning_says_who_was_given_an_identity(
    remedy: RemedyKind, field: str, change: str
) -> None:
    raw = pod("fetch", "second", "third")
    raw["spec"]["initContainers"][1]["securityContext"] = {field: 5}
    raw["spec"]["initContainers"][2]["securityContext"] = {}
    (warning,) = response(encoded(asked(raw)), Context(Policy(remedy=remedy)))["warnings"]
    assert warning.endswith(change)


def test_a_warning_says_what_stays_cut_off() -> None:
    told = response(encoded(asked(pod("istio-init", "fetch"))))
    assert "patch" not in told
    assert verdict_of(told) == "beyond-remedy"
    assert "fetch" in told["warnings"][0]


def test_a_long_warning_is_cut_and_one_of_odd_characters_is_readable() -> None:
    (warning,) = response(encoded(asked(pod("x" * 300))))["warnings"]
    assert len(warning) == review.WARNING_LIMIT
    assert warning.endswith("…")
    (warning,) = response(encoded(asked(pod("a\nb\u2028"))))["warnings"]
    assert "a?b?" in warning


# --- What is let through -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "object": {"spec": 1}},
        {"kind": {"group": "example.com", "version": "v1", "kind": "Pod"}},
        {"kind": {"group": "", "version": "v1", "kind": "Binding"}, "subResource": "binding"},
        {"subResource": "ephemeralcontainers"},
    ],
)
def test_what_creates_no_pod_is_let_through(request_: Json) -> None:
    told = response(encoded(asked(pod(), **request_)))
    assert verdict_of(told) == review.NOT_A_POD
    assert not told.keys() & {"patch", "warnings"}


@pytest.mark.parametrize(
    "obj",
    [
        None,
        1,
        [],
        {"metadata": {"labels": {"a": 1}}},
        {"spec": {"initContainers": {}}},
        {"spec": {"initContainers": [{}]}},
        pod(containers=[{"name": "istio-proxy", "env": [1]}]),
        pod(securityContext={"runAsUser": "root"}),
    ],
)
def test_a_pod_that_cannot_be_read_is_let_through_with_a_warning(obj: object) -> None:
    told = response(encoded(asked(obj)))
    assert verdict_of(told) == review.UNREADABLE
    assert "admitted unchanged" in told["warnings"][0]
    assert "patch" not in told


@pytest.mark.parametrize(
    ("label", "probe", "verdict"),
    [
        ("ours", "ours", "needs-remedy"),
        ("others", "ours", review.OTHER_PROBE),
        ("others", "", review.OTHER_PROBE),
        (None, "ours", "needs-remedy"),
    ],
)
def test_a_probe_is_answered_by_the_one_it_asks(
    label: str | None, probe: str, verdict: str
) -> None:
    raw = pod()
    raw["metadata"]["labels"] = {istio.PROBE_LABEL: label} if label else None
    told = response(encoded(asked(raw)), Context(Policy(), probe))
    assert verdict_of(told) == verdict


def test_a_bug_in_the_decision_denies_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> Decision:
        raise KeyError("a bug")

    monkeypatch.setattr(decision, "decide", failing)
    body = encoded(asked(pod()))
    told = response(body)
    assert told["auditAnnotations"] == {review.ERROR: "KeyError in the webhook; see its log"}
    assert isinstance(answer(body, CONTEXT).error, KeyError)


def test_a_key_is_escaped_and_only_it_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    change = PatchOperation("add", f"/metadata/annotations/{escape('a/b~c')}", "1")
    decided = Decision(Verdict.NEEDS_REMEDY, "so", ("fetch",), (change,))
    monkeypatch.setattr(decision, "decide", lambda *_: decided)
    told = response(encoded(asked(pod())))
    assert told["warnings"] == ["istio-init-egress: so; set a/b~c=1"]
    after = jsonpatch.apply_patch(pod(), patch_of(told))
    assert after["metadata"]["annotations"] == {istio.STATUS: "{}", "a/b~c": "1"}


# --- What is refused -----------------------------------------------------------------------------


def is_clean(body: bytes) -> None:
    """Either a well-formed answer or a reason; nothing else is raised."""
    try:
        response(body)
    except NotAReview as error:
        reason = str(error)
    else:
        reason = "answered"
    assert reason


@settings(searching, max_examples=400)
@given(st.binary(max_size=200))
def test_any_bytes(body: bytes) -> None:
    is_clean(body)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
_PATHS = [
    (),
    *[("kind",), ("apiVersion",), ("request",), ("request", "uid"), ("request", "kind")],
    *[("request", "operation"), ("request", "namespace"), ("request", "dryRun")],
    *[("request", "object"), ("request", "object", "metadata"), ("request", "object", "spec")],
    ("request", "object", "metadata", "annotations"),
    ("request", "object", "spec", "containers"),
    ("request", "object", "spec", "initContainers", 0),
    ("request", "object", "spec", "initContainers", 0, "name"),
]


@settings(searching, max_examples=400)
@given(st.sampled_from(_PATHS), _json)
def test_a_review_in_which_one_thing_is_anything(path: tuple[str | int, ...], value: Any) -> None:
    document: Any = asked(pod())
    if path:
        place = document
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
    else:
        document = value
    is_clean(encoded(document))


@settings(searching, max_examples=400)
@given(st.data())
def test_a_review_of_which_some_bytes_are_others(data: st.DataObject) -> None:
    body = bytearray(encoded(asked(pod())))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(body)))
        body[start : start + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    is_clean(bytes(body))


@pytest.mark.parametrize("depth", [100, 900, 5_000, 500_000])
@pytest.mark.parametrize("where", ["", '{"request": {"object": ', '{"x": '])
def test_deep_nesting(depth: int, where: str) -> None:
    is_clean((where + "[" * depth).encode())
    is_clean((where + '{"a":' * depth).encode())


@pytest.mark.parametrize("escaped", ["\\ud800", "\\udc00x", "\\ud83d\\ude00", "\\u0000"])
def test_odd_characters(escaped: str) -> None:
    """Half a character of two halves is JSON, but no text that could be written again."""
    for plain in ("a-uid", "fetch", "team", "CREATE", "{}"):
        is_clean(encoded(asked(pod())).replace(f'"{plain}"'.encode(), f'"{escaped}"'.encode()))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "Pod"}, "'Pod'"),
        ({"kind": 1}, "kind"),
        ({"apiVersion": "admission.k8s.io/v1beta1"}, "only admission.k8s.io/v1 is supported"),
        ({"request": None}, "uid"),
        ({"request": {}}, "uid"),
        ({"request": {"uid": ""}}, "uid"),
        ({"request": {"uid": 1}}, "uid"),
    ],
)
def test_what_is_no_review_is_refused_with_a_reason(change: Json, reason: str) -> None:
    with pytest.raises(NotAReview, match=re.escape(reason)):
        answer(encoded({**asked(pod()), **change}), CONTEXT)
