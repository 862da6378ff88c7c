"""Where the packets of a Pod go, with the remedy and without it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping

import pytest
from lightkube import ApiError
from lightkube.types import PatchType

from init_egress.backends.backend import BackendKind
from init_egress.config import Config, ConfigError
from init_egress.kube.kinds import POD
from init_egress.rule import istio
from tests.dataplane import pods, reference
from tests.dataplane.cni import CniError, Rules, Stack
from tests.dataplane.conftest import Lab
from tests.dataplane.namespaces import Identity, Target
from tests.dataplane.outside import NEAR_RANGES, WORD
from tests.dataplane.pods import APP, INIT, PROXY, Sandbox
from tests.dataplane.promise import (
    CASES,
    DESTINATIONS,
    INBOUND,
    MEANING,
    MESHES,
    REFUSED,
    REMEDIES,
    Case,
    Packet,
)
from tests.dataplane.reference import Seen
from tests.functional.installation import Installation
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.istio import Mesh, Meshes

MESH = {"istio-injection": "enabled"}
ANY_MESH = MESHES[CASES[-1].capture]  # the one that is there


@pytest.mark.parametrize("case", CASES, ids=str)
def test_packets_go_where_the_promise_says(
    case: Case,
    lab: Lab,
    meshes: Meshes,
    installation: Installation,
    namespace: MakeNamespace,
    seen: Seen,
) -> None:
    mesh = MESHES[case.capture]
    meshes.use(mesh)
    _bring_about(installation, REMEDIES[case.remedy], mesh)
    submitted = pods.manifest("sends-packets", case.stack)
    with (
        pods.created(lab.client, namespace(MESH), submitted) as pod,
        lab.sandbox(pod, case.stack, case.rules) as sandbox,
    ):
        init, app, proxy = (pods.identity(pod, name) for name in (INIT, APP, PROXY))
        control = _ask(sandbox, proxy)
        found = _observe(lab, sandbox, INIT, init)
        with sandbox.sidecar(proxy):
            found |= _observe(lab, sandbox, APP, app)

    # Who is never redirected reaches everything, so whatever is cut off is so by a redirection.
    assert set(control.values()) == {WORD}
    seen.packets[case], seen.identities[case] = found, init
    assert found == case.promised()


def _bring_about(
    installation: Installation, options: Mapping[str, str] | None, mesh: Mesh
) -> None:
    if options is None:
        installation.remove()
    else:
        installation.use(BackendKind.NATIVE, options, mesh)


def _observe(lab: Lab, sandbox: Sandbox, container: str, identity: Identity) -> dict[Packet, str]:
    """What becomes of all that a container sends, and of what comes in meanwhile."""
    inbound = [Target("tcp", address, pods.INBOUND_PORT) for address in sandbox.addresses.values()]
    answers = dict(zip(sandbox.addresses, lab.outside.ask(inbound), strict=True))
    words = {(family, INBOUND): answer for family, answer in answers.items()}
    words |= _ask(sandbox, identity)
    return {
        Packet(container, family, column): MEANING.get(word, word)
        for (family, column), word in words.items()
    }


def _ask(sandbox: Sandbox, identity: Identity) -> dict[tuple[str, str], str]:
    """What answers at every destination, by address family and destination."""
    asked = list(itertools.product(sandbox.addresses, DESTINATIONS))
    targets = [destination.target(family) for family, destination in asked]
    words = sandbox.namespace.ask(targets, identity)
    return {(f, str(d)): word for (f, d), word in zip(asked, words, strict=True)}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_istiod_denies_a_pod_whose_author_writes(
    value: str, lab: Lab, meshes: Meshes, namespace: MakeNamespace, seen: Seen
) -> None:
    meshes.use(ANY_MESH)
    submitted = pods.manifest("refused", Stack.IPV4, {istio.EXCLUDE_RANGES: value})
    with (
        pytest.raises(ApiError, match="denied the request") as caught,
        pods.created(lab.client, namespace(MESH), submitted),
    ):
        pass
    seen.denials[value] = caught.value.status.message or ""


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("rules", Rules, ids=lambda rules: rules.value)
def test_the_plugin_fails_where_a_later_hand_writes(
    value: str, rules: Rules, lab: Lab, meshes: Meshes, namespace: MakeNamespace, seen: Seen
) -> None:
    meshes.use(ANY_MESH)
    where = namespace(MESH)
    with pods.created(lab.client, where, pods.manifest("annotated", Stack.IPV4)) as pod:
        change = {"metadata": {"annotations": {istio.EXCLUDE_RANGES: value}}}
        lab.client.patch(POD, "annotated", change, namespace=where, patch_type=PatchType.MERGE)
        with pytest.raises(CniError) as caught, lab.sandbox(pod, Stack.IPV4, rules):
            pass
    seen.failures[value] = str(caught.value)


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_the_charm_takes_no_option_that_istio_would_refuse(value: str) -> None:
    with pytest.raises(ConfigError):
        Config.from_options({"exclude-outbound-ip-ranges": value}).settings()


def test_a_space_that_the_mesh_writes_is_mended_and_the_pod_gets_its_network(
    lab: Lab,
    meshes: Meshes,
    installation: Installation,
    namespace: MakeNamespace,
) -> None:
    """injectedAnnotations are checked by nobody but the plugin."""
    annotation = istio.EXCLUDE_RANGES.replace(".", r"\.")
    key = f"values.sidecarInjectorWebhook.injectedAnnotations.{annotation}"
    mesh = Mesh(values={key: REFUSED["a space"]})
    meshes.use(mesh)
    submitted = pods.manifest("mended", Stack.DUAL)

    installation.remove()
    with (
        pods.created(lab.client, namespace(MESH), submitted) as pod,
        pytest.raises(CniError, match="excludeIPCidrs"),
        lab.sandbox(pod, Stack.DUAL, Rules.IPTABLES),
    ):
        pass

    installation.use(BackendKind.NATIVE, {"exclude-outbound-ip-ranges": NEAR_RANGES}, mesh)
    with (
        pods.created(lab.client, namespace(MESH), submitted) as pod,
        lab.sandbox(pod, Stack.DUAL, Rules.IPTABLES) as sandbox,
    ):
        words = _ask(sandbox, pods.identity(pod, INIT))
    for family in Stack.DUAL.families:
        assert words[family, "near:80/tcp"] == WORD
        assert words[family, "far:80/tcp"] == "refused"


def test_the_documented_tables_are_what_this_run_has_seen(seen: Seen) -> None:
    if not seen.whole:
        pytest.skip("only a part of the promise was run")
    if os.environ.get(reference.UPDATE):
        reference.PATH.write_text(reference.page(seen))
    assert reference.page(seen) == reference.PATH.read_text(), (
        f"make dataplane {reference.UPDATE}=1 writes {reference.PATH.name} again"
    )
