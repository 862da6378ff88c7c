"""The command line on a real cluster: `render | kubectl apply`, then `audit`."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from lightkube import ApiError, Client
from lightkube.resources.core_v1 import Namespace as NamespaceResource

from init_egress import cli
from init_egress.backends.backend import BackendKind
from init_egress.config import Config, Settings
from init_egress.kube.application import Application
from init_egress.kube.client import ApiClient
from init_egress.kube.kinds import POD
from init_egress.mesh import istiod
from init_egress.rule.verdict import Verdict
from tests.functional.cases import CASES, Case
from tests.functional.installation import acts
from tests.functional.load import A_POD
from tests.functional.test_cases import after, changed_later, expectation, expected_part
from tests.testbed.control_plane import STRANGER, ControlPlane
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.istio import NAMESPACE, Istiod, Mesh, Meshes
from tests.testbed.process import wait_until

SOURCES = Path(__file__).parents[2] / "src"
_BACKENDS = {
    BackendKind.NATIVE: ["--backend", "native"],
    BackendKind.CLUSTER_POLICY: ["--backend", "kyverno"],
}
# What Juju alone has: who runs the command line chooses by its own options.
_OF_THE_CHARM = ("backend", "kyverno-policy-kind", "mesh-namespace", "webhook-replicas")
_numbers = itertools.count(1)


def flags(config: Mapping[str, str]) -> list[str]:
    """The charm's options on the command line."""
    return [
        part
        for name, value in config.items()
        if name not in _OF_THE_CHARM
        for part in (f"--{name}", value)
    ]


