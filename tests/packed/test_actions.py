"""The packed charm's actions: what each of charmcraft.yaml's gives, on a mesh."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import yaml
from lightkube import Client

from init_egress.kube.kinds import POD
from init_egress.rule.istio import EXCLUDE_RANGES
from tests.functional.load import A_POD
from tests.packed.hook_tools import Results
from tests.packed.juju import Unit
from tests.packed.pack import ROOT
from tests.packed.test_hooks import IN_THE_MESH, active
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.istio import Istiod
from tests.testbed.process import wait_until

ACTIONS: list[str] = list(yaml.safe_load((ROOT / "charmcraft.yaml").read_text())["actions"])
FROM_BEFORE = "from-before"  # a Pod that was there before the charm


@dataclass(frozen=True)
class Row:
    """How an action is called for a namespace of the mesh, and what it gives."""

    parameters: Callable[[str], dict[str, str]] = lambda _: {}
    check: Callable[[Results], None] = lambda _: None
    fails: str = ""


def _judges_the_pod(results: Results) -> None:
    document = json.loads(str(results["document"]))
    assert (results["pods"], results["needs-remedy"]) == ("1", "1")
    assert [pod["pod"] for pod in document["pods"]] == [FROM_BEFORE]


def _tells_why(results: Results) -> None:
    assert results["verdict"] == "needs-remedy"
    assert "10. needs-remedy: yes" in str(results["explanation"])


def _annotates_the_pod(results: Results) -> None:
    assert (results["pods-seen"], results["patched"], results["failed"]) == ("1", "1", "0")


def _shows_the_policy(results: Results) -> None:
    shown = list(yaml.safe_load_all(str(results["policy"])))
    assert results["backend"] == "native"
    assert int(str(results["objects"])) == len(shown) > 1


def _sees_the_remedy_arrive(results: Results) -> None:
    assert (results["backend"], results["arrives"], results["missing"]) == ("native", "1", "0")


# A line for each action of charmcraft.yaml.
TABLE: dict[str, Row] = {
    "audit": Row(lambda team: {"namespace": team}, _judges_the_pod),
    "explain": Row(lambda team: {"namespace": team, "pod": FROM_BEFORE}, _tells_why),
    "mutate-existing-pods": Row(lambda team: {"namespace": team}, _annotates_the_pod),
    "rotate-certificates": Row(fails="only backend=webhook has a certificate"),
    "show-policy": Row(check=_shows_the_policy),
    "verify": Row(lambda team: {"namespace": team}, _sees_the_remedy_arrive),
}


@pytest.fixture
def team(istiod: Istiod, namespace: MakeNamespace, client: Client) -> str:
    """A namespace of the mesh with a Pod that no policy has changed."""
    team = namespace(IN_THE_MESH)
    pod = POD.from_dict({**A_POD, "metadata": {"name": FROM_BEFORE}})

    def unchanged() -> bool:
        tried = client.create(pod, namespace=team, dry_run=True)["metadata"]
        return EXCLUDE_RANGES not in tried["annotations"]

    # The API server acts on a policy for some seconds after it was deleted.
    wait_until(unchanged, "the policy of the test before is out of force")
    client.create(pod, namespace=team)
    return team


def test_every_action_has_a_line_in_the_table() -> None:
    assert set(TABLE) == set(ACTIONS)


@pytest.mark.parametrize("name", TABLE)
def test_an_action_gives_what_the_table_says(unit: Unit, team: str, name: str) -> None:
    active(unit)
    before, row = unit.status, TABLE[name]

    done = unit.run_action(name, **row.parameters(team))

    assert (done["failed"], done["message"]) == (bool(row.fails), row.fails)
    row.check(done["results"])
    assert unit.status == before


@pytest.mark.parametrize("name", TABLE)
def test_an_action_fails_in_words_where_the_options_are_wrong(unit: Unit, name: str) -> None:
    unit.update(config={**unit.state["config"], "remedy": "magic"})

    done = unit.run_action(name, **TABLE[name].parameters("team-a"))

    assert done["failed"]
    assert "remedy: 'magic' is none of" in done["message"]
