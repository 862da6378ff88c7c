"""The actions on existing Pods: parameters in, results out. No rule, no Kubernetes objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

import msgspec
import ops

from init_egress.backends import choice, coverage, verification
from init_egress.backends.backend import Unavailable
from init_egress.backends.verification import Prover
from init_egress.backends.webhook_deployment import WorkloadInputs
from init_egress.config import ConfigError, Settings
from init_egress.existing import audit, explanation, survey
from init_egress.existing.advice import Juju
from init_egress.existing.mutation import Mutation, MutationReport, MutationResult, Restart
from init_egress.kube.application import Application
from init_egress.kube.client import ApiClient
from init_egress.kube.cluster import Cluster
from init_egress.kube.errors import ClusterError, Forbidden
from init_egress.kube.scope import Scope, check_name
from init_egress.mesh import istiod, sidecars
from init_egress.results import ACTION_LIMIT
from init_egress.rule.verdict import Verdict

Inputs = tuple[Cluster, Settings, Application, str, WorkloadInputs | None]
"""What the reconciler takes: all that Juju and the operator say."""

OPERATIONAL = (ConfigError, istiod.MeshUnknown, istiod.MeshPending, Unavailable, ClusterError)
"""What an operator, or time, can mend. Anything else is a fault of the charm."""

_FINDINGS_LIMIT = 60_000
_PROOF_SECONDS = 5.0


@dataclass(frozen=True)
class AuditParams:
    """The parameters of `audit`."""

    namespace: str = ""
    selector: str = ""
    verdict: str = ""
    format: str = "json"

    @property
    def scope(self) -> Scope:
        """Which Pods are asked about."""
        return Scope(self.namespace, self.selector)

    def __post_init__(self) -> None:
        if self.verdict:
            Verdict(self.verdict)
        if self.format not in ("json", "table"):
            raise ValueError(f"format: {self.format!r} is neither json nor table")
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

    @property
    def scope(self) -> Scope:
        """Which Pods are asked about."""
        return Scope(self.namespace, self.selector)

    def __post_init__(self) -> None:
        if self.restart not in [restart.value for restart in Restart]:
            raise ValueError(f"restart: {self.restart!r} is none of none, stuck, all")
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
        try:
            cluster, settings, _, mesh_namespace, _ = self._inputs()
            bulk = ApiClient.connect()
            seen = istiod.read(mesh_namespace, cluster.config_maps(mesh_namespace))
            facts = seen.facts() + sidecars.facts(bulk, params.namespace, mesh_namespace)
            found = audit.audit(
                bulk,
                settings.policy,
                params.scope,
                Juju(self._application),
                verdict=Verdict(params.verdict) if params.verdict else None,
                limit=_FINDINGS_LIMIT,
                progress=event.log,
            )
        except OPERATIONAL as error:
            event.fail(message(error, self._application))
            return
        results: dict[str, object] = {"summary": found.summary, "pods": found.pods}
        results |= {verdict.value: n for verdict, n in audit.ordered(found.verdicts)}
        results |= {"stuck": found.stuck, "unreadable": found.unreadable.count}
        if found.left_out:
            results |= {"left-out": found.left_out, "narrow": found.narrow}
        if params.format == "table":
            results["table"] = audit.table(found, facts, ACTION_LIMIT)
        else:
            results["document"] = msgspec.json.encode(audit.document(found, facts)).decode()
        event.set_results(results)

    def _on_verify(self, event: ops.ActionEvent) -> None:
        params = event.load_params(VerifyParams, errors="fail")
        try:
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
        except OPERATIONAL as error:
            event.fail(message(error, self._application))
            return
        event.set_results(covered.results())

    def _on_explain(self, event: ops.ActionEvent) -> None:
        params = event.load_params(ExplainParams, errors="fail")
        try:
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
        except OPERATIONAL as error:
            event.fail(message(error, self._application))
            return
        event.set_results(explained.results())

    def _on_mutate(self, event: ops.ActionEvent) -> None:
        params = event.load_params(MutateParams, errors="fail")
        report = MutationReport(params.scope, params.dry_run, ACTION_LIMIT)
        try:
            cluster, settings, application, _, _ = self._inputs()
            backend = choice.choose(settings, cluster.serves, application.name)
            policy = settings.policy
            prover = Prover(cluster, policy, application, backend, _PROOF_SECONDS)
            Mutation(
                ApiClient.connect(dry_run=params.dry_run),
                policy,
                params.scope,
                Restart(params.restart),
                prover.would_recur,
                report,
                progress=event.log,
            ).run()
        except OPERATIONAL as error:
            event.fail(message(error, self._application))
            return
        counts = {name: str(count) for name, count in report.counts().items()}
        event.set_results({"summary": report.summary(), **counts, "document": report.document()})
        if report.broken_off or report.results[MutationResult.FAILED]:
            event.fail(report.summary())


def message(error: Exception, application: str) -> str:
    """What to tell the operator, with the command that helps where there is one."""
    if isinstance(error, Forbidden):
        return f"no right to the cluster; run: juju trust {application} --scope=cluster"
    return str(error)
