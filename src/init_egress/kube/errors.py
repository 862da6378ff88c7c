"""What can go wrong with the API server, told apart by what the operator can do about it."""

from __future__ import annotations

import httpx2
import msgspec

from init_egress.rule.words import printable

_GONE = 410
_INTERNAL_ERROR = 500
_TOO_MANY_REQUESTS = 429
_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"
"""The Eviction API says this, with 500; another try does not help
(https://github.com/kubernetes/kubernetes/blob/master/pkg/registry/core/pod/storage/eviction.go)."""


class ClusterError(Exception):
    """The cluster did not do what it was asked; the message says what and why.

    Attributes:
        code: the HTTP status that the API server answered with; 0 where it did not answer.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code

    @property
    def means_rejected(self) -> bool:
        """Whether a Pod would not have been created.

        500 is what the API server answers for a webhook that fails and has failurePolicy Fail
        (k8s.io/apiserver, pkg/admission/plugin/webhook/mutating/dispatcher.go).
        """
        return isinstance(self, Refused) or self.code == _INTERNAL_ERROR


class Forbidden(ClusterError):
    """The charm has no right to do it."""


class Unreachable(ClusterError):
    """The API server did not answer, or could not answer now; another try may help."""


class Busy(Unreachable):
    """One try did not succeed; another one may.

    Attributes:
        pause: seconds after which the server wants to be asked again, if it says so.
        may_have_acted: whether the request may have been carried out, and only its answer lost.
    """

    def __init__(
        self, message: str, code: int = 0, *, pause: float | None = None, may_have_acted: bool
    ) -> None:
        super().__init__(message, code)
        self.pause = pause
        self.may_have_acted = may_have_acted


class OutcomeUnknown(Unreachable):
    """Whether a change was made is not known: its answer was lost, and so was the next one."""


class Refused(ClusterError):
    """The API server, or an admission webhook, said no."""


class NotFound(Refused):
    """404: the object, or the whole kind, isn't there; or the name is another object's by now."""


class Changed(Refused):
    """409: the object isn't as it was when it was read."""


class OverBudget(Refused):
    """An eviction would violate a PodDisruptionBudget."""


class InvalidName(Refused):
    """Kubernetes would not take it as a name, namespace, group or version; nothing is sent."""


class Unreadable(Refused):
    """The object is there, but it has a field that can't be decoded."""


class Expired(Refused):
    """A list can't be continued from where it was.

    Attributes:
        token: by which the server continues it with what is there now; empty if it can't.
    """

    def __init__(self, message: str, token: str) -> None:
        super().__init__(message, _GONE)
        self.token = token


class _Meta(msgspec.Struct, frozen=True, rename={"token": "continue"}):
    token: str = ""


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    causes: tuple[_Cause, ...] | None = None
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct, frozen=True):
    """metav1.Status, by which the API server says what went wrong."""

    message: str = ""
    metadata: _Meta = _Meta()
    details: _Details | None = None


def from_answer(action: str, response: httpx2.Response) -> ClusterError:
    """The error that an answer other than 2xx is.

    Args:
        action: what was asked for, as it follows on `can't`.
        response: the answer, read to its end.
    """
    code = response.status_code
    status = _status(response)
    said = printable(status.message.strip()) or f"the API server answered {code}"
    text = f"can't {action}: {said}"
    details = status.details or _Details()
    if _exceeds_budget(status, details):
        return OverBudget(text, code)
    if code == _GONE:
        return Expired(text, status.metadata.token)
    kind = _kind(code, status.message)
    if kind is not Busy:
        return kind(text, code)
    pause = _retry_after(response, details)
    # The API server's flow control sends 429 before it looks at the request.
    return Busy(text, code, pause=pause, may_have_acted=code != _TOO_MANY_REQUESTS)


def _status(response: httpx2.Response) -> _Status:
    try:
        return msgspec.json.decode(response.content, type=_Status)
    except (msgspec.MsgspecError, RecursionError):
        # A group that isn't served is a plain 404; a proxy may say anything.
        return _Status(message=response.text[:_LONGEST_TEXT])


_LONGEST_TEXT = 500


def _exceeds_budget(status: _Status, details: _Details) -> bool:
    if any(cause.reason == "DisruptionBudget" for cause in details.causes or ()):
        return True
    return _SEVERAL_BUDGETS in status.message


def _kind(code: int, message: str) -> type[ClusterError]:
    # An admission webhook may deny with 403 too; only RBAC names the user and the verb.
    if code == 401 or (code == 403 and 'User "' in message and '" cannot ' in message):
        return Forbidden
    # The API server never redirects; what does stands in front of it.
    if code == _TOO_MANY_REQUESTS or code >= 500 or code < 400:
        return Busy
    return {404: NotFound, 409: Changed}.get(code, Refused)


def _retry_after(response: httpx2.Response, details: _Details) -> float | None:
    try:
        seconds = float(response.headers["Retry-After"])
    except (KeyError, ValueError):  # it may also be a date, which the API server does not send
        return details.retry_after_seconds
    return seconds if seconds >= 0 else None
