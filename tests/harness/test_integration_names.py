"""The names that the integration tests use exist; a misspelt one must not wait for a controller.

Their sources use the constants of tests/integration/names.py, which pyright holds; here these are
held against charmcraft.yaml and the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from init_egress.config import BackendChoice, Config, ConfigError
from init_egress.kube import application
from init_egress.rule import istio
from init_egress.rule.decision import decide
from init_egress.rule.pod import Namespace, Pod
from init_egress.rule.verdict import Verdict
from tests.integration import cluster, inputs, names, pods

ROOT = Path(__file__).parents[2]
OURS = inputs.read_charmcraft(ROOT)
PROVIDER = inputs.read_charmcraft(inputs.PROVIDER)


def _members(group: type) -> Iterator[str]:
    return (value for key, value in vars(group).items() if not key.startswith("_"))


def test_the_constants_exist() -> None:
    assert OURS["name"] == names.APP
    assert set(_members(names.Endpoint)) <= {*OURS["requires"], *OURS["provides"]}
    assert set(_members(names.Option)) <= OURS["config"]["options"].keys()
    assert set(_members(names.Action)) <= OURS["actions"].keys()
    assert set(_members(names.PilotEndpoint)) <= PROVIDER["provides"].keys()


@pytest.mark.parametrize("backend", names.BACKENDS)
def test_the_kinds_that_are_looked_for_are_those_that_the_charm_writes(backend: str) -> None:
    templates = [path.read_text() for path in (ROOT / "templates" / backend).glob("*.j2")]
    kinds = {
        kind for text in templates for kind in re.findall(r"^kind: (\w+)", text, re.MULTILINE)
    }

    assert set(cluster.BACKEND_KINDS[backend]) == kinds
    assert kinds <= {*cluster.KINDS, *cluster.WORKLOAD_KINDS}


def test_the_values_are_what_the_tests_take_them_for() -> None:
    Config(
        remedy=names.Value.PROXY_USER, exclude_outbound_ip_ranges=names.Value.NARROW_RANGES
    ).settings()

    assert OURS["config"]["options"][names.Option.RANGES]["default"] == names.DEFAULT_RANGES
    assert set(names.BACKENDS) == {backend.value for backend in BackendChoice} - {
        BackendChoice.AUTO.value
    }
    with pytest.raises(ConfigError, match=names.Option.RANGES) as error:
        Config(exclude_outbound_ip_ranges=names.Value.INVALID_RANGES).settings()
    assert names.Value.INVALID_RANGES in str(error.value)


def test_the_pod_that_stands_in_for_an_injected_one_needs_the_remedy() -> None:
    namespace = Namespace("any", pods.INJECTED_NAMESPACE_LABELS)
    policy = Config().settings().policy

    def verdict(pod: dict[str, Any]) -> Verdict:
        return decide(Pod.from_dict(pod), namespace, policy).verdict

    assert verdict(pods.injected_pod()) is Verdict.NEEDS_REMEDY
    assert verdict(pods.opted_out(pods.injected_pod())) is Verdict.OPTED_OUT
    assert verdict(pods.plain_pod()) is Verdict.NOT_INJECTED


def test_the_labels_are_those_that_the_charm_writes() -> None:
    assert names.APPLICATION_LABEL == application.APPLICATION_LABEL
    assert names.MODEL_LABEL == application.MODEL_LABEL
    assert names.SKIP_LABEL == istio.SKIP_LABEL


def test_an_image_is_taken_for_every_resource() -> None:
    resources = {
        "webhook-image": {"type": "oci-image"},
        "proxy": {"type": "oci-image", "upstream-source": "example.com/proxy:1"},
        "notes": {"type": "file"},
    }

    assert inputs.images(
        {"resources": resources}, {"WEBHOOK_IMAGE_IMAGE": "example.com/webhook:1"}
    ) == {"webhook-image": "example.com/webhook:1", "proxy": "example.com/proxy:1"}
    with pytest.raises(inputs.InputError, match="WEBHOOK_IMAGE_IMAGE"):
        inputs.images({"resources": resources}, {})


def test_a_packed_charm_is_told_from_one_on_charmhub(tmp_path: Path) -> None:
    packed = tmp_path / "provider.charm"
    packed.touch()

    local = inputs.pilot({"ISTIO_PILOT": str(packed), "ISTIO_PILOT_CONFIG": "namespace=mesh"})
    assert (local.charm, local.channel, local.config) == (str(packed), None, {"namespace": "mesh"})
    published = inputs.pilot({})
    assert (published.charm, published.channel) == (names.PILOT, "1.28/stable")


@pytest.mark.parametrize(
    ("read", "environ", "says"),
    [
        (inputs.charm, {}, "charmcraft pack"),
        (inputs.charm, {"CHARM_PATH": "missing.charm"}, "CHARM_PATH=missing.charm"),
        (inputs.pilot, {"ISTIO_PILOT": "missing.charm"}, "ISTIO_PILOT=missing.charm"),
        (inputs.pilot, {"ISTIO_PILOT_CONFIG": "namespace"}, "ISTIO_PILOT_CONFIG"),
    ],
)
def test_what_is_missing_from_the_environment_is_named(
    read: Callable[[Mapping[str, str]], object], environ: dict[str, str], says: str
) -> None:
    with pytest.raises(inputs.InputError, match=says):
        read(environ)
