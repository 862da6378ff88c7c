"""AdmissionReview v1: what the API server asks, and the answer that the rule gives.

Pure: bytes in, bytes out. The decision is the rule's alone; here is only how it is asked and told.
The wire types name only the fields that are read
(https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from init_egress.rule import decision as rule
from init_egress.rule.decision import Decision, PatchOperation, Policy, Remedy, Verdict
from init_egress.rule.pod import (
    Container,
    EnvVar,
    Namespace,
    ObjectMeta,
    Pod,
    PodSpec,
    SecurityContext,
)

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

# What is said of a review beside the rule's verdicts.
NOT_A_POD = "not-a-pod"
"""It is not the creation of a Pod."""
OTHER_PROBE = "other-probe"
"""The Pod is a probe for another backend, or for other settings."""
UNREADABLE = "unreadable"
"""It creates a Pod that the rule can't read, which an API server doesn't send."""
ERROR = "error"
"""Deciding failed: a bug."""
VERDICTS = (*(verdict.value for verdict in Verdict), NOT_A_POD, OTHER_PROBE, UNREADABLE, ERROR)

# The API server cuts each warning to 256 characters and drops one that holds a control character:
# staging/src/k8s.io/apiserver/pkg/endpoints/filters/warning.go in kubernetes/kubernetes.
WARNING_LIMIT = 256
_REASON_LIMIT = 1024
_ANNOTATION = "/metadata/annotations/"


class NotAReview(ValueError):
    """The body is no AdmissionReview v1; the message says what is wrong with it."""


class Context(msgspec.Struct, frozen=True):
    """What a review is answered with.

    Attributes:
        policy: what the operator configured. Its selector of namespaces must be empty: a review
            doesn't hold the namespace's labels, so the webhook configuration selects by them.
        probe: the value of the probe label that is answered here, if there is one.
    """

    policy: Policy
    probe: str = ""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The answer to one review.

    Attributes:
        body: the AdmissionReview to send.
        verdict: one of VERDICTS.
        reason: why, in a few words.
        uid: the uid of the request.
        namespace: the namespace of the request.
        name: the object's name; empty where the API server has yet to generate it.
        dry_run: whether nothing will be stored.
        patch: what is changed.
        error: the exception that kept the rule from deciding.
    """

    body: bytes
    verdict: str
    reason: str
    uid: str
    namespace: str
    name: str
    dry_run: bool
    patch: tuple[PatchOperation, ...] = ()
    error: Exception | None = None


