"""A unit of the packed charm: Juju's unit agent, as far as a charm can see it.

It runs the charm's own dispatch script with the environment that Juju gives it and with
`tests.packed.hook_tools` in the place of Juju's hook tools. What a hook wrote counts only if it
ended with 0, as with Juju (internal/worker/uniter/runner/context/context.go, Flush).
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.packed import hook_tools
from tests.packed.hook_tools import Action, Hook, Option, Relation, State, Status
from tests.packed.pack import PYTHON

APPLICATION = "istio-init-egress"
MODEL = "kubeflow"
JUJU_VERSION = "3.6.9"
# The user of a charm whose charmcraft.yaml says `charm-user: non-root`:
# caas/kubernetes/provider/constants/constants.go in github.com/juju/juju.
JUJU_USER = 170
_DEADLINE = 300  # seconds, for one hook
_contexts, _relations = itertools.count(1), itertools.count(1)


class HookError(AssertionError):
    """A hook ended with something else than 0; the message is what it said."""


@dataclass(frozen=True)
class Run:
    """One run of the dispatch script."""

    hook: str
    seconds: float
    code: int
    status: Status


class Charm:
    """A packed charm that is unpacked as Juju does it, and the hook tools beside it."""

    def __init__(self, packed: Path, folder: Path) -> None:
        self.packed = packed
        self.folder = folder / "charm"
        self.tools = folder / "tools"
        _unpack(packed, self.folder)
        give_to_juju(self.folder)
        install_tools(self.tools)
        self.actions = self._read("actions.yaml")
        self.options = self._read("config.yaml")["options"]
        metadata = self._read("metadata.yaml")
        roles = {role: metadata.get(role, {}) for role in ("requires", "provides", "peers")}
        self.endpoints = [name for endpoints in roles.values() for name in endpoints]
        self.peers = list(roles["peers"])
        self.runs: list[Run] = []

    def _read(self, name: str) -> Any:
        return yaml.safe_load((self.folder / name).read_text())


class Unit:
    """The unit 0 of the application, with a state of its own; units share the charm's folder.

    Every hook must end with 0, else it raises HookError.
    """

    def __init__(self, charm: Charm, folder: Path, kubeconfig: Path, *, leader: bool = True):
        self.charm = charm
        self.kubeconfig = kubeconfig
        self._file = folder / "juju.json"
        self._model_uuid = str(uuid.uuid4())
        # What ops keeps between hooks is the unit's, not the charm's.
        (charm.folder / ".unit-state.db").unlink(missing_ok=True)
        self._write(
            new_state(
                leader=leader,
                endpoints=charm.endpoints,
                peers=charm.peers,
                config=_defaults(charm.options),
            )
        )

    @property
    def state(self) -> State:
        """What Juju knows now."""
        state: State = json.loads(self._file.read_text())
        return state

    @property
    def status(self) -> Status:
        """The unit's status."""
        return self.state["status"]

    def update(self, **changes: Any) -> Unit:
        """Change what Juju knows, without any hook: the fields of State."""
        self._write(State(**{**self.state, **changes}))
        return self

    def deploy(self) -> Status:
        """The hooks of a new unit, in Juju's order."""
        self.hook("install")
        if self.state["leader"]:
            self.hook("leader-elected")
        self.hook("config-changed")
        return self.hook("start")

    def hook(self, name: str, relation: str = "") -> Status:
        """Run a hook, of a relation if its id is given; returns the unit's status afterwards."""
        self._dispatch(f"hooks/{name}", relation=relation)
        return self.status

    def configure(self, **options: Option) -> Status:
        """`juju config`, the options' hyphens written as underscores."""
        given = {name.replace("_", "-"): value for name, value in options.items()}
        for name, value in given.items():
            _check_option(self.charm.options, name, value)
        self.update(config={**self.state["config"], **given})
        return self.hook("config-changed")

    def integrate(self, endpoint: str, application: str) -> str:
        """`juju integrate` with an application of one unit; returns the relation's id."""
        number, remote = str(next(_relations)), f"{application}/0"
        relation = Relation(
            endpoint=endpoint, application=application, units=[], databags={application: {}}
        )
        self.update(relations={**self.state["relations"], number: relation})
        self._relation_hook("created", number)
        relations = self.state["relations"]
        relations[number]["units"] = [remote]
        relations[number]["databags"][remote] = {"ingress-address": "127.0.0.1"}
        self.update(relations=relations)
        self._relation_hook("joined", number, remote)
        self._relation_hook("changed", number, remote)
        return number

    def related(self, endpoint: str, application: str, data: Mapping[str, str]) -> str:
        """A relation as it is when all is said and done, without its hooks; returns its id."""
        number, remote = str(next(_relations)), f"{application}/0"
        relation = Relation(
            endpoint=endpoint,
            application=application,
            units=[remote],
            databags={application: dict(data), remote: {"ingress-address": "127.0.0.1"}},
        )
        self.update(relations={**self.state["relations"], number: relation})
        return number

    def receive(self, number: str, data: Mapping[str, str]) -> Status:
        """The other end's leader writes its application's data, and the unit is told."""
        relations = self.state["relations"]
        relations[number]["databags"][relations[number]["application"]] |= data
        self.update(relations=relations)
        self._relation_hook("changed", number)
        return self.status

    def remove_relation(self, number: str) -> Status:
        """`juju remove-relation`."""
        relations = self.state["relations"]
        for remote in relations[number]["units"]:
            relations[number]["units"] = []
            self.update(relations=relations)
            self._relation_hook("departed", number, remote, departing=remote)
        self._relation_hook("broken", number)
        self.update(relations={k: v for k, v in self.state["relations"].items() if k != number})
        return self.status

    def attach_resource(self, name: str, content: Mapping[str, str]) -> Status:
        """`juju attach-resource` of an image; Juju runs upgrade-charm then."""
        path = self._file.with_name(f"{name}.yaml")
        path.write_text(yaml.safe_dump(dict(content)))
        give_to_juju(path)
        self.update(resources={**self.state["resources"], name: str(path)})
        return self.hook("upgrade-charm")

    def run_action(self, name: str, **parameters: object) -> Action:
        """`juju run`, the parameters' hyphens written as underscores; returns what came of it."""
        given = {key.replace("_", "-"): value for key, value in parameters.items()}
        action = Action(
            name=name,
            parameters=_parameters(self.charm.actions[name], given),
            results={},
            failed=False,
            message="",
            log=[],
        )
        done = self._dispatch(f"actions/{name}", action=action)["action"]
        assert done is not None
        return done

    def remove(self, planned_units: int = 0) -> None:
        """`juju remove-unit`, or of the application where no units are planned any more."""
        name = self.state["unit"]
        others = {f"{APPLICATION}/{number + 1}": "active" for number in range(planned_units)}
        self.update(units={name: "dying", **others})
        for number in list(self.state["relations"]):
            self.remove_relation(number)
        self.hook("stop")
        self.hook("remove")

    def databag(self, number: str, name: str = APPLICATION) -> dict[str, str]:
        """What a unit or an application has written on a relation."""
        return self._databags(number).get(name, {})

    def _databags(self, number: str) -> dict[str, dict[str, str]]:
        return self.state["relations"][number]["databags"]

    def _relation_hook(
        self, event: str, number: str, remote: str = "", *, departing: str = ""
    ) -> None:
        endpoint = self.state["relations"][number]["endpoint"]
        path = f"hooks/{endpoint}-relation-{event}"
        self._dispatch(path, relation=number, remote=remote, departing=departing)

    def _dispatch(
        self,
        path: str,
        *,
        relation: str = "",
        remote: str = "",
        departing: str = "",
        action: Action | None = None,
    ) -> Hook:
        """Run the charm's dispatch script once; returns what ran, as it was at the end."""
        before = self.state
        other = before["relations"][relation]["application"] if relation else ""
        name = path.partition("/")[2]
        context = f"{before['unit']}-{name}-{next(_contexts)}"
        hook = Hook(
            context=context, relation=relation, application=other, unit=remote, action=action
        )
        self.update(hook=hook)
        environment = self._environment(path, hook)
        if departing:
            environment["JUJU_DEPARTING_UNIT"] = departing
        began = time.monotonic()
        done = subprocess.run(
            [*_as_juju(), self.charm.folder / "dispatch"],
            cwd=self.charm.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_DEADLINE,
            check=False,
        )
        seconds = time.monotonic() - began
        after = self.state
        assert after["hook"] is not None
        self._write(_committed(after) if done.returncode == 0 else _rolled_back(before, after))
        self.charm.runs.append(Run(path, seconds, done.returncode, after["status"]))
        if done.returncode:
            said = "\n".join((done.stdout, done.stderr, *after["log"][-20:]))
            raise HookError(f"{path} ended with {done.returncode}\n{said}")
        return after["hook"]

    def _environment(self, path: str, hook: Hook) -> dict[str, str]:
        """What Juju puts into a hook's environment (HookVars in context.go), and KUBECONFIG.

        Nothing of this process's environment is in it.
        """
        state, folder = self.state, str(self.charm.folder)
        environment = {
            "CHARM_DIR": folder,
            "JUJU_CHARM_DIR": folder,
            "JUJU_CONTEXT_ID": hook["context"],
            "JUJU_DISPATCH_PATH": path,
            "JUJU_HOOK_NAME": "" if hook["action"] else path.partition("/")[2],
            "JUJU_AGENT_SOCKET_ADDRESS": str(self._file),
            "JUJU_AGENT_SOCKET_NETWORK": "unix",
            "JUJU_UNIT_NAME": state["unit"],
            "JUJU_MODEL_UUID": self._model_uuid,
            "JUJU_MODEL_NAME": MODEL,
            "JUJU_API_ADDRESSES": "127.0.0.1:17070",
            "JUJU_MACHINE_ID": "",
            "JUJU_PRINCIPAL_UNIT": "",
            "JUJU_AVAILABILITY_ZONE": "",
            "JUJU_VERSION": JUJU_VERSION,
            "CLOUD_API_VERSION": "",
            "JUJU_CHARM_HTTP_PROXY": "",
            "JUJU_CHARM_HTTPS_PROXY": "",
            "JUJU_CHARM_FTP_PROXY": "",
            "JUJU_CHARM_NO_PROXY": "",
            "APT_LISTCHANGES_FRONTEND": "none",
            "DEBIAN_FRONTEND": "noninteractive",
            "LANG": "C.UTF-8",
            "TERM": "tmux-256color",
            "PATH": f"{self.charm.tools}:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
            # In a Pod the charm finds the API server by its service account.
            "KUBECONFIG": str(self.kubeconfig),
        }
        if hook["relation"]:
            endpoint = state["relations"][hook["relation"]]["endpoint"]
            environment |= {
                "JUJU_RELATION": endpoint,
                "JUJU_RELATION_ID": f"{endpoint}:{hook['relation']}",
                "JUJU_REMOTE_UNIT": hook["unit"],
                "JUJU_REMOTE_APP": hook["application"],
            }
        if hook["action"]:
            environment |= {
                "JUJU_ACTION_NAME": hook["action"]["name"],
                "JUJU_ACTION_UUID": "1",
                "JUJU_ACTION_TAG": "action-1",
            }
        return environment

    def _write(self, state: State) -> None:
        self._file.write_text(json.dumps(state))
        give_to_juju(self._file)


