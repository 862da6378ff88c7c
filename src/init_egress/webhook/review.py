"""AdmissionReview v1: decodes the API server's request and encodes the rule's decision.

Pure: bytes in, bytes out. The wire types name only the fields that are read
(https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/).
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from init_egress.rule import decision, istio
from init_egress.rule.decision import Decision
from init_egress.rule.patch import PatchOperation
from init_egress.rule.pod import (
    Container,
    EnvVar,
    Namespace,
    ObjectMeta,
    Pod,
    PodSpec,
    SecurityContext,
)
from init_egress.rule.policy import Policy, RemedyKind
from init_egress.rule.remedies import REMEDIES
from init_egress.rule.verdict import Verdict

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

# The verdicts on a review, beside the rule's.
NOT_A_POD = "not-a-pod"
"""The review is not about the creation of a Pod."""
OTHER_PROBE = "other-probe"
"""The Pod probes another backend, or other settings."""
UNREADABLE = "unreadable"
"""The review holds a Pod that cannot be decoded. An API server does not send one."""
ERROR = "error"
"""The decision failed: a bug."""
VERDICTS = (*(verdict.value for verdict in Verdict), NOT_A_POD, OTHER_PROBE, UNREADABLE, ERROR)

# The API server cuts each warning to 256 characters and drops one that holds a control character:
# staging/src/k8s.io/apiserver/pkg/endpoints/filters/warning.go in kubernetes/kubernetes.
WARNING_LIMIT = 256
_REASON_LIMIT = 1024


class NotAReview(ValueError):
    """The body is not an AdmissionReview v1; the message says why."""


class Context(msgspec.Struct, frozen=True):
    """What a review is answered with.

    Attributes:
        policy: what the operator configured. Its selector of namespaces must be empty: a review
            does not hold the namespace's labels, so the webhook configuration selects by them.
        probe: the value of the probe label that this webhook answers, if any.
    """

    policy: Policy
    probe: str = ""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The answer to one review.

    Attributes:
        body: the AdmissionReview to send.
        verdict: one of VERDICTS.
        reason: why, in one sentence.
        uid: the uid of the request.
        namespace: the namespace of the request.
        name: the object's name; empty if the API server has yet to generate it.
        dry_run: whether the request is a dry run.
        patch: the changes.
        error: the exception that the decision failed with, if it did.
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
    """A JSON object; unknown fields are ignored."""


class _Kind(_Wire, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


_POD = _Kind("", "v1", "Pod")


class _Asked(_Wire, frozen=True):
    """A request without its object."""

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
    """A container with its environment undecoded, since the rule reads only the proxy's.

    The variables make up most of many Pods; decoding them took two thirds of the decoding time.
    """

    name: str
    args: tuple[str, ...] | None = None
    env: msgspec.Raw = _NULL
    security_context: SecurityContext | None = None

    def read(self) -> Container:
        """The container as the rule's type."""
        env = _environments.decode(self.env) if self.name == istio.ISTIO_PROXY else None
        return Container(self.name, self.args, env, self.security_context)


# etcd takes objects of 1.5 MiB, and an init container with the API server's defaults takes 200
# bytes: a Pod of more than some 7,500 is never stored, and would only keep other reviews waiting.
_Containers = Annotated[tuple[_Container, ...], msgspec.Meta(max_length=10_000)]


class _PodSpec(_Wire, frozen=True):
    init_containers: _Containers | None = None
    containers: tuple[_Container, ...] | None = None
    security_context: SecurityContext | None = None


class _Pod(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _PodSpec = _PodSpec()

    def read(self) -> Pod:
        """The Pod as the rule's type."""
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
    """The defaults let _request check the fields and name what is wrong."""

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
    # msgspec encodes bytes as base64, as the API requires.
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
    """Answer one review. It never denies a Pod.

    Args:
        body: the body of the request.
        context: what to answer with.

    Raises:
        NotAReview: the body is not an AdmissionReview v1.
    """
    request, pod, problem = _read(body)
    if not request.creates_pod:
        return _answer(request, NOT_A_POD, "the request does not create a Pod")
    if pod is None:
        warning = f"the Pod was admitted unchanged because it cannot be decoded: {problem}"
        return _answer(request, UNREADABLE, problem, warnings=(_warning(warning),))
    wanted = pod.labels.get(istio.PROBE_LABEL)
    if wanted is not None and wanted != context.probe:
        return _answer(
            request, OTHER_PROBE, f"{istio.PROBE_LABEL}={wanted} probes another backend"
        )
    try:
        decided = decision.decide(pod, Namespace(request.namespace), context.policy)
        return _answer(
            request,
            decided.verdict.value,
            decided.reason,
            patch=decided.patch,
            warnings=_warnings(pod, decided, context.policy.remedy),
        )
    except Exception as error:
        warning = "the Pod was admitted unchanged because the webhook failed"
        return _answer(
            request,
            ERROR,
            f"{type(error).__name__} in the webhook; see its log",
            warnings=(_warning(warning),),
            error=error,
        )


def _read(body: bytes) -> tuple[_Asked, Pod | None, str]:
    """The request and its Pod; if the Pod cannot be decoded, None and why."""
    try:
        request = _request(_decode(_pod_reviews, body))
        return request, request.object and request.object.read(), "the object is empty"
    except msgspec.ValidationError as error:
        # Only the object may be invalid; then the request can still be answered.
        return _request(_decode_any(body)), None, _printable(str(error))


def _decode_any(body: bytes) -> _AnyReview:
    try:
        return _decode(_any_reviews, body)
    except msgspec.ValidationError as error:
        raise NotAReview(f"not an AdmissionReview: {error}") from None


def _decode(decoder: msgspec.json.Decoder[_T], body: bytes) -> _T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotAReview(f"not JSON: {error}") from None
    except RecursionError:
        raise NotAReview("not an AdmissionReview: nested too deeply") from None


def _request(review: Any) -> Any:
    """The request of a _PodReview or an _AnyReview.

    Raises:
        NotAReview: it is not an AdmissionReview v1 with a request.
    """
    if review.kind != KIND:
        raise NotAReview(f"not an AdmissionReview: its kind is {_short(review.kind)!r}")
    if review.api_version != API_VERSION:
        version = _short(review.api_version)
        raise NotAReview(f"its apiVersion is {version!r}; only {API_VERSION} is supported")
    if review.request is None or not review.request.uid:
        raise NotAReview("the AdmissionReview has no request with a uid")
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


def _warnings(pod: Pod, decided: Decision, remedy: RemedyKind) -> tuple[str, ...]:
    if decided.patch:
        changes = REMEDIES[remedy].warning(pod, decided.patch)
        return (_warning(f"{decided.reason}; {changes}"),)
    if decided.verdict is Verdict.BEYOND_REMEDY:
        return (_warning(f"no network in an init container: {decided.reason}"),)
    return ()


def _warning(text: str) -> str:
    return _short(_printable(f"istio-init-egress: {text}"))


def _printable(text: str) -> str:
    """The text with `?` for characters that a header, and so a warning, cannot hold."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)


def _short(text: str) -> str:
    return text if len(text) <= WARNING_LIMIT else text[: WARNING_LIMIT - 1] + "…"
