"""The probe Pods."""

from __future__ import annotations

from typing import Any

import pytest

from init_egress.backends.probe import CONTAINER, probe_pod
from init_egress.rule import selector
from init_egress.rule.policy import Policy
from tests.rendering import (
    metadata,
)


def test_the_probe_would_need_the_remedy_if_it_were_injected() -> None:
    probe: Any = probe_pod(Policy())
    names = [container["name"] for container in probe["spec"]["initContainers"]]
    assert names == [CONTAINER]
    assert "name" not in probe["metadata"]
    assert probe["metadata"]["generateName"].startswith("istio-init-egress-")


def test_the_probe_passes_pod_security_restricted() -> None:
    spec: Any = probe_pod(Policy())["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["initContainers"] + spec["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "runAsUser" not in container["securityContext"]


@pytest.mark.parametrize("text", ["", "a=b", "a==b,c", "a in (b,c),d!=e,!f", "x.io/y", "a="])
def test_the_probe_satisfies_a_pod_selector_where_it_can(text: str) -> None:
    pods = selector.parse(text)
    labels = metadata(probe_pod(Policy(pods=pods))).get("labels") or {}
    assert pods.matches(labels)