class _Wire(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A JSON object whose unknown fields are passed over."""


class _Kind(_Wire, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


_POD = _Kind("", "v1", "Pod")


class _Asked(_Wire, frozen=True):
    """A request but for its object."""

    uid: str
    kind: _Kind = _Kind()
    sub_resource: str = ""
    operation: str = ""
    namespace: str = ""
    name: str = ""
    dry_run: bool = False

    @property
    def creates_pod(self) -> bool:
        return self.kind == _POD and self.operation == "CREATE" and not self.sub_resource


_NULL = msgspec.Raw(b"null")


class _Container(_Wire, frozen=True):
    """A container whose variables are left as they are: the rule reads none but the proxy's.

    They are most of many Pods, and as objects they took two thirds of the time that reading took.
    """

    name: str
    args: tuple[str, ...] | None = None
    env: msgspec.Raw = _NULL
    security_context: SecurityContext | None = None

    def read(self) -> Container:
        """The container as the rule knows it."""
        env = _environments.decode(self.env) if self.name == rule.ISTIO_PROXY else None
        return Container(self.name, self.args, env, self.security_context)


class _PodSpec(_Wire, frozen=True):
    init_containers: tuple[_Container, ...] | None = None
    containers: tuple[_Container, ...] | None = None
    security_context: SecurityContext | None = None


class _Pod(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _PodSpec = _PodSpec()

    def read(self) -> Pod:
        """The Pod as the rule knows it."""
        spec = self.spec
        return Pod(
            self.metadata,
            PodSpec(_each(spec.init_containers), _each(spec.containers), spec.security_context),
        )


def _each(containers: tuple[_Container, ...] | None) -> tuple[Container, ...] | None:
    if containers is None:
        return None
    return tuple([container.read() for container in containers])


class _PodRequest(_Asked, frozen=True):
    object: _Pod | None = None


class _Head(_Wire, frozen=True):
    """Fields without defaults would give an error in msgspec's words before one in ours."""

    api_version: str = ""
    kind: str = ""


class _PodReview(_Head, frozen=True):
    request: _PodRequest | None = None


class _AnyReview(_Head, frozen=True):
    request: _Asked | None = None


class _Response(_Wire, frozen=True, omit_defaults=True):
    uid: str
    allowed: bool
    patch_type: str = ""
    # msgspec writes bytes as base64, as a patch has to be.
    patch: bytes = b""
    warnings: tuple[str, ...] = ()
    audit_annotations: dict[str, str] = {}


class _Reply(_Wire, frozen=True):
    api_version: str
    kind: str
    response: _Response


_pod_reviews = msgspec.json.Decoder(_PodReview)
_environments = msgspec.json.Decoder(tuple[EnvVar, ...] | None)
_any_reviews = msgspec.json.Decoder(_AnyReview)
_encoder = msgspec.json.Encoder()
_T = TypeVar("_T")


def answer(body: bytes, context: Context) -> Answer:
    """Answer one review. A Pod is never denied, whatever it is like.

    Args:
        body: the body of the request.
        context: what to answer with.

    Raises:
        NotAReview: the body is no AdmissionReview v1.
    """
    request, pod, problem = _read(body)
    if not request.creates_pod:
        return _answer(request, NOT_A_POD, "only the creation of a Pod is decided")
    if pod is None:
        warning = f"the Pod was let through as it is, it can't be read: {problem}"
        return _answer(request, UNREADABLE, problem, warnings=(_warning(warning),))
    wanted = pod.labels.get(rule.PROBE_LABEL)
    if wanted is not None and wanted != context.probe:
        return _answer(request, OTHER_PROBE, f"{rule.PROBE_LABEL}={wanted} asks another backend")
    try:
        decision = rule.decide(pod, Namespace(request.namespace), context.policy)
        return _answer(
            request,
            decision.verdict.value,
            decision.reason,
            patch=decision.patch,
            warnings=_warnings(pod, decision, context.policy.remedy),
        )
    except Exception as error:
        warning = "the Pod was let through as it is, deciding about it failed"
        return _answer(
            request,
            ERROR,
            f"{type(error).__name__} in the webhook, see its log",
            warnings=(_warning(warning),),
            error=error,
        )


def _read(body: bytes) -> tuple[_Asked, Pod | None, str]:
    """The request and its Pod, or without one why."""
    try:
        request = _request(_decode(_pod_reviews, body))
        return request, request.object and request.object.read(), "it is empty"
    except msgspec.ValidationError as error:
        # Either it is no review, or its object is no Pod: then the rest can be read.
        return _request(_decode_any(body)), None, _spoken(str(error))


def _decode_any(body: bytes) -> _AnyReview:
    try:
        return _decode(_any_reviews, body)
    except msgspec.ValidationError as error:
        raise NotAReview(f"no AdmissionReview: {error}") from None


def _decode(decoder: msgspec.json.Decoder[_T], body: bytes) -> _T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotAReview(f"no JSON: {error}") from None
    except RecursionError:
        raise NotAReview("no AdmissionReview: nested too deeply") from None


def _request(review: Any) -> Any:
    """The request of a _PodReview or an _AnyReview, if that is what it is."""
    if review.kind != KIND:
        raise NotAReview(f"no AdmissionReview: its kind is {_short(review.kind)!r}")
    if review.api_version != API_VERSION:
        version = _short(review.api_version)
        raise NotAReview(f"its apiVersion is {version!r}; only {API_VERSION} is answered")
    if review.request is None or not review.request.uid:
        raise NotAReview("an AdmissionReview without a request that has a uid")
    return review.request


def _answer(
    request: _Asked,
    verdict: str,
    reason: str,
    *,
    patch: tuple[PatchOperation, ...] = (),
    warnings: tuple[str, ...] = (),
    error: Exception | None = None,
) -> Answer:
    response = _Response(
        uid=request.uid,
        allowed=True,
        patch_type="JSONPatch" if patch else "",
        patch=_encoder.encode(patch) if patch else b"",
        warnings=warnings,
        # The verdict is the key: the API server asks again once it has mounted a token in the
        # proxy, and logs a warning if a key then has another value (k8s.io/apiserver,
        # pkg/admission/attributes.go, AddAnnotationWithLevel).
        audit_annotations={verdict: reason[:_REASON_LIMIT]},
    )
    return Answer(
        body=_encoder.encode(_Reply(API_VERSION, KIND, response)),
        verdict=verdict,
        reason=reason,
        uid=request.uid,
        namespace=request.namespace,
        name=request.name,
        dry_run=request.dry_run,
        patch=patch,
        error=error,
    )


def _warnings(pod: Pod, decision: Decision, remedy: Remedy) -> tuple[str, ...]:
    if decision.patch:
        changes = _changes(pod, decision.patch, remedy)
        return (_warning(f"{decision.reason}; {changes}"),)
    if decision.verdict is Verdict.BEYOND_REMEDY:
        return (_warning(f"no network in an init container: {decision.reason}"),)
    return ()


def _changes(pod: Pod, patch: Sequence[PatchOperation], remedy: Remedy) -> str:
    if remedy is Remedy.EXCLUDE_IP_RANGES:
        return "set " + ", ".join(f"{_key(change)}={change.value}" for change in patch)
    value = patch[0].value
    identity = next(iter(value.values())) if isinstance(value, dict) else value
    # A path is /spec/initContainers/<index>/securityContext, and maybe a field.
    names = [pod.init_containers[int(change.path.split("/")[3])].name for change in patch]
    kind = "user" if remedy is Remedy.PROXY_USER else "group"
    return f"{kind} {identity} was given to {', '.join(names)}"


def _key(change: PatchOperation) -> str:
    return change.path[len(_ANNOTATION) :].replace("~1", "/").replace("~0", "~")


def _warning(text: str) -> str:
    return _short(_spoken(f"istio-init-egress: {text}"))


def _spoken(text: str) -> str:
    """The text without characters that a header, and so a warning, can't hold."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)


def _short(text: str) -> str:
    return text if len(text) <= WARNING_LIMIT else text[: WARNING_LIMIT - 1] + "…"
