"""The cluster's faults, which a real API server doesn't produce when asked to."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest
from lightkube import Client
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import Cluster as Server
from lightkube.config.models import Context, User

from init_egress.kube.client import Cluster, ClusterError, Forbidden, Refused, Unreachable, fault

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "x-"}}


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses that were asked for; none is made."""
    pauses: list[float] = []
    monkeypatch.setattr("tenacity.nap.time.sleep", pauses.append)
    return pauses


def answering(*codes: int) -> Cluster:
    """A cluster that answers so, one request after another, and then no more."""
    left: Iterator[int] = iter(codes)

    def answer(_: httpx2.Request) -> httpx2.Response:
        code = next(left)
        body = POD if code < 300 else {"kind": "Status", "code": code, "message": "not now"}
        return httpx2.Response(code, json=body)

    config = SingleConfig("x", Context("x"), Server("http://x"), User())
    return Cluster(Client(config=config, transport=httpx2.MockTransport(answer)))


@pytest.mark.parametrize("code", [429, 500, 503, 504])
def test_a_dry_run_for_which_the_api_server_has_no_time_is_tried_again(
    paused: list[float], code: int
) -> None:
    assert answering(code, code, 201).dry_run("team", {**POD})["kind"] == "Pod"
    assert len(paused) == 2


def test_a_dry_run_is_given_up_after_three_times(paused: list[float]) -> None:
    with pytest.raises(Unreachable, match="can't create a Pod in team by dry run: not now"):
        answering(503, 503, 503).dry_run("team", {**POD})


def test_a_dry_run_that_is_refused_is_not_tried_again(paused: list[float]) -> None:
    with pytest.raises(Refused):
        answering(422).dry_run("team", {**POD})
    assert paused == []


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('pods is forbidden: User "system:anonymous" cannot create resource "pods"', Forbidden),
        ('pods "x" is forbidden: exceeded quota: full', Refused),
        ('admission webhook "x" denied the request: User containers cannot run here', Refused),
    ],
)
def test_only_a_missing_right_is_taken_for_one(message: str, kind: type[ClusterError]) -> None:
    assert type(fault("create a Pod", 403, message)) is kind
