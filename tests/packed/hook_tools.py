"""A stand-in for Juju's hook tools: one program, called by each tool's name.

It needs nothing but Python's standard library, so it runs wherever it is copied to, as any user.
What Juju would know is a State in one file, which `JUJU_AGENT_SOCKET_ADDRESS` names in place of
the unit agent's socket; `tests.packed.juju` writes it and says which hook runs. A tool that is
refused changes nothing.

It has the tools that this charm and its libraries call; a hook that calls another fails.
It refuses what Juju 3.6 refuses, in Juju's words. Sources, in github.com/juju/juju: the tools in
internal/worker/uniter/runner/jujuc, what they call in internal/worker/uniter/runner/context;
other files are named where they are the source.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import IO, TypedDict

Option = str | bool | int | float
Results = dict[str, "str | Results"]


class Status(TypedDict):
    """The status of a unit or of an application."""

    status: str
    message: str


class Relation(TypedDict):
    """One relation of the application's."""

    endpoint: str
    application: str  # at the other end
    units: list[str]  # at the other end
    databags: dict[str, dict[str, str]]  # by the name of the unit or application, of both ends


class Secret(TypedDict):
    """A secret of the application's or of the unit's."""

    owner: str  # "application" or "unit"
    label: str
    description: str
    expire: str
    rotate: str
    revisions: list[dict[str, str]]  # the first is revision 1
    pending: dict[str, str]  # becomes a revision when the hook has succeeded
    tracked: int  # the revision that the unit reads; 0: not read yet


class Action(TypedDict):
    """An action that runs, or has run."""

    name: str
    parameters: dict[str, object]
    results: Results
    failed: bool
    message: str
    log: list[str]


class Hook(TypedDict):
    """What runs now."""

    context: str
    relation: str  # its id; empty where the hook is of no relation
    application: str
    unit: str
    action: Action | None


class State(TypedDict):
    """All that Juju knows of one unit and its application."""

    unit: str
    leader: bool
    units: dict[str, str]  # the application's units and their status
    address: str
    endpoints: list[str]
    peers: list[str]  # those endpoints that are of peer relations
    config: dict[str, Option]
    relations: dict[str, Relation]  # by id, a number
    secrets: dict[str, Secret]  # by id
    status: Status
    application_status: Status
    version: str
    resources: dict[str, str]  # paths
    log: list[str]
    hook: Hook | None


class Refused(Exception):
    """Juju would not do it: the tool ends with 1."""

    code = 1


class Misused(Refused):
    """The command line is wrong: the tool ends with 2."""

    code = 2


NOT_LEADER = "this unit is not the leader"


class Call:
    """A tool's command line, read as github.com/juju/gnuflag reads it, and what it prints."""

    def __init__(self, arguments: Sequence[str], flags: Mapping[str, str | bool]) -> None:
        self._flags = dict(flags)
        self.arguments: list[str] = []
        self.printed = ""
        waiting = list(arguments)
        while waiting:
            argument = waiting.pop(0)
            if argument == "--":
                self.arguments += waiting
                break
            if argument == "-" or not argument.startswith("-"):
                self.arguments.append(argument)
                continue
            flag, given, value = argument.partition("=")
            name = flag.lstrip("-")
            if name not in flags:
                raise Misused(f"option provided but not defined: {flag}")
            if isinstance(flags[name], bool):
                self._flags[name] = _boolean(flag, value) if given else True
            elif given or waiting:
                self._flags[name] = value if given else waiting.pop(0)
            else:
                raise Misused(f"option needs an argument: {flag}")

    def text(self, *names: str) -> str:
        """The value of the first of these options that was given; empty if none was."""
        return next((str(self._flags[name]) for name in names if self._flags[name]), "")

    def switch(self, *names: str) -> bool:
        """Whether one of these options was given."""
        return any(bool(self._flags[name]) for name in names)

    def expect(self, least: int, most: int, missing: str = "") -> list[str]:
        """The arguments, which must be so many."""
        if len(self.arguments) < least:
            raise Misused(missing)
        if extra := self.arguments[most:]:
            raise Misused(f"unrecognized args: {json.dumps(extra)}")
        return self.arguments

    def write(self, value: object) -> None:
        """Print a value in the format that was asked for."""
        form = self.text("format")
        if form not in ("json", "yaml", "smart"):
            raise Misused(f'invalid value "{form}" for option --format: unknown format "{form}"')
        smart = form == "smart"
        if smart and value is None:
            return
        if smart and isinstance(value, (str, bool)):
            self.printed = f"{value}\n"
        elif smart and isinstance(value, list):
            self.printed = "".join(f"{item}\n" for item in value)
        else:
            self.printed = f"{json.dumps(value)}\n"  # which is YAML as well


