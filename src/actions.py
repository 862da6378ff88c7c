"""The actions on existing Pods: parameters in, results out. No rule, no Kubernetes objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import TypeVar

import msgspec
import ops

from init_egress.backends import choice, coverage, verification
from init_egress.backends.backend import Unavailable
from init_egress.backends.verification import Prover
from init_egress.backends.webhook_deployment import WorkloadInputs
from init_egress.config import ConfigError, Settings
from init_egress.existing import audit, explanation, survey
from init_egress.existing.advice import Juju
from init_egress.existing.mutation import Disruptions, Mutation
from init_egress.existing.mutation_plan import Restart
from init_egress.existing.mutation_report import MutationReport, MutationResult
from init_egress.kube.application import Application
from init_egress.kube.client import ApiClient
from init_egress.kube.cluster import Cluster
from init_egress.kube.errors import ClusterError, Forbidden
from init_egress.kube.scope import Scope, check_name
from init_egress.mesh import istiod
from init_egress.mesh.facts import mesh_facts
from init_egress.results import ACTION_LIMIT
from init_egress.rule.verdict import Verdict

Inputs = tuple[Cluster, Settings, Application, str, WorkloadInputs | None]
"""What the reconciler takes: all that Juju and the operator say."""

OPERATIONAL = (ConfigError, istiod.MeshUnknown, istiod.MeshPending, Unavailable, ClusterError)
"""What an operator, or time, can mend. Anything else is a fault of the charm."""

_FINDINGS_LIMIT = 60_000
_PROOF_SECONDS = 5.0
_DISRUPTIONS = 50
_E = TypeVar("_E", bound=Enum)


class Format(str, Enum):
    """How a result is shown: for people, or for scripts."""

    JSON = "json"
    TABLE = "table"


def _choice(param: str, text: str, choices: type[_E]) -> _E:
    """The choice of this name.

    Raises:
        ValueError: there is none; the message names them all.
    """
    try:
        return choices(text)
    except ValueError:
        names = ", ".join(choice.value for choice in choices)
        raise ValueError(f"{param}: {text!r} is not one of {names}") from None


@dataclass(frozen=True)
class AuditParams:
    """The parameters of `audit`."""

    namespace: str = ""
    selector: str = ""
    verdict: str = ""
    format: str = Format.JSON.value

    @property
    def scope(self) -> Scope:
        """Which Pods are asked about."""
        return Scope(self.namespace, self.selector)

    def __post_init__(self) -> None:
        if self.verdict:
            _choice("verdict", self.verdict, Verdict)
        _choice("format", self.format, Format)
        _ = self.scope


@dataclass(frozen=True)
class VerifyParams:
    """The parameters of `verify`."""

    namespace: str = ""

    def __post_init__(self) -> None:
        if self.namespace:
            check_name(self.namespace, "Namespace")


@dataclass(frozen=True)
class ExplainParams:
    """The parameters of `explain`."""

    namespace: str
    pod: str

    def __post_init__(self) -> None:
        check_name(self.namespace, "Namespace")
        check_name(self.pod, "Pod")


@dataclass(frozen=True)
class MutateParams:
    """The parameters of `mutate-existing-pods`."""

    namespace: str = ""
    selector: str = ""
    dry_run: bool = False
    restart: str = Restart.STUCK.value
    max_disruptions: int = _DISRUPTIONS

    @property
    def scope(self) -> Scope:
        """Which Pods are asked about."""
        return Scope(self.namespace, self.selector)

    def __post_init__(self) -> None:
        _choice("restart", self.restart, Restart)
        if self.max_disruptions < 1:
            raise ValueError(f"max-disruptions: {self.max_disruptions} is less than 1")
        _ = self.scope


class Actions(ops.Object):
    """Carries out the actions that read and mend existing Pods.

    Args:
        charm: whose actions they are.
        inputs: gives what the operator configured; raises what is in `OPERATIONAL`.
    """

    def __init__(self, charm: ops.CharmBase, inputs: Callable[[], Inputs]) -> None:
        super().__init__(charm, "actions")
        self._inputs = inputs
        self._application = charm.app.name
        self.framework.observe(charm.on.audit_action, self._on_audit)
        self.framework.observe(charm.on.verify_action, self._on_verify)
        self.framework.observe(charm.on.explain_action, self._on_explain)
        self.framework.observe(charm.on.mutate_existing_pods_action, self._on_mutate)

    def _on_audit(self, event: ops.ActionEvent) -> None:
        params = event.load_params(AuditParams, errors="fail")
        with self._failing(event):
            cluster, settings, _, mesh_namespace, _ = self._inputs()
            api = ApiClient.connect()
            facts = mesh_facts(cluster, api, params.namespace, mesh_namespace)
            found = audit.audit(
                api,
                settings.policy,
                params.scope,
                Juju(self._application),
                verdict=Verdict(params.verdict) if params.verdict else None,
                limit=_FINDINGS_LIMIT,
                progress=event.log,
            )
            results: dict[str, object] = {"summary": found.summary, "pods": found.pods}
            results |= {verdict.value: n for verdict, n in audit.ordered(found.verdicts)}
            results |= {"stuck": found.stuck, "unreadable": found.unreadable.count}
            if found.left_out:
                results |= {"left-out": found.left_out, "narrow": found.narrow}
            if params.format == Format.TABLE.value:
                results["table"] = audit.table(found, facts, ACTION_LIMIT)
            else:
                results["document"] = msgspec.json.encode(audit.document(found, facts)).decode()
            event.set_results(results)

    def _on_verify(self, event: ops.ActionEvent) -> None:
        params = event.load_params(VerifyParams, errors="fail")
        with self._failing(event):
            cluster, settings, application, mesh_namespace, _ = self._inputs()
            backend = choice.choose(settings, cluster.serves, application.name)
            if params.namespace:
                asked = [survey.read_namespace(ApiClient.connect(), params.namespace)]
            else:
                seen = istiod.read(mesh_namespace, cluster.config_maps(mesh_namespace))
                asked = verification.mesh_namespaces(cluster.namespaces(), settings.policy, seen)
            covered = coverage.cover(
                Prover(cluster, settings.policy, application, backend),
                asked,
                limit=_FINDINGS_LIMIT,
                progress=event.log,
            )
            event.set_results(covered.results())

    def _on_explain(self, event: ops.ActionEvent) -> None:
        params = event.load_params(ExplainParams, errors="fail")
        with self._failing(event):
            cluster, settings, application, _, _ = self._inputs()
            explained = explanation.explain(
                ApiClient.connect(),
                cluster,
                settings.policy,
                application,
                choice.choose(settings, cluster.serves, application.name),
                params.namespace,
                params.pod,
                datetime.now(timezone.utc),
            )
            event.set_results(explained.results())

    def _on_mutate(self, event: ops.ActionEvent) -> None:
        params = event.load_params(MutateParams, errors="fail")
        with self._failing(event):
            cluster, settings, application, _, _ = self._inputs()
            backend = choice.choose(settings, cluster.serves, application.name)
            prover = Prover(cluster, settings.policy, application, backend, _PROOF_SECONDS)
            report = MutationReport(params.scope, params.dry_run, ACTION_LIMIT)
            Mutation(
                ApiClient.connect(dry_run=params.dry_run),
                settings.policy,
                params.scope,
                Restart(params.restart),
                prover.would_recur,
                report,
                Disruptions(params.max_disruptions),
                progress=event.log,
            ).run()
            event.set_results(report.action_results())
            if report.broken_off or report.results[MutationResult.FAILED]:
                event.fail(report.summary())

    @contextmanager
    def _failing(self, event: ops.ActionEvent) -> Iterator[None]:
        """Let what an operator, or time, can mend fail the action, with the command that helps."""
        try:
            yield
        except OPERATIONAL as error:
            event.fail(message(error, self._application))


def message(error: Exception, application: str) -> str:
    """What to tell the operator, with the command that helps where there is one."""
    if isinstance(error, Forbidden):
        return f"no right to the cluster; run: juju trust {application} --scope=cluster"
    return str(error)
