"""The mesh: its namespace, from option and relations, and what its ConfigMaps say."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from init_egress.mesh.istiod import (
    Mesh,
    MeshPending,
    MeshUnknown,
    Related,
    Revision,
    namespace,
    read,
)
from init_egress.rule.istio import EXCLUDE_RANGES


def pilot(value: str = "kubeflow") -> Related:
    return Related("gateway-info", "istio-pilot", "gateway_namespace", value)


def ambient(value: str = "istio-system") -> Related:
    return Related("istio-metadata", "istio-k8s", "root_namespace", value)


# --- The namespace -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "expected"), [(pilot(), "kubeflow"), (ambient(), "istio-system")], ids=["pilot", "k8s"]
)
def test_a_relation_tells_the_namespace(end: Related, expected: str) -> None:
    assert namespace("", [end], "egress") == expected


@pytest.mark.parametrize("ends", [[], [pilot()], [pilot("")], [pilot("Not A Name")]])
def test_the_option_overrides_a_relation(ends: list[Related]) -> None:
    assert namespace("istio-system", ends, "egress") == "istio-system"


def test_without_option_and_relation_the_message_has_the_two_commands_that_help() -> None:
    with pytest.raises(MeshUnknown) as caught:
        namespace("", [], "egress")
    assert "juju integrate egress:gateway-info istio-pilot:gateway-info" in str(caught.value)
    assert "juju config egress mesh-namespace=" in str(caught.value)


@pytest.mark.parametrize("configured", ["", "kubeflow"], ids=["not-configured", "configured"])
@pytest.mark.parametrize("value", ["", "kubeflow"], ids=["not-written", "written"])
def test_two_meshes_are_one_too_many(configured: str, value: str) -> None:
    with pytest.raises(MeshUnknown) as caught:
        namespace(configured, [pilot(value), ambient(value)], "egress")
    assert "gateway-info" in str(caught.value)
    assert "istio-metadata" in str(caught.value)
    assert "juju remove-relation egress istio-k8s" in str(caught.value)


@pytest.mark.parametrize("end", [pilot(""), ambient("")], ids=["pilot", "k8s"])
def test_a_relation_that_says_nothing_yet_is_waited_for(end: Related) -> None:
    with pytest.raises(MeshPending) as caught:
        namespace("", [end], "egress")
    assert end.remote in str(caught.value)
    assert end.key in str(caught.value)
    assert end.endpoint in str(caught.value)


@pytest.mark.parametrize("value", ["Kubeflow", "a b", "-a", "a/b", "n" * 64, "kubeflow\n"])
def test_a_relation_that_writes_no_namespace_is_told_with_the_command_that_helps(
    value: str,
) -> None:
    with pytest.raises(MeshUnknown) as caught:
        namespace("", [pilot(value)], "egress")
    assert repr(value) in str(caught.value)
    assert "istio-pilot" in str(caught.value)
    assert "juju config egress mesh-namespace=" in str(caught.value)


# --- The ConfigMaps ------------------------------------------------------------------------------


def injector(**values: Any) -> dict[str, str]:
    """The data of istiod's ConfigMap for its injector."""
    return {"config": "policy: enabled\n", "values": json.dumps(values)}


def mesh_config(**metadata: str) -> dict[str, str]:
    """The data of istiod's ConfigMap for the mesh."""
    return {"mesh": json.dumps({"defaultConfig": {"proxyMetadata": metadata}})}


def revision(values: dict[str, str], **other: dict[str, str]) -> Revision:
    """What is read of the one istiod that there is."""
    found = read("m", {"istio-sidecar-injector": values, **other})
    assert found.unread == ()
    assert len(found.revisions) == 1
    return found.revisions[0]


def test_without_istiod_nothing_is_known_of_the_mesh() -> None:
    found = read("kubeflow", {"kube-root-ca.crt": {"ca.crt": ""}, "istio": mesh_config()})
    assert found == Mesh("kubeflow")
    assert found.remarks() == ["no istiod found in namespace kubeflow"]
    assert not found.injects_by_default