Tool = Callable[[State, Call], None]
TOOLS: dict[str, tuple[Tool, Mapping[str, str | bool]]] = {}

_FORMAT = {"format": "smart"}
_RELATION = {"r": "", "relation": ""}
_SECRET = dict.fromkeys(("expire", "rotate", "description", "label", "file"), "")


def _tool(name: str, **flags: str | bool) -> Callable[[Tool], Tool]:
    known = {flag.replace("_", "-"): default for flag, default in flags.items()}

    def register(function: Tool) -> Tool:
        TOOLS[name] = (function, known)
        return function

    return register


# The application's configuration, leadership and status


@_tool("config-get", **_FORMAT, a=False, all=False)
def _config_get(state: State, call: Call) -> None:
    (key,) = call.expect(0, 1) or [""]
    if key and call.switch("a", "all"):
        raise Misused(f'cannot use argument --all together with key "{key}"')
    call.write(state["config"].get(key) if key else state["config"])


@_tool("is-leader", **_FORMAT)
def _is_leader(state: State, call: Call) -> None:
    call.expect(0, 0)
    call.write(state["leader"])


@_tool("status-set", application=False)
def _status_set(state: State, call: Call) -> None:
    status, *rest = call.expect(1, 2, "invalid args, require <status> [message]")
    allowed = ("maintenance", "blocked", "waiting", "active")
    if status not in allowed:
        raise Misused(f'invalid status "{status}", expected one of [{" ".join(allowed)}]')
    new = Status(status=status, message=rest[0] if rest else "")
    if not call.switch("application"):
        state["status"] = new
        return
    _require_leader(state)
    state["application_status"] = new


@_tool("status-get", **_FORMAT, include_data=False, application=False)
def _status_get(state: State, call: Call) -> None:
    call.expect(0, 0)
    if call.switch("application"):
        _require_leader(state)
        units = {state["unit"]: _details(state["status"], call)}
        details = {**_details(state["application_status"], call), "units": units}
        call.write({"application-status": details})
    elif call.text("format") == "smart" and not call.switch("include-data"):
        call.write(state["status"]["status"])
    else:
        call.write(_details(state["status"], call))


@_tool("application-version-set")
def _application_version_set(state: State, call: Call) -> None:
    (state["version"],) = call.expect(1, 1, "no version specified")


@_tool("goal-state", format="yaml")
def _goal_state(state: State, call: Call) -> None:
    call.expect(0, 0)
    since = f"{_now():%Y-%m-%d %H:%M:%SZ}"
    relations: dict[str, dict[str, object]] = {}
    for relation in state["relations"].values():
        members = relations.setdefault(relation["endpoint"], {})
        for name in (relation["application"], *relation["units"]):
            members[name] = {"status": "joined", "since": since}
    units = {n: {"status": status, "since": since} for n, status in state["units"].items()}
    call.write({"units": units, "relations": relations})


@_tool("juju-log", debug=False, l="INFO", log_level="", format="")
def _juju_log(state: State, call: Call) -> None:
    words = call.expect(1, sys.maxsize, "no message specified")
    level = "DEBUG" if call.switch("debug") else call.text("log-level", "l")
    state["log"].append(f"{level} {' '.join(words)}")


# Relations


@_tool("relation-ids", **_FORMAT)
def _relation_ids(state: State, call: Call) -> None:
    hook, given = state["hook"], call.expect(0, 1)
    current = hook["relation"] if hook else ""
    if not given and not current:
        raise Misused("no endpoint name specified")
    endpoint = given[0] if given else state["relations"][current]["endpoint"]
    found = state["relations"].items()
    call.write(sorted(f"{endpoint}:{i}" for i, r in found if r["endpoint"] == endpoint))


@_tool("relation-list", **_FORMAT, **_RELATION, app=False)
def _relation_list(state: State, call: Call) -> None:
    relation = _relation(state, call)
    call.expect(0, 0)
    call.write(relation["application"] if call.switch("app") else relation["units"])


