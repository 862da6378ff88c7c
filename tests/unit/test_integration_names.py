"""Every name that the integration tests use exists.

They run only where there is a controller, and late; a misspelt option must not wait for that. So
their sources are read here: each application, endpoint, option, action and key of a result that
they hand to Juju is worked out and held against charmcraft.yaml, and a name that can't be worked
out is a fault as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from init_egress.backends import manifests
from init_egress.config import Backend, Config, ConfigError
from init_egress.rule import decision as rule
from init_egress.rule.decision import Verdict, decide
from init_egress.rule.pod import Namespace, Pod
from tests.integration import cluster, inputs, names, pods

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for folder in ("integration", "integration_smoke")
    for path in (ROOT / "tests" / folder).glob("*.py")
)
OURS = inputs.read_charmcraft(ROOT)
PROVIDER = inputs.read_charmcraft(inputs.PROVIDER)


class Unresolved(ValueError):
    """A name that can't be worked out from the source."""


@dataclass(frozen=True)
class Application:
    """What an application has, from its charmcraft.yaml."""

    endpoints: frozenset[str]
    options: frozenset[str]
    actions: frozenset[str]

    @classmethod
    def of(cls, charmcraft: Mapping[str, Any]) -> Application:
        roles = ("requires", "provides", "peers")
        return cls(
            endpoints=frozenset(name for role in roles for name in charmcraft.get(role) or ()),
            options=frozenset(charmcraft.get("config", {}).get("options", {})),
            actions=frozenset(charmcraft.get("actions") or ()),
        )


APPLICATIONS = {names.APP: Application.of(OURS), names.PILOT: Application.of(PROVIDER)}


class Checker:
    """Finds calls that name something to Juju, and says which of the names don't exist."""

    def __init__(self, source: str) -> None:
        self._tree = ast.parse(source)
        self.faults: list[str] = []
        self.seen: list[str] = []

    def run(self) -> Checker:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call):
                self._call(node)
            if isinstance(node, ast.Subscript):
                self._subscript(node)
        return self

    def _call(self, call: ast.Call) -> None:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if isinstance(call.func, ast.Name):
            name = call.func.id
        check = _CHECKS.get(name)
        if check is None or not _is_to_juju(call):
            return
        self._noting(call, lambda: check(self, call))

    def _subscript(self, node: ast.Subscript) -> None:
        holder = node.value.attr if isinstance(node.value, ast.Attribute) else ""
        if holder in ("apps", "applications"):
            self._noting(node, lambda: self.application(node.slice))
        if holder == "results":
            self._noting(node, lambda: self._result(node.slice))

    def _noting(self, node: ast.expr, check: Callable[[], object]) -> None:
        try:
            check()
        except Unresolved as fault:
            self.faults.append(f"line {node.lineno}: {fault}")

    def application(self, node: ast.expr) -> Application:
        name = _text(node)
        self.seen.append(name)
        if name not in APPLICATIONS:
            raise Unresolved(f"no application {name!r}")
        return APPLICATIONS[name]

    def endpoint(self, node: ast.expr) -> None:
        text = _text(node)
        application, _, endpoint = text.partition(":")
        known = self.application(ast.Constant(application)).endpoints
        self._known("endpoint", endpoint, known)

    def options(self, application: Application, node: ast.expr) -> None:
        if isinstance(node, ast.Dict):
            for key in node.keys:
                self._known("option", _text(key), application.options)
            return
        if isinstance(node, (ast.List, ast.Tuple)):
            for element in node.elts:
                self._known("option", _text(element), application.options)
            return
        self._known("option", _text(node), application.options)

    def action(self, unit: ast.expr, node: ast.expr) -> None:
        application = self.application(ast.Constant(_text(unit).partition("/")[0]))
        self._known("action", _text(node), application.actions)

    def _result(self, node: ast.expr) -> None:
        self._known("result", _text(node), frozenset(_members(names.Result)))

    def _known(self, what: str, name: str, known: frozenset[str]) -> None:
        self.seen.append(name)
        if name not in known:
            raise Unresolved(f"no {what} {name!r}")