@pytest.mark.parametrize(
    ("values", "cni"),
    [
        pytest.param({"istio_cni": {"enabled": True}}, True, id="up-to-1.21"),
        pytest.param({"istio_cni": {"enabled": False}}, False, id="up-to-1.21-off"),
        pytest.param(
            {"istio_cni": {"enabled": False}, "pilot": {"cni": {"enabled": True}}}, True, id="1.22"
        ),
        pytest.param(
            {"istio_cni": {"enabled": True}, "pilot": {"cni": {"enabled": False}}}, True, id="1.23"
        ),
        pytest.param({"pilot": {"cni": {"enabled": True}}}, True, id="from-1.24"),
        pytest.param({"pilot": {"cni": {"enabled": False}}}, False, id="from-1.24-off"),
        pytest.param({"pilot": {"cni": None}}, False, id="cni-null"),
        pytest.param({"pilot": None, "istio_cni": None}, False, id="all-null"),
        pytest.param({}, False, id="absent"),
    ],
)
def test_where_the_cni_plugin_is_set_depends_on_istios_version(
    values: dict[str, Any], cni: bool
) -> None:
    found = revision(injector(**values))
    assert found.cni is cni
    assert ("no CNI plugin: istio-init redirects" in found.remarks()) is not cni


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        pytest.param({"ENABLE_NATIVE_SIDECARS": "true"}, "true", id="text"),
        pytest.param({"ENABLE_NATIVE_SIDECARS": True}, "true", id="boolean"),
        pytest.param({"ENABLE_NATIVE_SIDECARS": "false"}, "false", id="off"),
        pytest.param({"ENABLE_NATIVE_SIDECARS": "auto"}, "auto", id="auto"),
        pytest.param({}, "", id="left-to-istio"),
        pytest.param(None, "", id="null"),
    ],
)
def test_native_sidecars_are_read_from_istiods_environment(
    env: dict[str, object] | None, expected: str
) -> None:
    found = revision(injector(pilot={"env": env, "cni": {"enabled": True}}))
    assert found.native_sidecars == expected
    assert ("native sidecars are on" in found.remarks()) is (expected == "true")


def test_mesh_wide_excludes_are_remarked() -> None:
    values = {"excludeIPRanges": "10.0.0.0/8", "excludeOutboundPorts": "443"}
    found = revision(injector(**{"global": {"proxy": values}}))
    assert found.excluded == ("10.0.0.0/8", "443")
    assert "excludes 10.0.0.0/8,443 mesh-wide" in found.remarks()


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"global": None},
        {"global": {"proxy": None}},
        {"global": {"proxy": {"excludeIPRanges": "", "excludeOutboundPorts": None}}},
    ],
    ids=["absent", "global-null", "proxy-null", "empty"],
)
def test_without_mesh_wide_excludes_nothing_is_remarked(values: dict[str, Any]) -> None:
    found = revision(injector(pilot={"cni": {"enabled": True}}, **values))
    assert found.excluded == ()
    assert found.remarks() == []


def test_annotations_that_istio_writes_on_every_pod_are_remarked() -> None:
    annotations = {EXCLUDE_RANGES: "0.0.0.0/0", "example.com/other": "x"}
    found = revision(injector(sidecarInjectorWebhook={"injectedAnnotations": annotations}))
    assert found.injected == annotations
    assert "injectedAnnotations exclude 0.0.0.0/0 on every Pod" in found.remarks()


def test_other_injected_annotations_are_no_matter() -> None:
    values = {"injectedAnnotations": {"example.com/other": "x"}}
    found = revision(injector(pilot={"cni": {"enabled": True}}, sidecarInjectorWebhook=values))
    assert found.remarks() == []


@pytest.mark.parametrize(
    ("value", "injects_by_default"), [(True, True), (False, False), (None, False)], ids=str
)
def test_a_mesh_may_inject_namespaces_without_a_label(
    value: bool | None, injects_by_default: bool
) -> None:
    values = injector(sidecarInjectorWebhook={"enableNamespacesByDefault": value})
    assert revision(values).injects_by_default is injects_by_default
    assert read("m", {"istio-sidecar-injector": values}).injects_by_default is injects_by_default


# A template as Istio's own, one of the operator's own, and one that adds no proxy.
NAMES = (
    "metadata:\n  labels:\n    service.istio.io/canonical-name: {{ .DeploymentMeta.Name }}\n"
    "spec:\n  containers:\n  - name: istio-proxy\n"
)
NAMELESS = "spec:\n  containers:\n  - name: istio-proxy\n    image: auto\n"
PROXYLESS = "spec:\n  containers:\n  - name: app\n"


@pytest.mark.parametrize(
    ("config", "named"),
    [
        pytest.param({"templates": {"sidecar": NAMES, "gateway": NAMES}}, True, id="istios"),
        pytest.param({"templates": {"sidecar": NAMES, "grpc": PROXYLESS}}, True, id="no-proxy"),
        pytest.param({"templates": {"sidecar": NAMES, "own": NAMELESS}}, False, id="one-of-own"),
        pytest.param({"templates": {"sidecar": NAMELESS}}, False, id="all-of-own"),
        pytest.param({"templates": {"grpc": PROXYLESS}}, False, id="none-with-a-proxy"),
        pytest.param({"templates": {}}, False, id="none"),
        pytest.param({"templates": None}, False, id="null"),
        pytest.param({"templates": [NAMES]}, False, id="a-list"),
        pytest.param({"policy": "enabled"}, False, id="absent"),
        pytest.param(None, False, id="empty"),
    ],
)
def test_pods_are_known_to_be_labelled_where_every_template_with_a_proxy_does_it(
    config: object, named: bool
) -> None:
    data = {**injector(), "config": yaml.safe_dump(config) if config else ""}
    assert revision(data).labels_canonical_name is named
    assert read("m", {"istio-sidecar-injector": data}).labels_canonical_name is named