MakeUnit = Callable[..., Unit]


def new_state(
    *,
    leader: bool,
    endpoints: Sequence[str],
    peers: Sequence[str],
    config: Mapping[str, Option],
) -> State:
    """What Juju knows of the one unit of an application that was just deployed."""
    name = f"{APPLICATION}/0"
    return State(
        unit=name,
        leader=leader,
        units={name: "active"},
        address="127.0.0.1",
        endpoints=list(endpoints),
        peers=list(peers),
        config=dict(config),
        relations={},
        secrets={},
        status=Status(status="waiting", message="installing agent"),
        application_status=Status(status="unset", message=""),
        version="",
        resources={},
        log=[],
        hook=None,
    )


def give_to_juju(path: Path) -> None:
    """Make a file or a folder with all in it the charm user's, where this process may."""
    if os.geteuid() != 0:
        return
    for each in (path, *path.rglob("*")):
        os.chown(each, JUJU_USER, JUJU_USER, follow_symlinks=False)


def _as_juju() -> list[str]:
    """What runs a command as the charm's user; without root it is this process's."""
    if os.geteuid() != 0:
        return []
    user = str(JUJU_USER)
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]


def _unpack(packed: Path, folder: Path) -> None:
    """Unpack a charm with its files' modes."""
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(folder)
        for entry in archive.infolist():
            (folder / entry.filename).chmod((entry.external_attr >> 16) & 0o777)