@_tool("relation-model-get", **_FORMAT, **_RELATION)
def _relation_model_get(state: State, call: Call) -> None:
    _relation(state, call)
    call.expect(0, 0)
    call.write({"uuid": os.environ.get("JUJU_MODEL_UUID", "")})


@_tool("relation-get", **_FORMAT, **_RELATION, app=False)
def _relation_get(state: State, call: Call) -> None:
    relation = _relation(state, call)
    key, named = (*call.expect(0, 2), "", "")[:2]
    name = _whose(state, call.switch("app"), named)
    databag = _readable(state, relation, name)
    call.write(databag.get(key) if key not in ("", "-") else databag)


@_tool("relation-set", **_RELATION, app=False, file="", format="")
def _relation_set(state: State, call: Call) -> None:
    relation = _relation(state, call)
    settings = _settings(call)
    if call.switch("app") and not state["leader"]:
        raise Refused("cannot write relation settings")
    name = _application(state) if call.switch("app") else state["unit"]
    databag = relation["databags"].setdefault(name, {})
    databag.update(settings)
    for key in [key for key, value in settings.items() if not value]:
        del databag[key]


def _relation(state: State, call: Call) -> Relation:
    """The relation that is named, or else the hook's."""
    named, hook = call.text("r", "relation"), state["hook"]
    if not named:
        if hook is None or not hook["relation"]:
            raise Misused("no relation id specified")
        return state["relations"][hook["relation"]]
    endpoint, _, number = named.rpartition(":")
    wrong = f'invalid value "{named}" for option -r: '
    if not number.isdigit():
        raise Misused(f"{wrong}invalid relation id")
    relation = state["relations"].get(number)
    if relation is None or endpoint not in ("", relation["endpoint"]):
        raise Misused(f"{wrong}relation not found")
    return relation


def _whose(state: State, application: bool, named: str) -> str:
    """The name of the databag that relation-get is to read."""
    hook = state["hook"]
    if not named:
        default = [hook["application"] if application else hook["unit"]] if hook else []
        if not any(default):
            raise Misused("no unit or application specified")
        return default[0]
    if application:
        return named.partition("/")[0]
    if "/" not in named:
        raise Misused(f'expected unit name, got application name "{named}"')
    return named


def _readable(state: State, relation: Relation, name: str) -> dict[str, str]:
    """A databag, if this unit may read it.

    Of its own application's a unit that does not lead reads those of peer relations only
    (apiserver/facades/agent/uniter/uniter.go, readLocalApplicationSettings), and of others' those
    of the relation's other end (checkRemoteUnit there).
    """
    ours, own = _application(state), name == state["unit"]
    peers = relation["endpoint"] in state["peers"]
    if name == ours and not (state["leader"] or peers):
        raise Refused("permission denied")
    theirs = name.partition("/")[0] == relation["application"]
    if not (own or name == ours or theirs):
        raise Refused("permission denied")
    return relation["databags"].get(name, {})


# Actions


@_tool("action-get", **_FORMAT)
def _action_get(state: State, call: Call) -> None:
    given = call.expect(0, 1)
    value: object = _action(state)["parameters"]
    for key in given[0].split(".") if given else []:
        value = value.get(key) if isinstance(value, dict) else None
    call.write(value)


@_tool("action-set")
def _action_set(state: State, call: Call) -> None:
    results = _action(state)["results"]
    for argument in call.arguments:
        path, given, value = argument.partition("=")
        if not given:
            raise Misused(f'argument "{argument}" must be of the form key...=value')
        *above, last = [_result_key(key) for key in path.split(".")]
        place = results
        for key in above:
            below = place.get(key)
            if not isinstance(below, dict):
                below = place[key] = {}
            place = below
        place[last] = value


@_tool("action-log")
def _action_log(state: State, call: Call) -> None:
    words = call.expect(1, sys.maxsize, "no message specified")
    log = _action(state)["log"]
    # state/action.go: what is more than that is dropped.
    if len(log) <= 1000:
        log.append(" ".join(words))


@_tool("action-fail")
def _action_fail(state: State, call: Call) -> None:
    action, given = _action(state), call.expect(0, 1)
    default = "action failed without reason given, check action for errors"
    action["failed"], action["message"] = True, given[0] if given else default


def _action(state: State) -> Action:
    hook = state["hook"]
    if hook is None or hook["action"] is None:
        raise Refused("not running an action")
    return hook["action"]