def test_templates_that_cannot_be_read_cost_no_other_knowledge() -> None:
    data = {**injector(pilot={"cni": {"enabled": True}}), "config": "templates: {"}
    assert revision(data) == Revision("", cni=True)


def test_pods_are_not_known_to_be_labelled_where_any_istiod_may_leave_it_out() -> None:
    named = {**injector(), "config": yaml.safe_dump({"templates": {"sidecar": NAMES}})}
    first = {"istio-sidecar-injector": named}
    assert read("m", {**first, "istio-sidecar-injector-canary": named}).labels_canonical_name
    assert not read(
        "m", {**first, "istio-sidecar-injector-canary": injector()}
    ).labels_canonical_name
    assert not read(
        "m", {**first, "istio-sidecar-injector-canary": {"values": "{"}}
    ).labels_canonical_name
    assert not read("m", {}).labels_canonical_name


@pytest.mark.parametrize(
    ("text", "captured"),
    [
        pytest.param('{"ISTIO_META_DNS_CAPTURE": "true"}', True, id="text"),
        pytest.param("{ISTIO_META_DNS_CAPTURE: true}", True, id="boolean"),
        pytest.param("{ISTIO_META_DNS_CAPTURE: 1}", True, id="number"),
        pytest.param('{"ISTIO_META_DNS_CAPTURE": "false"}', False, id="off"),
        pytest.param("{}", False, id="empty"),
        pytest.param("null", False, id="null"),
    ],
)
def test_dns_capture_is_remarked(text: str, captured: bool) -> None:
    config = {"mesh": f"defaultConfig:\n  proxyMetadata: {text}\nrootNamespace: istio-system\n"}
    found = revision(injector(), istio=config)
    assert found.dns_capture is captured
    assert ("DNS capture: IP ranges don't cover port 53" in found.remarks()) is captured


@pytest.mark.parametrize("data", [{}, {"values": ""}, {"values": "{}"}, {"config": "x"}])
def test_a_configmap_that_says_nothing_is_a_revision_of_which_nothing_is_known(
    data: dict[str, str],
) -> None:
    assert revision(data) == Revision("", cni=False)


@pytest.mark.parametrize("config", [{}, {"mesh": ""}, {"mesh": "{}"}, {"mesh": "a: b"}])
def test_a_mesh_config_that_says_nothing_of_dns_captures_none(config: dict[str, str]) -> None:
    assert not revision(injector(), istio=config).dns_capture


def test_each_revision_has_configmaps_of_its_own() -> None:
    found = read(
        "m",
        {
            "istio-sidecar-injector-canary": injector(
                pilot={"cni": {"enabled": True}, "env": {"ENABLE_NATIVE_SIDECARS": "true"}}
            ),
            "istio-sidecar-injector": injector(
                pilot={"cni": {"enabled": True}},
                sidecarInjectorWebhook={"enableNamespacesByDefault": True},
            ),
            "istio": mesh_config(),
            "istio-canary": mesh_config(ISTIO_META_DNS_CAPTURE="true"),
            "istio-sidecar-injectors": injector(),
            "my-istio-sidecar-injector": injector(),
        },
    )
    assert [(r.name, r.native_sidecars, r.dns_capture) for r in found.revisions] == [
        ("", "", False),
        ("canary", "true", True),
    ]
    assert found.injects_by_default
    assert found.remarks() == [
        "revision canary: native sidecars are on",
        "revision canary: DNS capture: IP ranges don't cover port 53",
    ]


def test_a_revision_without_a_mesh_config_of_its_own_does_not_take_anothers() -> None:
    maps = {
        "istio-sidecar-injector-canary": injector(),
        "istio": mesh_config(ISTIO_META_DNS_CAPTURE="true"),
    }
    assert not read("m", maps).revisions[0].dns_capture


@pytest.mark.parametrize(
    "values",
    ["{", "not json", "[]", '"text"', '{"pilot": "text"}', '{"global": {"proxy": [1]}}'],
)
def test_values_that_cannot_be_read_are_named_and_the_other_revisions_are_read(
    values: str,
) -> None:
    found = read(
        "m",
        {
            "istio-sidecar-injector": {"values": values},
            "istio-sidecar-injector-good": injector(pilot={"cni": {"enabled": True}}),
        },
    )
    assert [r.name for r in found.revisions] == ["good"]
    assert len(found.unread) == 1
    assert found.unread[0].startswith("ConfigMap m/istio-sidecar-injector can't be read: ")
    assert "\n" not in found.unread[0]
    assert found.remarks() == list(found.unread)


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "text", "- a", "defaultConfig: text"])
def test_a_mesh_config_that_cannot_be_read_is_told_in_one_line(text: str) -> None:
    found = read("m", {"istio-sidecar-injector": injector(), "istio": {"mesh": text}})
    assert len(found.unread) == 1
    assert "\n" not in found.unread[0]
