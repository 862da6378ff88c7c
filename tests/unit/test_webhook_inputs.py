"""Which settings the webhook starts with, and what it loads."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import init_egress
from init_egress.config import Config
from init_egress.rule.policy import RemedyKind
from init_egress.rule.selector import EVERYTHING
from init_egress.webhook.inputs import InvalidInput, load_settings
from init_egress.webhook.review import Context


def written(folder: Path, text: str) -> Path:
    path = folder / "settings.yaml"
    path.write_text(text)
    return path


def test_settings_are_the_charms_options(tmp_path: Path) -> None:
    text = """
        remedy: proxy-group
        exclude-outbound-ports: "443"
        namespace-selector: team=ml
        pod-selector: app
        probe: abc
        revision: "7"
    """
    found = load_settings(written(tmp_path, text))
    assert found.context.policy.remedy is RemedyKind.PROXY_GROUP
    assert found.context.policy.ports == ("443",)
    assert found.context.policy.pods.matches({"app": ""})
    assert (found.context.probe, found.revision) == ("abc", "7")
    # A review doesn't hold the namespace's labels; the webhook configuration selects by them.
    assert found.context.policy.namespaces == EVERYTHING


def test_settings_have_the_charms_defaults_and_a_revision_of_their_own(tmp_path: Path) -> None:
    found = load_settings(written(tmp_path, ""))
    assert found.context == Context(Config().settings().policy)
    other = load_settings(written(tmp_path, "remedy: proxy-user"))
    assert found.revision != other.revision
    assert found.revision


def test_settings_come_with_notes(tmp_path: Path) -> None:
    found = load_settings(written(tmp_path, "exclude-outbound-ip-ranges: 10.0.0.1/8"))
    assert "10.0.0.0/8" in found.notes[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("remedy: magic", "'magic' is none of"),
        ("exclude-outbound-ip-ranges: 10.0.0.0/8, ::/0", "space"),
        ("namespace-selector: 'a=='b'", "settings"),
        ("namespace-selector: '=b'", "label"),
        ("exclude_outbound_ports: ''", "exclude_outbound_ports"),
        ("exclude-outbound-ports: 443", "in quotes"),
        ("probe: 1", "probe"),
        ("webhook-replicas: '2'", "whole number"),
        ("webhook-replicas: true", "whole number"),
        ("1: 2", "1"),
        ("[]", "expected a mapping"),
        ("\x00", "settings"),
    ],
)
def test_settings_that_are_wrong(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(reason)):
        load_settings(written(tmp_path, text))


def test_settings_that_are_absent(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        load_settings(tmp_path / "absent.yaml")


def test_nothing_of_the_charm_is_loaded() -> None:
    """The workload's image has none of it, nor a client of the API server."""
    code = "import sys, init_egress.webhook.server; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(init_egress.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    charm = {"charm", "ops", "lightkube", "jinja2", "httpx", "httpx2"}
    assert not charm & set(loaded)
    ours = {name.split(".")[1] for name in loaded if name.startswith("init_egress.")}
    assert ours == {"config", "rule", "telemetry", "webhook"}


def test_the_version_is_the_projects() -> None:
    project = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    assert f'version = "{init_egress.__version__}"' in project
