"""What is told of many namespaces: counted all, listed as far as there is room."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace

import pytest

from init_egress.backends import coverage
from init_egress.backends.manifests import Application, BackendKind
from init_egress.backends.verification import Effect, Verification
from init_egress.kube.cluster import Cluster
from init_egress.kube.errors import ClusterError, Unreachable
from init_egress.rule.pod import Namespace
from init_egress.rule.policy import Policy
from tests.fake_cluster import FakeCluster

OWNER = Application("app", "model")
NATIVE = OWNER.probe(BackendKind.NATIVE)


def seeing(monkeypatch: pytest.MonkeyPatch, effects: dict[str, Effect | ClusterError]) -> None:
    """Have each namespace show an effect of the native form, and none of any other."""

    def examine(
        _: Cluster, namespace: Namespace, policy: Policy, label: str, patience: float
    ) -> Verification:
        effect = effects[namespace.name] if label == NATIVE else Effect.MISSING
        if isinstance(effect, ClusterError):
            raise effect
        return Verification(effect, f"in {namespace.name}", milliseconds=len(namespace.name))

    monkeypatch.setattr(coverage, "examine", examine)


def cover(names: list[str], limit: int | None = None) -> tuple[coverage.Coverage, list[str]]:
    said: list[str] = []
    found = coverage.cover(
        FakeCluster(),
        [Namespace(name) for name in names],
        Policy(),
        OWNER,
        BackendKind.NATIVE,
        limit=limit,
        progress=said.append,
    )
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


def test_all_namespaces_together_wait_no_longer_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a policy that is gone would be waited for in each of hundreds."""
    hours = itertools.count(step=3600)
    monkeypatch.setattr(coverage, "time", SimpleNamespace(monotonic=lambda: next(hours)))
    waited: list[float] = []

    def examine(*arguments: object) -> Verification:
        waited.append(float(str(arguments[-1])))
        return Verification(Effect.MISSING, "")

    monkeypatch.setattr(coverage, "examine", examine)

    cover(["a", "b"])

    assert set(waited) == {0.0}


def test_what_was_just_written_has_time_to_take_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "time", SimpleNamespace(monotonic=lambda: 0.0))
    waited: dict[object, object] = {}

    def examine(*arguments: object) -> Verification:
        waited[arguments[-2]] = arguments[-1]
        return Verification(Effect.MISSING, "")

    monkeypatch.setattr(coverage, "examine", examine)

    cover(["a"])

    assert waited.pop(NATIVE) == coverage.PATIENCE
    assert set(waited.values()) == {0}


def test_a_webhook_that_fails_closed_takes_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    seeing(monkeypatch, {"a": Unreachable("failed calling webhook", 500), "b": Effect.ARRIVES})

    found, _ = cover(["a", "b"])

    assert [(row.namespace, row.effect) for row in found.rows] == [
        ("a", Effect.REJECTED),
        ("b", Effect.ARRIVES),
    ]


@pytest.mark.parametrize("code", [0, 429, 503])
def test_an_api_server_that_can_not_be_asked_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    seeing(monkeypatch, {"a": Unreachable("not now", code)})

    with pytest.raises(Unreachable, match="not now"):
        cover(["a"])
