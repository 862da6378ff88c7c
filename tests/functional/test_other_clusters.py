"""Clusters that serve something else: each of these tests has an API server of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml
from lightkube import Client
from ops import testing

from charm import IstioInitEgressCharm
from init_egress.kube.kinds import CLUSTER_POLICY, MUTATING_POLICY, NATIVE_BINDING, NATIVE_POLICY
from tests.functional.unit import APPLICATION, Unit, objects
from tests.testbed import build
from tests.testbed import kyverno as kyverno_component
from tests.testbed.control_plane import (
    WITHOUT_MUTATING_ADMISSION_POLICY,
    ControlPlane,
    Manifest,
    control_plane,
    controller_manager,
)
from tests.testbed.istio import istiod
from tests.testbed.network import Network

NAME = "istio-init-egress.kubeflow"
TEAM = "team"
# The kinds are served as on any server of this version, but the plugin does not run.
SWITCHED_OFF = ("--feature-gates=MutatingAdmissionPolicy=false",)


@contextmanager
def _mesh(network: Network, *flags: str) -> Iterator[tuple[ControlPlane, Client]]:
    with (
        control_plane(network, flags=flags) as plane,
        controller_manager(plane),
        istiod(plane),
        plane.client() as client,
    ):
        plane.create_namespace(TEAM, {"istio-injection": "enabled"})
        yield plane, client


def _kyvernos_definitions() -> list[Manifest]:
    text = build.product(build.KYVERNO, "kyverno.yaml").read_text()
    documents = yaml.safe_load_all(text)
    return [item for item in documents if item and item["kind"] == "CustomResourceDefinition"]


def _unit(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Unit:
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig()))
    return Unit(testing.Context(IstioInitEgressCharm, app_name=APPLICATION))


@pytest.mark.usefixtures("api_server", "meshes", "kyverno")  # so that they are built
def test_before_kubernetes_1_36_auto_takes_kyverno_as_soon_as_it_is_there(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _mesh(network, *WITHOUT_MUTATING_ADMISSION_POLICY) as (plane, client):
        unit = _unit(plane, monkeypatch)

        alone = unit.run("install")
        native = unit.configured(backend="native")
        kyverno = unit.configured(backend="kyverno")

        assert alone.name == native.name == kyverno.name == "blocked"
        assert "juju attach-resource istio-init-egress webhook-image=" in alone.message
        assert "does not serve MutatingAdmissionPolicy" in native.message
        assert "juju config istio-init-egress backend=auto" in native.message
        assert "install Kyverno" in kyverno.message

        with kyverno_component.kyverno(plane):
            status = unit.configured(backend="auto")
            assert status.name == "active"
            assert status.message.startswith("kyverno (ClusterPolicy): ")
            assert f"verified in {TEAM}" in status.message
            assert objects(client, CLUSTER_POLICY) == [f"ClusterPolicy {NAME}"]

            unit.having(planned_units=0).run("remove")
            assert objects(client, CLUSTER_POLICY, MUTATING_POLICY) == []


@pytest.mark.usefixtures("api_server", "meshes", "kyverno")
def test_a_kyverno_without_cluster_policies_gets_a_mutating_policy(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        _mesh(network, *WITHOUT_MUTATING_ADMISSION_POLICY) as (plane, client),
        kyverno_component.kyverno(plane, without=kyverno_component.OLD_POLICIES),
    ):
        status = _unit(plane, monkeypatch).run("install")

        assert status.name == "active"
        assert status.message.startswith("kyverno (MutatingPolicy): ")
        assert f"verified in {TEAM}" in status.message
        assert objects(client, MUTATING_POLICY) == [f"MutatingPolicy {NAME}"]


@pytest.mark.usefixtures("api_server", "meshes")
def test_a_native_policy_that_is_served_but_not_in_effect_is_never_active(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _mesh(network, *SWITCHED_OFF) as (plane, _):
        status = _unit(plane, monkeypatch).run("install")

        assert status.name == "waiting"
        assert f"native: applied, but not in effect yet ({TEAM})" in status.message


@pytest.mark.usefixtures("api_server", "meshes", "kyverno")
def test_a_successor_that_nobody_carries_out_leaves_what_works(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kyverno's kinds are served, but Kyverno does not run."""
    with _mesh(network) as (plane, client):
        unit = _unit(plane, monkeypatch)
        assert unit.run("install").name == "active"
        plane.apply(_kyvernos_definitions())

        status = unit.configured(backend="kyverno")

        assert status.name == "waiting"
        assert "what was in force before stays" in status.message
        assert objects(client, NATIVE_POLICY)
        assert objects(client, NATIVE_BINDING)

        assert unit.configured(backend="native").name == "active"
        assert objects(client, CLUSTER_POLICY) == []
