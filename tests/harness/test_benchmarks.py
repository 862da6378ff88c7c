"""The measurements measure what they say; how fast anything is, no test asserts."""

from __future__ import annotations

import base64
import json
import os
import shutil
from pathlib import Path

import jsonpatch
import pytest

from benchmarks import floods, servers
from benchmarks import server as benchmark
from benchmarks.reviews import pod, review
from init_egress.rule import istio

TOOLS = {"wrk": "Debian's package wrk", "taskset": "Debian's package util-linux"}
pytestmark = pytest.mark.skipif(
    not all(shutil.which(tool) for tool in TOOLS),
    reason=f"needs {' and '.join(TOOLS.values())}",
)


@pytest.mark.parametrize("size", benchmark.SIZES)
def test_the_pod_has_its_size(size: int) -> None:
    assert len(json.dumps(pod(size), separators=(",", ":"))) == size


def test_the_webhook_remedies_the_pod_and_the_empty_handler_does_not(tmp_path: Path) -> None:
    servers.write_certificate(tmp_path)
    with servers.webhook(tmp_path, ["10.0.0.0/8"]) as webhook, servers.empty(tmp_path) as empty:
        remedied = json.loads(webhook.answer(review(8_000)))["response"]
        nothing = json.loads(empty.answer(review(8_000)))["response"]
    patch = json.loads(base64.b64decode(remedied["patch"]))
    annotations = jsonpatch.apply_patch(pod(8_000), patch)["metadata"]["annotations"]
    assert annotations[istio.EXCLUDE_RANGES] == "10.0.0.0/8"
    assert (nothing["uid"], nothing["allowed"]) == (remedied["uid"], True)
    assert "patch" not in nothing


@pytest.mark.nightly
def test_a_quick_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main(["--quick", "--output", str(tmp_path)]) == 0
    text = (tmp_path / "server.md").read_text()
    assert text in capsys.readouterr().out
    assert "| 2 kB, 1, webhook |" in text
    assert "| 2 kB, 1, empty handler |" in text
    assert "| 1 range, webhook |" in text


@pytest.mark.nightly
def test_a_flood_is_measured_beside_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "half TLS handshakes"
    monkeypatch.setattr(floods, "FLOODS", {name: floods.FLOODS[name]})
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)  # this process goes on
    assert floods.main(["--seconds", "1", "--output", str(tmp_path)]) == 0
    lines = (tmp_path / "floods.md").read_text().splitlines()
    assert "\n".join(lines) in capsys.readouterr().out
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| no flood", f"| {name}"]
