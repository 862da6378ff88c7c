"""The Pod that would come in another's place: where that can't be told, and faults on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import msgspec
import pytest

from init_egress.existing.pod_template import LAST_APPLIED, TemplateUnknown, pod_from_template
from init_egress.kube.client import ApiClient
from init_egress.kube.errors import Forbidden
from init_egress.kube.objects import StoredPod

Json = dict[str, Any]
STATEFUL_SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u"}
SET_META = {"namespace": "team", "name": "web", "uid": "u"}


def bulk(answer: Callable[[httpx2.Request], httpx2.Response]) -> ApiClient:
    transport = httpx2.MockTransport(answer)
    return ApiClient(httpx2.Client(transport=transport, base_url="http://x"), sleep=lambda _: None)


def answering(code: int, body: Json) -> ApiClient:
    return bulk(lambda _: httpx2.Response(code, json=body))


def pod(owner: Json | None = None, **metadata: Any) -> StoredPod:
    owners = [{**owner, "controller": True}] if owner else []
    meta = {"name": "web-0", "namespace": "team", "ownerReferences": owners, **metadata}
    return msgspec.convert({"metadata": meta}, StoredPod)


@pytest.mark.parametrize("text", ["no json", "[]", "{}", '{"metadata": {}}', '{"metadata": 1}'])
def test_a_last_applied_configuration_that_is_none_is_told(text: str) -> None:
    with pytest.raises(TemplateUnknown, match="last-applied-configuration can't be read"):
        pod_from_template(answering(500, {}), pod(annotations={LAST_APPLIED: text}))


def test_what_was_applied_is_submitted_under_a_generated_name_on_any_node() -> None:
    applied = {
        "metadata": {"name": "web-0", "namespace": "team", "labels": {"a": "b"}},
        "spec": {"nodeName": "one", "containers": []},
        "status": {},
    }

    drafted = pod_from_template(
        answering(500, {}), pod(annotations={LAST_APPLIED: json.dumps(applied)})
    )

    assert drafted.pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "web-0-", "labels": {"a": "b"}},
        "spec": {"containers": []},
    }


def test_a_controller_that_is_gone_is_told() -> None:
    gone = answering(404, {"message": "not found"})

    with pytest.raises(TemplateUnknown, match="StatefulSet web, which made it, is gone"):
        pod_from_template(gone, pod(STATEFUL_SET))


def test_a_controller_without_a_template_is_told() -> None:
    owner = {**STATEFUL_SET, "apiVersion": "v1", "kind": "ReplicationController"}

    with pytest.raises(TemplateUnknown, match="ReplicationController web has no template"):
        pod_from_template(answering(200, {"metadata": SET_META, "spec": {}}), pod(owner))


def test_a_controller_that_may_not_be_read_is_a_fault() -> None:
    refusing = answering(403, {"message": 'User "x" cannot get resource "statefulsets"'})

    with pytest.raises(Forbidden):
        pod_from_template(refusing, pod(STATEFUL_SET))


def test_a_claim_takes_the_place_of_a_volume_of_its_name_and_bears_the_pods_own() -> None:
    spec = {
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp"}]},
        },
        "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
    }
    found = answering(
        200, {"metadata": SET_META, "spec": spec, "status": {"updateRevision": "web-2"}}
    )
    labels = {"controller-revision-hash": "web-1", "apps.kubernetes.io/pod-index": "0", "x": "y"}

    drafted = pod_from_template(found, pod(STATEFUL_SET, labels=labels))

    assert drafted.pod["spec"] == {
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}},
            {"name": "tmp"},
        ]
    }
    assert drafted.labels == {
        "app": "web",
        "controller-revision-hash": "web-2",
        "apps.kubernetes.io/pod-index": "0",
    }