class Rendered:
    """What `render | kubectl apply` brought into force, one configuration at a time."""

    def __init__(self, plane: ControlPlane, client: Client) -> None:
        self._plane = plane
        self._client = client
        self._current: (
            tuple[tuple[BackendKind, Settings, Mesh | None], str, Application] | None
        ) = None

    def use(self, form: BackendKind, config: Mapping[str, str], of: Mesh | None = None) -> None:
        """Bring a configuration into force, and wait until the one before it is out of force."""
        plain = {name: value for name, value in config.items() if name not in _OF_THE_CHARM}
        settings = Config.from_options(plain).settings()
        key = form, settings, of
        if self._current and self._current[0] == key:
            return
        self.remove()
        owner = Application(f"rendered-{next(_numbers)}", cli.STANDALONE)
        rendered = self._render(form, plain, owner)
        self._current = key, rendered, owner
        self._kubectl("apply", rendered)
        cluster = ApiClient.connect(self._client.config)
        wait_until(
            lambda: acts(self._plane, cluster, form, settings, owner), f"{form.value} is in force"
        )

    def remove(self) -> None:
        """Delete what was applied."""
        if self._current is None:
            return
        (form, settings, _), rendered, owner = self._current
        self._current = None
        self._kubectl("delete", rendered)
        cluster = ApiClient.connect(self._client.config)
        wait_until(
            lambda: not acts(self._plane, cluster, form, settings, owner), f"{form.value} is gone"
        )
        self._client.delete(NamespaceResource, f"{owner.name}-probe")

    def _render(self, form: BackendKind, config: Mapping[str, str], owner: Application) -> str:
        injects_by_default = istiod.read(
            NAMESPACE, ApiClient.connect(self._client.config).config_maps(NAMESPACE)
        ).injects_by_default
        arguments = [
            *("render", *_BACKENDS[form], "--name", owner.name),
            *flags(config),
            *(["--inject-by-default"] if injects_by_default else []),
        ]
        return subprocess.run(
            [sys.executable, "-m", "init_egress", *arguments],
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout

    def _kubectl(self, verb: str, rendered: str) -> None:
        done = subprocess.run(
            [Path(sys.executable).parent / "kubectl", verb, "-f", "-"],
            input=rendered,
            env={**os.environ, **self._plane.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def rendered(cluster: ControlPlane, client: Client) -> Iterator[Rendered]:
    """`render | kubectl apply`."""
    applied = Rendered(cluster, client)
    yield applied
    applied.remove()


@pytest.fixture
def kubeconfig_of_admin(api_server: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig()))


def audited(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What `audit -o json` prints."""
    assert cli.main(["audit", "-o", "json", *arguments]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


# Kyverno's policy is the one that the charm applies, which has all cases of its own.
ONE_FOR_KYVERNO = "kserve-storage-initializer"
RUNS = [
    pytest.param(form, case, id=f"{case.id}-{form.value}")
    for _, of_one_mesh in itertools.groupby(CASES, key=lambda case: case.order[0])
    for form, case in itertools.product(_BACKENDS, list(of_one_mesh))
    if form is BackendKind.NATIVE or case.id == ONE_FOR_KYVERNO
]


@pytest.mark.usefixtures("kubeconfig_of_admin", "kyverno")
@pytest.mark.parametrize(("form", "case"), RUNS)
def test_what_is_rendered_does_what_the_case_expects_and_the_audit_says_so(
    form: BackendKind,
    case: Case,
    cluster: ControlPlane,
    client: Client,
    meshes: Meshes,
    rendered: Rendered,
    capsys: pytest.CaptureFixture[str],
) -> None:
    meshes.use(case.mesh)
    rendered.use(form, case.config, case.mesh)
    namespace = case.namespace or f"cli-{case.id[:40]}-{form.value[:15]}"
    cluster.create_namespace(namespace, case.labels, case.annotations)
    with changed_later(cluster, case, namespace):
        if case.expect.denied:
            with pytest.raises(ApiError, match=r"denied|invalid"):
                client.create(POD.from_dict(case.pod), namespace=namespace)
            return
        stored = client.create(POD.from_dict(case.pod), namespace=namespace)
    name = stored["metadata"]["name"]
    labels = ["-l", f"cli={case.id}"] if case.namespace else []
    if labels:
        client.patch(POD, name, {"metadata": {"labels": {"cli": case.id}}}, namespace=namespace)
    found = audited(capsys, "-n", namespace, *labels, *flags(_audited(case.config)))
    client.delete(POD, name, namespace=namespace, grace_period=0)

    assert expected_part(dict(stored), case) == expectation(case)
    assert [pod["pod"] for pod in found["pods"]] == [name]
    assert found["pods"][0]["verdict"] in after(case)


def _audited(config: Mapping[str, str]) -> dict[str, str]:
    """The options that matter to existing Pods."""
    return {name: value for name, value in config.items() if name != "failure-policy"}


@pytest.fixture
def team(namespace: MakeNamespace, istiod: Istiod, client: Client, rendered: Rendered) -> str:
    """A namespace of the mesh with a Pod that was created without the remedy."""
    rendered.remove()
    name = namespace({"istio-injection": "enabled", "suite": "cli"})
    client.create(POD.from_dict({**A_POD, "metadata": {"name": "lonely"}}), namespace=name)
    return name


@pytest.mark.usefixtures("kubeconfig_of_admin")
def test_the_table_is_for_people_and_an_exit_code_for_scripts(
    team: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["audit", "-n", team, "--mesh-namespace", NAMESPACE, "--exit-code"]) == 3
    printed = capsys.readouterr().out
    assert "lonely" in printed
    assert Verdict.NEEDS_REMEDY.value in printed
    assert "the CNI plugin redirects" in printed


def test_a_user_without_rights_is_told_which_are_missing(
    api_server: ControlPlane, istiod: Istiod, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["audit", "--kubeconfig", str(api_server.kubeconfig(STRANGER))]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "cannot list resource" in captured.err
    assert "the right to list Pods" in captured.err


def test_what_is_not_in_the_kubeconfig_is_named(
    api_server: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["audit", "--kubeconfig", str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err
    kubeconfig = str(api_server.kubeconfig())
    assert cli.main(["audit", "--kubeconfig", kubeconfig, "--context", "nowhere"]) == 1
    assert "nowhere" in capsys.readouterr().err
