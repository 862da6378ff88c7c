"""The stand-in for istio-pilot writes the databag that istio-pilot writes."""

import importlib.util
from pathlib import Path

import ops
import pytest
import yaml
from ops import testing

PROVIDER = Path(__file__).parents[1] / "integration" / "gateway_info_provider"
ENDPOINT = "gateway-info"


def _charm_class() -> type[ops.CharmBase]:
    """The stand-in's class, by its path: its module is called `charm` like ours."""
    spec = importlib.util.spec_from_file_location("provider", PROVIDER / "src" / "charm.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.GatewayInfoProvider


@pytest.fixture
def context() -> testing.Context:
    charmcraft = yaml.safe_load((PROVIDER / "charmcraft.yaml").read_text())
    config = charmcraft.pop("config")
    return testing.Context(_charm_class(), meta=charmcraft, config=config)


def _state(
    *relations: testing.Relation, leader: bool = True, config: dict[str, str] | None = None
) -> testing.State:
    return testing.State(
        leader=leader,
        relations=relations,
        config=dict(config or {}),
        model=testing.Model(name="kubeflow", type="kubernetes"),
    )


@pytest.mark.parametrize("event", ["relation_created", "relation_changed"])
def test_the_leader_writes_what_istio_pilot_writes(context: testing.Context, event: str) -> None:
    relation = testing.Relation(ENDPOINT)

    out = context.run(getattr(context.on, event)(relation), _state(relation))

    assert out.get_relation(relation.id).local_app_data == {
        "gateway_name": "istio-gateway",
        "gateway_namespace": "kubeflow",
        "gateway_up": "true",
    }
    assert out.unit_status == testing.ActiveStatus()


@pytest.mark.parametrize("event", ["leader_elected", "config_changed", "upgrade_charm"])
def test_every_relation_hears_of_another_namespace(context: testing.Context, event: str) -> None:
    relations = testing.Relation(ENDPOINT), testing.Relation(ENDPOINT)
    state = _state(*relations, config={"namespace": "istio-system"})

    out = context.run(getattr(context.on, event)(), state)

    assert [
        out.get_relation(relation.id).local_app_data["gateway_namespace"] for relation in relations
    ] == ["istio-system", "istio-system"]


def test_another_unit_writes_nothing(context: testing.Context) -> None:
    relation = testing.Relation(ENDPOINT)

    out = context.run(context.on.relation_created(relation), _state(relation, leader=False))

    assert out.get_relation(relation.id).local_app_data == {}
    assert out.unit_status == testing.ActiveStatus()


def test_without_a_relation_it_is_active(context: testing.Context) -> None:
    assert context.run(context.on.start(), _state()).unit_status == testing.ActiveStatus()