def _result_key(key: str) -> str:
    """A part of a result's name, as internal/charm/actions.go has the rule."""
    if not re.fullmatch(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", key):
        raise Misused(
            f'key "{key}" must start and end with lowercase alphanumeric,'
            " and contain only lowercase alphanumeric, hyphens and periods"
        )
    if key in ("stdout", "stdout-encoding", "stderr", "stderr-encoding"):
        raise Misused(f'cannot set reserved action key "{key}"')
    return key


# Secrets


@_tool("secret-add", **_SECRET, owner="application")
def _secret_add(state: State, call: Call) -> None:
    if not call.arguments and not call.text("file"):
        raise Misused("missing secret value or filename")
    content, label, owner = _content(call), call.text("label"), _owner(call)
    if owner == "application":
        _require_leader(state)
    if not content:
        raise Refused("empty secret value not valid")
    if label and any(secret["label"] == label for secret in state["secrets"].values()):
        raise Refused(f'secret with label "{label}" already exists')
    # rs/xid, which is where Juju's ids come from: 20 digits of base 32.
    name = "".join(secrets.choice("0123456789abcdefghijklmnopqrstuv") for _ in range(20))
    state["secrets"][name] = Secret(
        owner=owner,
        label=label,
        description=call.text("description"),
        expire=_expire(call),
        rotate=_rotate(call),
        revisions=[],
        pending=content,
        tracked=0,
    )
    call.printed = f"secret:{name}\n"


@_tool("secret-set", **_SECRET, owner="application")
def _secret_set(state: State, call: Call) -> None:
    name = _secret_id(call)
    _owner(call)
    secret = _owned(state, name)
    call.arguments = call.arguments[1:]
    secret["pending"] = _content(call) or secret["pending"]
    secret["label"] = call.text("label") or secret["label"]
    secret["description"] = call.text("description") or secret["description"]
    secret["expire"] = _expire(call) or secret["expire"]
    secret["rotate"] = _rotate(call) or secret["rotate"]


@_tool("secret-get", format="yaml", label="", peek=False, refresh=False)
def _secret_get(state: State, call: Call) -> None:
    named, key = (*call.expect(0, 2), "", "")[:2]
    label, peek, refresh = call.text("label"), call.switch("peek"), call.switch("refresh")
    if not named and not label:
        raise Misused("require either a secret URI or label")
    if peek and refresh:
        raise Misused("specify one of --peek or --refresh but not both")
    name = _parse_id(named) if named else _labelled(state, label)
    secret = state["secrets"].get(name)
    if secret is None:
        raise Refused(f'secret "{name}" not found')
    latest = len(secret["revisions"])
    # What the hook itself has written is read with --peek or --refresh, or if it is all there is.
    newest = latest + bool(secret["pending"])
    if refresh or not secret["tracked"]:
        secret["tracked"] = newest if refresh or not latest else latest
    revision = newest if peek else secret["tracked"]
    content = secret["pending"] if revision > latest else secret["revisions"][revision - 1]
    if not key:
        call.write({name: base64.b64decode(value).decode() for name, value in content.items()})
        return
    plain, encoded, _ = key.partition("#base64")
    if plain not in content:
        raise Refused(f'secret key value "{plain}" not found')
    call.write(content[plain] if encoded else base64.b64decode(content[plain]).decode())


@_tool("secret-info-get", format="yaml", label="")
def _secret_info_get(state: State, call: Call) -> None:
    given, label = call.expect(0, 1), call.text("label")
    if bool(given) == bool(label):
        both = "specify either a secret URI or label but not both"
        raise Misused(both if given else "require either a secret URI or label")
    name = _parse_id(given[0]) if given else _labelled(state, label)
    secret = _managed(state).get(name)
    if secret is None:
        raise Refused(f'secret "{given[0] if given else label}" not found')
    info: dict[str, object] = {
        "revision": max(len(secret["revisions"]), 1),
        "label": secret["label"],
        "owner": secret["owner"],
    }
    optional = {
        "description": secret["description"],
        "rotation": secret["rotate"],
        "expiry": secret["expire"],
        "access": [],
    }
    call.write({name: {**info, **{key: value for key, value in optional.items() if value}}})


@_tool("secret-ids", **_FORMAT)
def _secret_ids(state: State, call: Call) -> None:
    call.expect(0, 0)
    call.write(list(_managed(state)))


@_tool("secret-remove", revision="")
def _secret_remove(state: State, call: Call) -> None:
    name = _secret_id(call)
    call.expect(1, 1)
    secret, revision = _owned(state, name), call.text("revision")
    if revision and not revision.isdigit():
        raise Misused(f'invalid value "{revision}" for option --revision: invalid syntax')
    # A revision that goes leaves the others' numbers as they are; with the last goes the secret.
    if revision and 0 < int(revision) <= len(secret["revisions"]):
        secret["revisions"][int(revision) - 1] = {}
    if not revision or not any(secret["revisions"]):
        del state["secrets"][name]


def _managed(state: State) -> dict[str, Secret]:
    """The secrets that this unit may change: its own, and the application's if it leads."""
    return {
        name: secret
        for name, secret in state["secrets"].items()
        if secret["owner"] == "unit" or state["leader"]
    }


def _owned(state: State, name: str) -> Secret:
    if name not in state["secrets"]:
        raise Refused(f'secret "{name}" not found')
    if name not in _managed(state):
        raise Refused(NOT_LEADER)
    return state["secrets"][name]


def _labelled(state: State, label: str) -> str:
    for name, secret in state["secrets"].items():
        if secret["label"] == label:
            return name
    raise Refused(f'secret "{label}" not found')


def _secret_id(call: Call) -> str:
    if not call.arguments:
        raise Misused("missing secret URI")
    return _parse_id(call.arguments[0])


def _parse_id(uri: str) -> str:
    """The id in a secret's URI, as core/secrets/secret.go parses it."""
    if not (found := re.fullmatch(r"(?:secret:(?://[^/]+/)?)?([0-9a-v]{20})", uri)):
        raise Misused(f'secret URI "{uri}" not valid')
    return found[1]


def _content(call: Call) -> dict[str, str]:
    """A secret's values in base64, as core/secrets/createsecret.go reads them."""
    content: dict[str, str] = {}
    limit = 1000 * 1000  # bytes in base64, of a value and of all together
    for argument in call.arguments:
        key, given, value = argument.partition("=")
        if not key or not given:
            raise Misused(f'key value "{argument}" not valid')
        if key.endswith("#file"):
            key, value = key.removesuffix("#file"), _read(Path(value), key)
        if key.endswith("#base64"):
            key = key.removesuffix("#base64")
        else:
            value = base64.b64encode(value.encode()).decode()
        content[key] = value
    if file := call.text("file"):
        plain = _strings(Path(file).read_text())
        content |= {k: base64.b64encode(v.encode()).decode() for k, v in plain.items()}
    for key, value in content.items():
        if not re.fullmatch(r"[a-z](?:-?[a-z0-9]){2,}", key):
            raise Misused(f'key "{key}" not valid')
        if not _is_base64(value):
            raise Misused(f'secret content for key "{key}" not valid base64')
        if len(value) > limit:
            size = f"{len(value)} bytes"
            raise Misused(f'base64 encoded secret content for key "{key}" too large: {size}')
    if (size := sum(map(len, content.values()))) > limit:
        raise Misused(f"base64 encoded secret content too large: {size} bytes")
    return content


def _is_base64(value: str) -> bool:
    try:
        base64.b64decode(value, validate=True)
    except binascii.Error:
        return False
    return True


def _read(path: Path, key: str) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise Misused(f'reading content for secret key "{key}": {error}') from error


def _owner(call: Call) -> str:
    owner = call.text("owner")
    if owner not in ("application", "unit"):
        raise Misused(f'secret owner "{owner}" not valid')
    return owner


def _expire(call: Call) -> str:
    """When the secret expires, as RFC 3339; empty if it doesn't."""
    expire = call.text("expire")
    if not expire:
        return ""
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", expire):
        return expire if expire[-6] in "+-" or expire.endswith("Z") else f"{expire}Z"
    if not re.fullmatch(r"(\d+(\.\d+)?[hms])+", expire):
        raise Misused(f'expire time or duration "{expire}" not valid')
    unit = {"h": 3600, "m": 60, "s": 1}
    parts = re.findall(r"(\d+(?:\.\d+)?)([hms])", expire)
    seconds = sum(float(number) * unit[name] for number, name in parts)
    return f"{_now() + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def _rotate(call: Call) -> str:
    rotate = call.text("rotate")
    policies = ("never", "hourly", "daily", "weekly", "monthly", "quarterly", "yearly")
    if rotate and rotate not in policies:
        raise Misused(f'rotate policy "{rotate}" not valid')
    return rotate


# The network and resources


@_tool("network-get", **_FORMAT, **_RELATION, bind_address=False, ingress_address=False,
       egress_subnets=False, primary_address=False)  # fmt: skip
def _network_get(state: State, call: Call) -> None:
    (binding,) = call.expect(1, 1, "no arguments specified")
    if call.text("r", "relation"):
        _relation(state, call)
    if binding not in (*state["endpoints"], "juju-info"):
        raise Refused(f'no network config found for binding "{binding}"')
    address = state["address"]
    asked = {
        name: value
        for name, value in {
            "bind-address": address,
            "ingress-address": address,
            "egress-subnets": [f"{address}/32"],
        }.items()
        if call.switch(name)
    }
    interface = {"hostname": "", "value": address, "cidr": "", "address": address}
    bound = {"mac-address": "", "interface-name": "", "addresses": [interface]}
    if call.switch("primary-address") or len(asked) == 1:
        call.write(next(iter(asked.values()), address))
        return
    call.write(
        asked
        or {
            "bind-addresses": [bound],
            "egress-subnets": [f"{address}/32"],
            "ingress-addresses": [address],
        }
    )


@_tool("resource-get")
def _resource_get(state: State, call: Call) -> None:
    (name,) = call.expect(1, 1, "missing required resource name")
    if name not in state["resources"]:
        raise Refused(f'could not download resource: resource "{name}" not found')
    call.printed = state["resources"][name]


# Common to several


def _application(state: State) -> str:
    return state["unit"].partition("/")[0]


def _details(status: Status, call: Call) -> dict[str, object]:
    details: dict[str, object] = {"status": status["status"]}
    if call.switch("include-data"):
        details |= {"message": status["message"], "status-data": {}}
    return details


def _require_leader(state: State) -> None:
    if not state["leader"]:
        raise Refused(NOT_LEADER)


def _settings(call: Call) -> dict[str, str]:
    """Keys and values of the file, which is standard input if it is `-`, and then of arguments."""
    settings: dict[str, str] = {}
    for argument in call.arguments:
        key, given, value = argument.partition("=")
        if not given or not key:
            raise Misused(f'expected "key=value", got "{argument}"')
        if key in settings:
            raise Misused(f'key "{key}" specified more than once')
        settings[key] = value
    file = call.text("file")
    if not file:
        return settings
    text = sys.stdin.read() if file == "-" else Path(file).read_text()
    return {**_strings(text), **settings}


def _strings(text: str) -> dict[str, str]:
    # Juju takes any YAML; this takes the JSON in it, which is what ops writes.
    given: object = json.loads(text)
    if not isinstance(given, dict):
        raise Refused("yaml: unmarshal errors: cannot unmarshal into map[string]string")
    for key, value in given.items():
        if not isinstance(value, str):
            raise Refused(f"yaml: unmarshal errors: cannot unmarshal {key} into string")
    return given


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _boolean(flag: str, text: str) -> bool:
    """As Go's strconv.ParseBool."""
    known = {
        **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
        **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
    }
    if text not in known:
        raise Misused(f'invalid boolean value "{text}" for {flag}')
    return known[text]


def _serve(name: str, arguments: Sequence[str], file: IO[str]) -> str:
    """Run a tool on the State in an open file; returns what it prints."""
    state: State = json.load(file)
    expected = state["hook"]["context"] if state["hook"] else ""
    given = os.environ.get("JUJU_CONTEXT_ID", "")
    if given != expected:
        raise Refused(f'bad request: expected context id "{expected}", got "{given}"')
    tool, flags = TOOLS[name]
    call = Call(arguments, flags)
    tool(state, call)
    text = json.dumps(state)
    file.seek(0)
    file.truncate()
    file.write(text)
    return call.printed


def main(program: str, arguments: Sequence[str]) -> int:
    """Run the tool that the program's name says; returns its exit code."""
    with open(os.environ["JUJU_AGENT_SOCKET_ADDRESS"], "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            sys.stdout.write(_serve(Path(program).name, arguments, file))
        except Refused as error:
            print(f"ERROR {error}", file=sys.stderr)
            return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
