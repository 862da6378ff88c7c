"""The charm's event handlers against a real API server, with and without a real istiod."""

from __future__ import annotations

import pytest
import yaml
from lightkube import Client
from lightkube.core.exceptions import ApiError
from ops import testing

from init_egress.kube.client import FIELD_MANAGER
from init_egress.kube.kinds import NATIVE_BINDING, NATIVE_POLICY, POD
from tests.functional.load import A_POD, creating_pods
from tests.functional.unit import GATEWAY_INFO, Unit, objects
from tests.testbed.control_plane import STRANGER, ControlPlane
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.istio import Istiod, Mesh, Meshes
from tests.testbed.kyverno import Kyverno
from tests.testbed.process import wait_until

NAME = "istio-init-egress.kubeflow"
NATIVE = (NATIVE_POLICY, NATIVE_BINDING)
AMBIENT = testing.Relation(
    "istio-metadata", remote_app_name="istio-k8s", remote_app_data={"root_namespace": "mesh"}
)
# The cluster is shared with other tests, whose namespaces of the mesh are none of these tests'.
HERE = "suite=charm"
IN_THE_MESH = {"istio-injection": "enabled", "suite": "charm"}


@pytest.fixture
def team(namespace: MakeNamespace) -> str:
    """A namespace of the mesh."""
    return namespace(IN_THE_MESH)


# What keeps the charm from acting, and what helps


def test_without_a_mesh_the_status_names_both_commands_that_help(unit: Unit) -> None:
    status = unit.having(relations=frozenset()).run("install")

    assert status.name == "blocked"
    assert (
        "juju integrate istio-init-egress:gateway-info istio-pilot:gateway-info" in status.message
    )
    assert "juju config istio-init-egress mesh-namespace=" in status.message


def test_a_relation_without_data_is_waited_for_by_name(unit: Unit) -> None:
    silent = testing.Relation("gateway-info", remote_app_name="istio-pilot")

    status = unit.having(relations={silent}).run("config_changed")

    assert status.name == "waiting"
    assert "istio-pilot to write gateway_namespace on gateway-info" in status.message


@pytest.mark.parametrize("endpoint", ["gateway-info", "istio-metadata"])
def test_a_namespace_that_is_none_is_shown_as_it_was_written(unit: Unit, endpoint: str) -> None:
    key = {"gateway-info": "gateway_namespace", "istio-metadata": "root_namespace"}[endpoint]
    wrong = testing.Relation(
        endpoint, remote_app_name="other", remote_app_data={key: "Not A Namespace"}
    )

    status = unit.having(relations={wrong}).run("config_changed")

    assert status.name == "blocked"
    assert f"other wrote {key}='Not A Namespace' on {endpoint}" in status.message


def test_partial_data_of_an_ambient_mesh_is_waited_for(unit: Unit) -> None:
    partial = testing.Relation(
        "istio-metadata", remote_app_name="istio-k8s", remote_app_data={"other": "x"}
    )

    status = unit.having(relations={partial}).run("config_changed")

    assert status.name == "waiting"
    assert "istio-k8s to write root_namespace" in status.message


def test_two_meshes_at_once_are_one_too_many(unit: Unit) -> None:
    status = unit.having(relations={GATEWAY_INFO, AMBIENT}).run("config_changed")

    assert status.name == "blocked"
    assert "gateway-info and istio-metadata are both related" in status.message
    assert "juju remove-relation istio-init-egress istio-k8s" in status.message


def test_the_mesh_of_an_ambient_istio_is_learnt_from_its_relation(unit: Unit) -> None:
    status = unit.having(relations={AMBIENT}).run("config_changed")

    assert status.name == "active"
    assert "no istiod found in namespace mesh" in status.message


def test_the_option_overrides_the_relation(unit: Unit) -> None:
    status = unit.configured(mesh_namespace="elsewhere")

    assert "no istiod found in namespace elsewhere" in status.message


def test_the_webhook_without_its_image_names_the_command_that_brings_it(unit: Unit) -> None:
    status = unit.configured(backend="webhook")

    assert status.name == "blocked"
    assert "juju attach-resource istio-init-egress webhook-image=" in status.message


def test_without_rights_the_status_names_the_command_and_heals_later(
    unit: Unit, api_server: ControlPlane, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig(STRANGER)))
    status = unit.run("install")
    assert status.name == "blocked"
    assert "juju trust istio-init-egress --scope=cluster" in status.message

    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig()))
    assert unit.run("update_status").name == "active"
    assert objects(client, *NATIVE)


