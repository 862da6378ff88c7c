"""What is told of many namespaces: counted all, listed as far as there is room."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace

import pytest

from init_egress.backends import coverage
from init_egress.backends.effect import Effect, Verification
from init_egress.backends.registry import NATIVE
from init_egress.backends.verification import Prover
from init_egress.kube.application import Application
from init_egress.kube.errors import ClusterError, Unreachable
from init_egress.rule.pod import Namespace
from init_egress.rule.policy import Policy
from tests.fake_cluster import FakeCluster

PROVER = Prover(FakeCluster(), Policy(), Application("app", "model"), NATIVE)


def seeing(monkeypatch: pytest.MonkeyPatch, effects: dict[str, Effect | ClusterError]) -> None:
    """Have each namespace show an effect of the native backend, and none of any other."""

    def examine(self: Prover, namespace: Namespace) -> Verification:
        effect = effects[namespace.name] if self.backend is NATIVE else Effect.MISSING
        if isinstance(effect, ClusterError):
            raise effect
        return Verification(effect, f"in {namespace.name}", milliseconds=len(namespace.name))

    monkeypatch.setattr(Prover, "examine", examine)


def cover(names: list[str], limit: int | None = None) -> tuple[coverage.Coverage, list[str]]:
    said: list[str] = []
    namespaces = [Namespace(name) for name in names]
    found = coverage.cover(PROVER, namespaces, limit=limit, progress=said.append)
    return found, said


def test_those_without_the_remedy_come_first_and_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    effects: dict[str, Effect | ClusterError] = {
        "a": Effect.ARRIVES,
        "b": Effect.UNVERIFIED,
        "c": Effect.REJECTED,
        "e": Effect.MISSING,
        "d": Effect.MISSING,
    }
    seeing(monkeypatch, effects)

    found, _ = cover(list(effects))

    assert [row.namespace for row in found.rows] == ["d", "e", "c", "b", "a"]
    assert found.summary == (
        "native, 5 namespaces: it is missing in 2, admission takes no Pod in 1,"
        " there is nothing to verify in 1, the remedy arrives in 1; slowest: 1 ms"
    )


def test_what_there_is_no_room_for_is_counted_and_what_matters_most_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"team-{number}" for number in range(300)]
    effects: dict[str, Effect | ClusterError] = dict.fromkeys(names, Effect.ARRIVES)
    effects["team-7"] = Effect.MISSING
    seeing(monkeypatch, effects)

    found, said = cover(names, limit=2_000)

    results = found.results()
    document = json.loads(str(results["document"]))
    assert results["namespaces"] == 300
    assert (results["arrives"], results["missing"]) == (299, 1)
    assert len(document["namespaces"]) + document["left-out"] == 300
    assert document["namespaces"][0]["namespace"] == "team-7"
    assert len(json.dumps(document["namespaces"])) < 3_000
    assert len(said) == 300 // coverage.PROGRESS_EVERY
    assert said[0].startswith("50 of 300 namespaces asked")


def waits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, float]]:
    """Have no backend act anywhere; which of them was waited for, and for how many seconds."""
    waited: list[tuple[object, float]] = []

    def examine(self: Prover, namespace: Namespace) -> Verification:
        waited.append((self.backend, self.timeout))
        return Verification(Effect.MISSING, "")

    monkeypatch.setattr(Prover, "examine", examine)
    return waited


def test_all_namespaces_together_wait_no_longer_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a policy that is gone would be waited for in each of hundreds."""
    hours = itertools.count(step=3600)
    monkeypatch.setattr(coverage, "time", SimpleNamespace(monotonic=lambda: next(hours)))
    waited = waits(monkeypatch)

    cover(["a", "b"])

    assert {seconds for _, seconds in waited} == {0.0}


def test_what_was_just_written_has_time_to_take_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "time", SimpleNamespace(monotonic=lambda: 0.0))
    waited = waits(monkeypatch)

    cover(["a"])

    assert waited[0] == (NATIVE, coverage.SETTLING_SECONDS)
    assert {seconds for _, seconds in waited[1:]} == {0.0}


@pytest.mark.parametrize("code", [0, 429, 503])
def test_an_api_server_that_can_not_be_asked_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    seeing(monkeypatch, {"a": Unreachable("not now", code)})

    with pytest.raises(Unreachable, match="not now"):
        cover(["a"])