def install_tools(folder: Path) -> None:
    """One program, and a link to it under the name of each tool."""
    folder.mkdir(mode=0o755)
    program = folder / "hook_tools.py"
    shutil.copy(hook_tools.__file__, program)
    start = folder / "jujuc"
    # The system's Python, since the charm's user may have no way to a virtual environment.
    python = PYTHON if PYTHON.exists() else sys.executable
    # -I: the charm's PYTHONPATH is not the tools'; -S: they need no packages.
    start.write_text(f'#!/bin/sh\nexec "{python}" -I -S "{program}" "$0" "$@"\n')
    start.chmod(0o755)
    for name in hook_tools.TOOLS:
        (folder / name).symlink_to(start)


def _defaults(options: Mapping[str, Mapping[str, Option]]) -> dict[str, Option]:
    return {name: o["default"] for name, o in options.items() if "default" in o}


def _check_option(options: Mapping[str, Mapping[str, Option]], name: str, value: Option) -> None:
    """Refuse what `juju config` refuses."""
    if name not in options:
        raise ValueError(f'unknown option "{name}"')
    types = {"string": str, "int": int, "float": float, "boolean": bool}
    if type(value) is not types[str(options[name]["type"])]:
        raise ValueError(f"option {name!r} expected {options[name]['type']}, got {value!r}")


def _parameters(action: Mapping[str, Any], given: Mapping[str, object]) -> dict[str, object]:
    """An action's parameters with the defaults of its schema; refuses what `juju run` refuses."""
    known: Mapping[str, Mapping[str, object]] = action.get("params", {})
    if unknown := set(given) - set(known):
        raise ValueError(f"additional property {sorted(unknown)} is not allowed")
    if missing := set(action.get("required", ())) - set(given):
        raise ValueError(f"missing properties: {sorted(missing)}")
    defaults = {name: p["default"] for name, p in known.items() if "default" in p}
    return {**defaults, **given}


def _committed(state: State) -> State:
    """What a hook that has succeeded leaves: its secrets' new values become revisions."""
    for secret in state["secrets"].values():
        if secret["pending"]:
            secret["revisions"].append(secret["pending"])
            secret["pending"] = {}
    return State(**{**state, "hook": None})


def _rolled_back(before: State, after: State) -> State:
    """What a hook that has failed leaves: what it told at once, and nothing that it wrote."""
    told: Sequence[str] = ("status", "application_status", "version", "log")
    return State(**{**before, **{name: after[name] for name in told}})