def test_an_api_server_that_does_not_answer_is_waited_for(
    unit: Unit, api_server: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    _point_nowhere(api_server, monkeypatch)

    status = unit.run("update_status")

    assert status.name == "waiting"
    assert "can't list mutatingadmissionpolicies" in status.message


# What it keeps on the cluster


def test_invalid_options_are_named_and_what_is_in_force_stays(unit: Unit, client: Client) -> None:
    unit.configured(exclude_outbound_ip_ranges="10.0.0.0/8")
    before = client.get(NATIVE_POLICY, NAME)["spec"]

    status = unit.configured(exclude_outbound_ip_ranges="10.0.0.0/8,1.2.3.4", backend="best")

    assert status.name == "blocked"
    assert "exclude-outbound-ip-ranges: '1.2.3.4' is a bare address" in status.message
    assert "backend: 'best' is none of auto, native, kyverno, webhook" in status.message
    assert client.get(NATIVE_POLICY, NAME)["spec"] == before


def test_a_mesh_that_is_lost_leaves_what_is_in_force(unit: Unit, client: Client) -> None:
    unit.run("config_changed")
    before = objects(client, *NATIVE)

    assert unit.having(relations=frozenset()).run("config_changed").name == "blocked"

    assert objects(client, *NATIVE) == before


def test_a_relation_that_breaks_is_no_mesh_any_more(unit: Unit) -> None:
    unit.run("config_changed")
    context = unit.context

    state = context.run(context.on.relation_broken(GATEWAY_INFO), unit.state)

    assert state.unit_status.name == "blocked"
    assert "mesh unknown" in state.unit_status.message


def test_a_unit_that_does_not_lead_says_so_and_does_nothing(unit: Unit, client: Client) -> None:
    status = unit.having(leader=False).run("config_changed")

    assert status.name == "active"
    assert status.message == "standby: not the leader"
    assert objects(client, *NATIVE) == []


@pytest.mark.parametrize("event", ["update_status", "leader_elected", "start", "upgrade_charm"])
def test_what_somebody_deleted_or_changed_is_repaired(
    unit: Unit, client: Client, event: str
) -> None:
    unit.run("install")
    whole = objects(client, *NATIVE)
    spec = client.get(NATIVE_POLICY, NAME)["spec"]
    client.delete(NATIVE_BINDING, f"{NAME}.namespace")
    client.patch(NATIVE_POLICY, NAME, {"spec": {"failurePolicy": "Fail"}}, field_manager="other")

    unit.run(event)

    assert objects(client, *NATIVE) == whole
    assert client.get(NATIVE_POLICY, NAME)["spec"] == spec


def test_labels_that_juju_adds_are_lived_with(unit: Unit, client: Client) -> None:
    unit.run("install")
    labels = {"app.kubernetes.io/managed-by": "juju", "model.juju.is/name": "kubeflow"}
    client.patch(NATIVE_POLICY, NAME, {"metadata": {"labels": labels}}, field_manager="juju")

    assert unit.run("update_status").name == "active"

    stored = client.get(NATIVE_POLICY, NAME).metadata
    assert stored
    assert labels.items() <= (stored.labels or {}).items()


def test_a_second_application_is_left_alone(unit: Unit, client: Client) -> None:
    unit.run("install")
    foreign = {**client.get(NATIVE_POLICY, NAME), "metadata": {"name": "foreign"}}
    client.create(NATIVE_POLICY.from_dict(foreign))

    unit.having(planned_units=0).run("remove")

    assert client.get(NATIVE_POLICY, "foreign").metadata
    client.delete(NATIVE_POLICY, "foreign")


def test_the_policy_shown_is_the_policy_applied(unit: Unit, client: Client) -> None:
    unit.configured(exclude_outbound_ports="8200")

    unit.context.run(unit.context.on.action("show-policy"), unit.state)

    results = unit.context.action_results or {}
    shown = list(yaml.safe_load_all(results["policy"]))
    assert results["backend"] == "native"
    assert sorted(f"{i['kind']} {i['metadata']['name']}" for i in shown) == objects(
        client, *NATIVE
    )
    for item in shown:
        kind = NATIVE_POLICY if item["kind"] == "MutatingAdmissionPolicy" else NATIVE_BINDING
        stored = client.get(kind, item["metadata"]["name"])
        # Applied again by the charm's field manager, it would add nothing and take nothing away.
        again = client.apply(kind.from_dict(item), field_manager=FIELD_MANAGER, dry_run=True)
        assert again["metadata"]["generation"] == stored["metadata"]["generation"]
        assert again["metadata"]["labels"] == stored["metadata"]["labels"]


def test_an_action_fails_with_the_words_of_the_status(unit: Unit) -> None:
    unit.having(config={"remedy": "magic"})

    with pytest.raises(testing.ActionFailed, match="remedy: 'magic' is none of"):
        unit.context.run(unit.context.on.action("show-policy"), unit.state)


def test_only_the_webhook_has_a_certificate_to_rotate(unit: Unit) -> None:
    with pytest.raises(testing.ActionFailed, match="only backend=webhook has a certificate"):
        unit.context.run(unit.context.on.action("rotate-certificates"), unit.state)


def test_only_the_leader_rotates(unit: Unit) -> None:
    unit.having(leader=False)

    with pytest.raises(testing.ActionFailed, match=r"juju run istio-init-egress/leader rotate"):
        unit.context.run(unit.context.on.action("rotate-certificates"), unit.state)


# The end


def test_the_last_unit_leaves_nothing_behind(unit: Unit, client: Client) -> None:
    unit.run("install")
    assert objects(client, *NATIVE)

    unit.having(planned_units=0).run("remove")

    assert objects(client, *NATIVE) == []


def test_a_unit_of_several_leaves_all_in_force(unit: Unit, client: Client) -> None:
    unit.run("install")
    before = objects(client, *NATIVE)

    unit.having(planned_units=2).run("remove")

    assert objects(client, *NATIVE) == before


def test_the_removal_goes_on_without_rights_and_without_a_cluster(
    unit: Unit, api_server: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit.having(planned_units=0)
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig(STRANGER)))
    unit.run("remove")
    _point_nowhere(api_server, monkeypatch)
    unit.run("remove")
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    unit.run("remove")


