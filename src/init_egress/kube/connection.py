"""One connection to an API server, with the one policy by which a request is tried again.

The connection is lightkube's, with its kubeconfig, tokens and authorities. What goes over it is
ours, for lightkube makes an object of everything that it reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import httpx2
import msgspec
from lightkube import KubeConfig
from lightkube.config.client_adapter import Client, ConnectionParams
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError as KubeconfigError
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
)

from init_egress.kube.errors import Busy, Refused, Unreachable, from_answer

ATTEMPTS = 5
DEADLINE = 60.0
"""Seconds after the first attempt in which another may begin."""

TIMEOUT = httpx2.Timeout(30.0, connect=10.0)
"""Seconds for one attempt; webhooks may take 10 of them each, and 30 if they are told so."""

_LONGEST_PAUSE = 30.0

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """One request.

    Attributes:
        method: the HTTP method.
        path: made by `init_egress.kube.paths`.
        action: what it does, as it follows on `can't`, such as `list pods`.
        repeatable: whether doing it twice is doing it once. What isn't is only tried again if the
            API server said, or can be known, not to have begun with it.
        params: the query.
        headers: beside the connection's.
        body: sent as JSON.
    """

    method: str
    path: str
    action: str
    repeatable: bool = True
    params: Mapping[str, str | list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: object = None


class Connection:
    """Sends requests.

    Attributes:
        requests: how many were sent.
    """

    def __init__(self, http: httpx2.Client, sleep: Callable[[float], None] = time.sleep) -> None:
        self.requests = 0
        self._http = http
        self._sleep = sleep
        self._lock = threading.Lock()

    @classmethod
    def open(cls, config: SingleConfig | None = None) -> Connection:
        """Connect as the Pod's service account, or else as KUBECONFIG says.

        Args:
            config: another cluster and user.

        Raises:
            Unreachable: there is no such configuration, or it is not valid.
        """
        try:
            found = config or KubeConfig.from_env().get()
            if found is None:
                raise KubeconfigError("the kubeconfig has no current context")
            http = Client(found, ConnectionParams(timeout=TIMEOUT))
        except (KubeconfigError, OSError, ValueError) as error:
            raise Unreachable(f"can't connect to the cluster: {error}") from error
        # Packing costs the API server more than the bytes cost the network of a cluster.
        http.headers["Accept-Encoding"] = "identity"
        return cls(http)

    def send(self, request: Request, decode: Callable[[bytes], T]) -> T:
        """Send a request, again if need be.

        It is sent up to five times within a minute, after as long as the server asks for, or with
        growing pauses, as long as the server is busy (429, 5xx), gives no answer, or what comes
        is not JSON: then it comes from something in front of the server.

        Args:
            request: what is asked for.
            decode: makes something of the answer.

        Raises:
            ClusterError: it can't be had; Busy where a request that isn't repeatable may have
                been carried out, and only its answer was lost.
        """
        content = _encoded(request)

        def once() -> T:
            with self._lock:
                self.requests += 1
            return _decoded(request, self._exchange(request, content), decode)

        return Retrying(
            retry=retry_if_exception(lambda error: _may_repeat(request, error)),
            stop=stop_after_attempt(ATTEMPTS) | stop_before_delay(DEADLINE),
            wait=_pause,
            sleep=self._sleep,
            reraise=True,
        )(once)

    def _exchange(self, request: Request, content: bytes | None) -> bytes:
        try:
            response = self._http.request(
                request.method,
                request.path,
                params={name: value for name, value in request.params.items() if value},
                headers={**request.headers},
                content=content,
            )
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise Busy(_no_answer(request, error), may_have_acted=False) from error
        except httpx2.HTTPError as error:
            raise Busy(_no_answer(request, error), may_have_acted=True) from error
        except KubeconfigError as error:  # the token's file, or the command that gives one
            raise Unreachable(_no_answer(request, error)) from error
        if response.is_success:
            return response.content
        raise from_answer(request.action, response)


def _encoded(request: Request) -> bytes | None:
    if request.body is None:
        return None
    try:
        return msgspec.json.encode(request.body)
    except (RecursionError, UnicodeEncodeError) as error:  # a tenant's JSON may be both
        raise Refused(f"can't {request.action}: it is not valid JSON: {error}") from error


def _decoded(request: Request, answer: bytes, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(answer)
    except msgspec.ValidationError as error:
        raise Refused(f"can't {request.action}: unexpected answer: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"can't {request.action}: the answer is not JSON: {error}"
        raise Busy(message, may_have_acted=True) from error


def _no_answer(request: Request, error: Exception) -> str:
    return f"can't {request.action}: {error or type(error).__name__}"


def _may_repeat(request: Request, error: BaseException) -> bool:
    return isinstance(error, Busy) and (request.repeatable or not error.may_have_acted)


def _pause(state: RetryCallState) -> float:
    """Seconds until the next attempt: what the server asks for, else 0.5, 1, 2 and 4."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.pause if isinstance(error, Busy) else None
    growing = 0.25 * 2**state.attempt_number
    return min(growing if asked is None else asked, _LONGEST_PAUSE)