def _is_to_juju(call: ast.Call) -> bool:
    """Whether the call is made to a controller, not to something else of that name.

    A function of this name counts as well: `configured` is the tests' own.
    """
    if isinstance(call.func, ast.Name):
        return True
    assert isinstance(call.func, ast.Attribute)
    receiver = ast.unparse(call.func.value)
    return receiver.rpartition(".")[2] in ("juju", "model") or "applications[" in receiver


def _text(node: ast.expr | None) -> str:
    """The text that an expression stands for: a literal, a name of names.py or an f-string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return _text(node.value)
    if isinstance(node, (ast.Name, ast.Attribute)):
        return _constant(ast.unparse(node).removeprefix("names."))
    raise Unresolved(f"{ast.unparse(node) if node else '**'} is no name that can be checked")


def _constant(dotted: str) -> str:
    value: object = names
    for part in dotted.split("."):
        value = getattr(value, part, None)
    if not isinstance(value, str):
        raise Unresolved(f"{dotted} is none of the constants in names.py")
    return value


def _argument(call: ast.Call, position: int, keyword: str) -> ast.expr | None:
    given = {one.arg: one.value for one in call.keywords}
    return call.args[position] if len(call.args) > position else given.get(keyword)


def _required(call: ast.Call, position: int, keyword: str) -> ast.expr:
    argument = _argument(call, position, keyword)
    if argument is None:
        raise Unresolved(f"{ast.unparse(call)} lacks {keyword}")
    return argument


def _check_application(checker: Checker, call: ast.Call) -> None:
    checker.application(_required(call, 0, "app"))


def _check_deploy(checker: Checker, call: ast.Call) -> None:
    keyword = "application_name" if _argument(call, 9, "application_name") else "app"
    application = checker.application(_required(call, 1, keyword))
    config = _argument(call, 99, "config")
    if isinstance(config, ast.Dict):  # else it comes from the environment
        checker.options(application, config)


def _check_config(checker: Checker, call: ast.Call) -> None:
    application = checker.application(_required(call, 0, "app"))
    for given in (_argument(call, 1, "values"), _argument(call, 99, "reset")):
        if given is not None:
            checker.options(application, given)


def _check_configured(checker: Checker, call: ast.Call) -> None:
    checker.options(APPLICATIONS[names.APP], _required(call, 1, "values"))


def _check_endpoints(checker: Checker, call: ast.Call) -> None:
    checker.endpoint(_required(call, 0, "app1"))
    checker.endpoint(_required(call, 1, "app2"))


def _check_action(checker: Checker, call: ast.Call) -> None:
    checker.action(_required(call, 0, "unit"), _required(call, 1, "action"))


_CHECKS: Mapping[str, Callable[[Checker, ast.Call], None]] = {
    "deploy": _check_deploy,
    "trust": _check_application,
    "refresh": _check_application,
    "add_unit": _check_application,
    "remove_unit": _check_application,
    "remove_application": _check_application,
    "config": _check_config,
    "configured": _check_configured,
    "integrate": _check_endpoints,
    "relate": _check_endpoints,
    "remove_relation": _check_endpoints,
    "run": _check_action,
}


def _without_helper(source: str) -> str:
    """The source without the body of `configured`, whose callers are checked instead."""
    tree = ast.parse(source)
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.FunctionDef) and node.name == "configured")
    ]
    return ast.unparse(tree)


def _members(group: type) -> Iterator[str]:
    return (value for key, value in vars(group).items() if not key.startswith("_"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_name_that_is_handed_to_juju_exists(path: Path) -> None:
    assert Checker(_without_helper(path.read_text())).run().faults == []


def test_the_sources_are_read_at_all() -> None:
    seen = {
        name for path in SOURCES for name in Checker(_without_helper(path.read_text())).run().seen
    }

    used = (names.Endpoint, names.PilotEndpoint, names.Option, names.Action, names.Result)
    assert seen == {names.APP, names.PILOT, *(name for group in used for name in _members(group))}


@pytest.mark.parametrize(
    ("snippet", "fault"),
    [
        ('juju.config("istio-init-egress", {"remedi": "x"})', "no option 'remedi'"),
        ('juju.config(APP, {Option.RANGES: "x", "ports": ""})', "no option 'ports'"),
        ('juju.config(APP, reset=["remedy", "port"])', "no option 'port'"),
        ('juju.config(APP, reset="port")', "no option 'port'"),
        ("juju.config(APP, {Option.NOWHERE: ''})", "none of the constants"),
        ("juju.config(APP, values)", "none of the constants"),
        ("juju.config(APP, {**more})", "no name that can be checked"),
        ('juju.config("istio-pilot", {"remedy": "x"})', "no option 'remedy'"),
        ('configured(bench.juju, {"remedi": "x"})', "no option 'remedi'"),
        ('bench.juju.run(f"{APP}/leader", "show-polcy")', "no action 'show-polcy'"),
        ('juju.run("istio-init/0", "show-policy")', "no application 'istio-init'"),
        ('juju.integrate(OURS, "istio-pilot:gateway")', "no endpoint 'gateway'"),
        ('juju.integrate(f"{APP}:gateway-inf", THEIRS)', "no endpoint 'gateway-inf'"),
        ('juju.remove_relation(OURS, "pilot:gateway-info")', "no application 'pilot'"),
        ('juju.trust("istio-egress", scope="cluster")', "no application 'istio-egress'"),
        ('juju.deploy(path, "egress")', "no application 'egress'"),
        ('juju.deploy(path, APP, config={"remedi": ""})', "no option 'remedi'"),
        ('model.deploy(path, application_name="egress")', "no application 'egress'"),
        ('ops_test.model.applications["egress"].units', "no application 'egress'"),
        ('status.apps["egress"]', "no application 'egress'"),
        ('task.results["polcy"]', "no result 'polcy'"),
    ],
)
def test_a_name_that_does_not_exist_is_found(snippet: str, fault: str) -> None:
    faults = Checker(snippet).run().faults

    assert len(faults) == 1
    assert fault in faults[0]


@pytest.mark.parametrize(
    "snippet",
    [
        'juju.config("istio-init-egress", {"remedy": "proxy-user"}, reset=["backend"])',
        'juju.run(f"{names.APP}/leader", Action.SHOW_POLICY)',
        "juju.integrate(names.OURS, names.THEIRS)",
        'juju.config("istio-pilot", {"namespace": "istio-system"})',
        'subprocess.run(["juju", "models"])',
    ],
)
def test_a_name_that_exists_is_no_fault(snippet: str) -> None:
    assert Checker(snippet).run().faults == []


def test_the_constants_exist() -> None:
    ours, pilot = APPLICATIONS[names.APP], APPLICATIONS[names.PILOT]

    assert OURS["name"] == names.APP
    assert set(_members(names.Endpoint)) <= ours.endpoints
    assert set(_members(names.Option)) <= ours.options
    assert set(_members(names.Action)) <= ours.actions
    assert set(_members(names.PilotEndpoint)) <= pilot.endpoints


@pytest.mark.parametrize("backend", names.BACKENDS)
def test_the_kinds_that_are_looked_for_are_those_that_the_charm_writes(backend: str) -> None:
    templates = [path.read_text() for path in (ROOT / "templates" / backend).glob("*.j2")]
    kinds = {
        kind for text in templates for kind in re.findall(r"^kind: (\w+)", text, re.MULTILINE)
    }

    assert set(cluster.BACKEND_KINDS[backend]) == kinds
    assert kinds <= {*cluster.KINDS, *cluster.WORKLOAD_KINDS}


def test_the_keys_of_results_are_written_by_the_charm() -> None:
    literals = {
        node.value
        for node in ast.walk(ast.parse((ROOT / "src" / "charm.py").read_text()))
        if isinstance(node, ast.Constant)
    }

    assert set(_members(names.Result)) <= literals


def test_the_values_are_what_the_tests_take_them_for() -> None:
    Config(
        remedy=names.Value.PROXY_USER, exclude_outbound_ip_ranges=names.Value.NARROW_RANGES
    ).settings()

    assert OURS["config"]["options"][names.Option.RANGES]["default"] == names.DEFAULT_RANGES
    assert set(names.BACKENDS) == {backend.value for backend in Backend} - {Backend.AUTO.value}
    with pytest.raises(ConfigError, match=names.Option.RANGES) as error:
        Config(exclude_outbound_ip_ranges=names.Value.INVALID_RANGES).settings()
    assert names.Value.INVALID_RANGES in str(error.value)


def test_the_pod_that_stands_in_for_an_injected_one_needs_the_remedy() -> None:
    namespace = Namespace("any", pods.INJECTED_NAMESPACE_LABELS)
    policy = Config().settings().policy

    def verdict(pod: dict[str, Any]) -> Verdict:
        return decide(Pod.from_dict(pod), namespace, policy).verdict

    assert verdict(pods.injected_pod()) is Verdict.NEEDS_REMEDY
    assert verdict(pods.opted_out(pods.injected_pod())) is Verdict.OPTED_OUT
    assert verdict(pods.plain_pod()) is Verdict.NOT_INJECTED


def test_the_labels_are_those_that_the_charm_writes() -> None:
    assert names.APPLICATION_LABEL == manifests.APPLICATION_LABEL
    assert names.MODEL_LABEL == manifests.MODEL_LABEL
    assert names.SKIP_LABEL == rule.SKIP_LABEL


def test_an_image_is_taken_for_every_resource() -> None:
    resources = {
        "webhook-image": {"type": "oci-image"},
        "proxy": {"type": "oci-image", "upstream-source": "example.com/proxy:1"},
        "notes": {"type": "file"},
    }

    assert inputs.images(
        {"resources": resources}, {"WEBHOOK_IMAGE_IMAGE": "example.com/webhook:1"}
    ) == {"webhook-image": "example.com/webhook:1", "proxy": "example.com/proxy:1"}
    with pytest.raises(inputs.InputError, match="WEBHOOK_IMAGE_IMAGE"):
        inputs.images({"resources": resources}, {})


def test_a_packed_charm_is_told_from_one_on_charmhub(tmp_path: Path) -> None:
    packed = tmp_path / "provider.charm"
    packed.touch()

    local = inputs.pilot({"ISTIO_PILOT": str(packed), "ISTIO_PILOT_CONFIG": "namespace=mesh"})
    assert (local.charm, local.channel, local.config) == (str(packed), None, {"namespace": "mesh"})
    published = inputs.pilot({})
    assert (published.charm, published.channel) == (names.PILOT, "1.28/stable")


@pytest.mark.parametrize(
    ("read", "environ", "says"),
    [
        (inputs.charm, {}, "charmcraft pack"),
        (inputs.charm, {"CHARM_PATH": "missing.charm"}, "CHARM_PATH=missing.charm"),
        (inputs.pilot, {"ISTIO_PILOT": "missing.charm"}, "ISTIO_PILOT=missing.charm"),
        (inputs.pilot, {"ISTIO_PILOT_CONFIG": "namespace"}, "ISTIO_PILOT_CONFIG"),
    ],
)
def test_what_is_missing_from_the_environment_is_named(
    read: Callable[[Mapping[str, str]], object], environ: dict[str, str], says: str
) -> None:
    with pytest.raises(inputs.InputError, match=says):
        read(environ)