def test_the_removal_goes_on_with_a_configuration_that_is_wrong(
    unit: Unit, client: Client
) -> None:
    unit.run("install")

    unit.having(planned_units=0, config={"remedy": "magic"}, relations=frozenset()).run("remove")

    assert objects(client, *NATIVE) == []


# Effect, on a mesh


def test_active_means_that_a_pod_comes_back_changed(
    unit: Unit, istiod: Istiod, namespace: MakeNamespace
) -> None:
    team = namespace(IN_THE_MESH)

    status = unit.configured(namespace_selector=HERE, exclude_outbound_ports="8200")

    assert status.name == "active"
    assert status.message.startswith(
        "native: exclude-ip-ranges 0.0.0.0/0,::/0 and ports 8200; verified in "
    )
    assert team in status.message


def test_without_a_namespace_of_the_mesh_the_status_says_what_is_not_verified(
    unit: Unit, istiod: Istiod
) -> None:
    status = unit.configured(namespace_selector=HERE)

    assert status.name == "active"
    assert "not verified: no namespace of the mesh yet" in status.message


def test_a_namespace_where_istio_does_not_inject_verifies_nothing(
    unit: Unit, namespace: MakeNamespace
) -> None:
    namespace({"istio.io/rev": "of-nobody", "suite": "charm"})

    status = unit.configured(namespace_selector=HERE)

    assert status.name == "active"
    assert "not verified: a Pod in" in status.message
    assert "not-injected" in status.message


def test_a_namespace_that_takes_no_pod_is_passed_over(
    unit: Unit, istiod: Istiod, namespace: MakeNamespace, client: Client, cluster: ControlPlane
) -> None:
    full, free = namespace(IN_THE_MESH), namespace(IN_THE_MESH)
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "full", "namespace": full},
        "spec": {"hard": {"pods": "0"}},
    }
    cluster.apply([quota])
    wait_until(lambda: _is_refused(client, full), "the quota counts")

    status = unit.configured(namespace_selector=HERE)

    assert f"verified in {free}" in status.message


def test_a_narrowed_selector_of_pods_is_verified_by_a_pod_that_it_selects(
    unit: Unit, istiod: Istiod, namespace: MakeNamespace
) -> None:
    namespace(IN_THE_MESH)

    status = unit.configured(
        namespace_selector=HERE, pod_selector="team in (ml,data),tier,!legacy"
    )

    assert "verified in" in status.message


