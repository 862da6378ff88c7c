"""The stand-in for Juju's hook tools refuses what Juju refuses."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from ops import hookcmds

from tests.packed.hook_tools import Action, Hook, Relation, State
from tests.packed.juju import install_tools, new_state

CONTEXT = "istio-init-egress/0-config-changed-1"
A_SECRET = "secret:" + "0123456789abcdefghij"


@dataclass(frozen=True)
class Tools:
    """The tools' folder, and the file with what Juju knows."""

    folder: Path
    file: Path

    def run(self, *command: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a tool with the environment of a hook."""
        return subprocess.run(
            [self.folder / command[0], *command[1:]],
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def state(self) -> State:
        """What Juju knows now."""
        state: State = json.loads(self.file.read_text())
        return state

    def update(self, **changes: object) -> None:
        """Change what Juju knows."""
        self.file.write_text(json.dumps({**self.state, **changes}))

    def run_action(self) -> None:
        """Let an action run from now on."""
        action = Action(name="audit", parameters={}, results={}, failed=False, message="", log=[])
        self.update(
            hook=Hook(context=CONTEXT, relation="", application="", unit="", action=action)
        )

    def commit(self) -> None:
        """Let the hook end with 0, as far as secrets are concerned."""
        secrets = self.state["secrets"]
        for secret in secrets.values():
            if secret["pending"]:
                secret["revisions"].append(secret["pending"])
                secret["pending"] = {}
        self.update(secrets=secrets)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    """The tools on the PATH, in a hook of a unit with one relation."""
    tools = Tools(tmp_path / "tools", tmp_path / "juju.json")
    install_tools(tools.folder)
    state = new_state(
        leader=True,
        endpoints=["certificates", "peers"],
        peers=["peers"],
        config={"backend": "auto", "webhook-replicas": 2},
    )
    state["hook"] = Hook(context=CONTEXT, relation="", application="", unit="", action=None)
    state["relations"] = {
        "1": Relation(
            endpoint="certificates",
            application="ca",
            units=["ca/0"],
            databags={"ca": {"certificate": "…"}, "istio-init-egress": {"request": "…"}},
        )
    }
    tools.file.write_text(json.dumps(state))
    monkeypatch.setenv("PATH", f"{tools.folder}:{os.environ['PATH']}")
    monkeypatch.setenv("JUJU_AGENT_SOCKET_ADDRESS", str(tools.file))
    monkeypatch.setenv("JUJU_CONTEXT_ID", CONTEXT)
    return tools


REFUSED_IN_A_HOOK = {
    "config-get --quiet": "option provided but not defined: --quiet",
    "config-get --format": "option needs an argument: --format",
    "config-get --format=xml": 'unknown format "xml"',
    "config-get backend --all": "cannot use argument --all together with key",
    "config-get backend remedy": 'unrecognized args: ["remedy"]',
    "status-set error": 'invalid status "error", expected one of [maintenance blocked',
    "status-set": "invalid args, require <status> [message]",
    "status-set --application=perhaps active": "invalid boolean value",
    "relation-ids": "no endpoint name specified",
    "relation-list": "no relation id specified",
    "relation-list -r certificates:9": "relation not found",
    "relation-list -r gateway-info:1": "relation not found",
    "relation-list -r first": "invalid relation id",
    "relation-get -r 1": "no unit or application specified",
    "relation-get -r 1 - ca": 'expected unit name, got application name "ca"',
    "relation-get -r 1 --app - stranger": "permission denied",
    "relation-get -r 1 - stranger/0": "permission denied",
    "relation-set -r 1 key": 'expected "key=value", got "key"',
    "relation-set -r 1 a=1 a=2": 'key "a" specified more than once',
    "action-get": "not running an action",
    "action-set a=1": "not running an action",
    "action-log hello": "not running an action",
    "action-fail": "not running an action",
    "application-version-set": "no version specified",
    "secret-add": "missing secret value or filename",
    "secret-add token": "key value",
    "secret-add ab=short": 'key "ab" not valid',
    "secret-add Token=x": 'key "Token" not valid',
    "secret-add token#base64=?": "not valid base64",
    "secret-add --owner model token=x": 'secret owner "model" not valid',
    "secret-add --rotate often token=x": 'rotate policy "often" not valid',
    "secret-add --expire tomorrow token=x": 'expire time or duration "tomorrow" not valid',
    "secret-get": "require either a secret URI or label",
    "secret-get nonsense": 'secret URI "nonsense" not valid',
    "secret-get --label absent": 'secret "absent" not found',
    f"secret-get {A_SECRET}": "not found",
    f"secret-get {A_SECRET} --peek --refresh": "specify one of --peek or --refresh",
    f"secret-info-get {A_SECRET} --label x": "specify either a secret URI or label but not both",
    f"secret-set {A_SECRET} token=x": "not found",
    f"secret-remove {A_SECRET}": "not found",
    "network-get elsewhere": 'no network config found for binding "elsewhere"',
    "resource-get webhook-image": "could not download resource",
}
REFUSED_IN_AN_ACTION = {
    "action-set result": "must be of the form key...=value",
    "action-set Result=1": 'key "Result" must start and end with lowercase alphanumeric',
    "action-set by_verdict=1": 'key "by_verdict" must start and end',
    "action-set pods.-x=1": 'key "-x" must start and end',
    "action-set stdout=1": 'cannot set reserved action key "stdout"',
    "action-set a.stderr-encoding=1": 'cannot set reserved action key "stderr-encoding"',
    "action-fail no good": "unrecognized args",
    "action-log": "no message specified",
}
REFUSED_WITHOUT_LEADING = {
    "status-set --application active": "this unit is not the leader",
    "status-get --application": "this unit is not the leader",
    "relation-get -r 1 --app - istio-init-egress": "permission denied",
    "relation-set -r 1 --app a=1": "cannot write relation settings",
    "secret-add token=x": "this unit is not the leader",
}


@pytest.mark.parametrize("command", REFUSED_IN_A_HOOK)
def test_what_juju_refuses_is_refused_and_changes_nothing(tools: Tools, command: str) -> None:
    _refuses(tools, command, REFUSED_IN_A_HOOK[command])


@pytest.mark.parametrize("command", REFUSED_IN_AN_ACTION)
def test_what_juju_refuses_an_action_is_refused(tools: Tools, command: str) -> None:
    tools.run_action()
    _refuses(tools, command, REFUSED_IN_AN_ACTION[command])


@pytest.mark.parametrize("command", REFUSED_WITHOUT_LEADING)
def test_what_only_the_leader_may_is_refused_to_others(tools: Tools, command: str) -> None:
    tools.update(leader=False)
    _refuses(tools, command, REFUSED_WITHOUT_LEADING[command])


def test_the_applications_secrets_are_the_leaders_to_change_and_everyones_to_read(
    tools: Tools,
) -> None:
    uri = hookcmds.secret_add({"token": "old"}, label="mine")
    tools.commit()
    tools.update(leader=False)

    assert hookcmds.secret_get(label="mine") == {"token": "old"}
    for command in (f"secret-set {uri} token=new", f"secret-remove {uri}"):
        _refuses(tools, command, "this unit is not the leader")
    _refuses(tools, "secret-info-get --label mine", 'secret "mine" not found')
    assert tools.run("secret-ids").stdout == ""


def test_a_tool_that_is_called_after_its_hook_is_refused(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUJU_CONTEXT_ID", "istio-init-egress/0-install-0")

    _refuses(tools, "is-leader", "bad request: expected context id")


def test_what_is_too_large_is_refused(tools: Tools) -> None:
    large = tools.file.with_name("large")
    large.write_text("x" * 1000 * 1000)
    _refuses(tools, f"secret-add token#file={large}", "too large")


def test_a_relations_data_of_strings_only_is_taken(tools: Tools) -> None:
    done = tools.run("relation-set", "-r", "1", "--file", "-", given='{"replicas": 2}')

    assert done.returncode == 1
    assert "cannot unmarshal replicas into string" in done.stderr


def _refuses(tools: Tools, command: str, words: str) -> None:
    before = tools.file.read_text()

    done = tools.run(*command.split(" "))

    assert words in done.stderr
    assert done.stderr.startswith("ERROR ")
    assert done.returncode in (1, 2)
    assert tools.file.read_text() == before