def test_with_native_sidecars_the_status_says_who_still_needs_the_remedy(
    unit: Unit, meshes: Meshes, namespace: MakeNamespace
) -> None:
    meshes.use(Mesh(native_sidecars=True))
    team = namespace(IN_THE_MESH)

    status = unit.configured(namespace_selector=HERE)

    assert status.name == "active"
    assert f"verified in {team}" in status.message
    assert "native sidecars: only Pods that opt out of them need it" in status.message


def test_what_the_mesh_does_by_itself_is_said(
    unit: Unit, meshes: Meshes, namespace: MakeNamespace
) -> None:
    """As the istio-pilot charm configures it once its two CNI options are set."""
    key = "values.sidecarInjectorWebhook.injectedAnnotations"
    annotation = r"traffic\.sidecar\.istio\.io/excludeOutboundIPRanges"
    values = {
        f"{key}.{annotation}": "0.0.0.0/0",
        "values.global.proxy.excludeIPRanges": "10.0.0.0/8",
        "meshConfig.defaultConfig.proxyMetadata.ISTIO_META_DNS_CAPTURE": "true",
    }
    meshes.use(Mesh(values=values))
    team = namespace(IN_THE_MESH)

    status = unit.configured(namespace_selector=HERE)

    assert status.name == "active"
    assert f"verified in {team}" in status.message
    assert "excludes 10.0.0.0/8 mesh-wide" in status.message
    assert "injectedAnnotations exclude 0.0.0.0/0 on every Pod" in status.message
    assert "DNS capture: IP ranges don't cover port 53" in status.message


def test_without_the_cni_plugin_there_is_nothing_to_verify_and_the_status_says_why(
    unit: Unit, meshes: Meshes, namespace: MakeNamespace
) -> None:
    meshes.use(Mesh(cni=False))
    namespace(IN_THE_MESH)

    status = unit.configured(namespace_selector=HERE)

    assert status.name == "active"
    assert "not verified" in status.message
    assert "not-redirected" in status.message
    assert "no CNI plugin: istio-init redirects" in status.message


# Backends


def test_kyverno_says_of_itself_that_its_policy_ends(
    unit: Unit, istiod: Istiod, kyverno: Kyverno, team: str
) -> None:
    status = unit.configured(backend="kyverno")

    assert status.name == "active"
    assert status.message.startswith("kyverno (ClusterPolicy): ")
    assert "kyverno.io/v1 ClusterPolicy is deprecated" in status.message


def test_no_pod_is_created_without_the_remedy_while_the_backend_changes(
    unit: Unit,
    istiod: Istiod,
    kyverno: Kyverno,
    team: str,
    client: Client,
    cluster: ControlPlane,
) -> None:
    native, cluster_policy, mutating_policy = (
        {"backend": "native"},
        {"backend": "kyverno", "kyverno_policy_kind": "ClusterPolicy"},
        {"backend": "kyverno", "kyverno_policy_kind": "MutatingPolicy"},
    )
    assert unit.configured(**native).name == "active"
    every_direction = (
        cluster_policy, mutating_policy, native, mutating_policy, cluster_policy, native
    )  # fmt: skip

    with creating_pods(cluster, team) as created:
        for options in every_direction:
            status = unit.configured(**options)
            assert status.name == "active", status.message
            assert "verified in" in status.message

    assert len(created) > 50
    assert [pod for pod in created if pod != "0.0.0.0/0,::/0"] == []
    assert {name.split()[0] for name in objects(client)} == {
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    }


def test_a_change_of_ranges_never_leaves_a_pod_without(
    unit: Unit,
    istiod: Istiod,
    team: str,
    client: Client,
    cluster: ControlPlane,
) -> None:
    unit.configured(exclude_outbound_ip_ranges="10.0.0.0/8")

    with creating_pods(cluster, team) as created:
        for ranges in ("10.0.0.0/8,fd00::/8", "192.168.0.0/16", "10.0.0.0/8"):
            assert "verified in" in unit.configured(exclude_outbound_ip_ranges=ranges).message

    known = {"10.0.0.0/8", "10.0.0.0/8,fd00::/8", "192.168.0.0/16"}
    assert len(created) > 10
    assert set(created) <= known


def _is_refused(client: Client, namespace: str) -> bool:
    try:
        client.create(POD.from_dict(A_POD), namespace=namespace, dry_run=True)
    except ApiError:
        return True
    return False


def _point_nowhere(api_server: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubeconfig whose API server is at a port where nobody listens."""
    config = yaml.safe_load(api_server.kubeconfig().read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    path = api_server.folder / "nowhere.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
