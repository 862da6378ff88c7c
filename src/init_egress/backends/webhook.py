"""The webhook backend: an admission webhook of the charm's own, and the workload behind it.

The order in which its objects are applied keeps Pods from harm: the API server calls the webhook
only once a replica answers, trusts a new authority before a replica serves with it, and may refuse
Pods for want of it (failure-policy=fail) only once the remedy was seen to arrive.
"""

from __future__ import annotations

from dataclasses import replace

from init_egress.backends import webhook_deployment
from init_egress.backends.backend import (
    Backend,
    BackendKind,
    Capabilities,
    Installed,
    Objects,
    PlanInputs,
    Timeouts,
    Unavailable,
)
from init_egress.backends.effect import Effect, Verification
from init_egress.backends.policy import FAILURE_POLICY, INJECTED, namespace_expressions
from init_egress.backends.render import render
from init_egress.backends.webhook_deployment import Rollout, WebhookValues
from init_egress.config import BackendChoice, FailurePolicy, Settings
from init_egress.kube.application import Application
from init_egress.kube.cluster import Cluster
from init_egress.kube.kinds import DEPLOYMENT, WEBHOOK_CONFIGURATION
from init_egress.kube.manifest import Manifest, mapping
from init_egress.kube.wait import poll
from init_egress.mesh import injection as istio
from init_egress.mesh.injection import Injection

_IGNORE, _FAIL = FAILURE_POLICY[FailurePolicy.IGNORE], FAILURE_POLICY[FailurePolicy.FAIL]


class WebhookBackend(Backend):
    """A MutatingWebhookConfiguration, and the Deployment that it has the API server call."""

    kind = BackendKind.WEBHOOK
    title = "webhook"
    choice = BackendChoice.WEBHOOK
    resource = WEBHOOK_CONFIGURATION
    requires = "MutatingWebhookConfiguration"
    capabilities = Capabilities(
        own_options=frozenset({"webhook-replicas"}), runs_workload=True, proves_before_fail=True
    )
    templates = ("webhook/workload.yaml.j2", "webhook/configuration.yaml.j2")

    def object_name(self, application: Application) -> str:
        """See `Backend.object_name`.

        The API server calls webhooks in the order of their configurations' names: after Istio's.
        """
        return f"zz-{application.object_name}"

    def objects(self, cluster: Cluster, inputs: PlanInputs) -> Objects:
        """See `Backend.objects`."""
        settings, application, now = inputs.settings, inputs.application, inputs.now
        if inputs.workload is None:
            raise Unavailable(
                "backend=webhook needs its image; run: juju attach-resource"
                f" {application.name} webhook-image=<image>"
            )
        remarks: list[str] = []
        rollout = _read_rollout(cluster, application)
        if settings.failure_policy is FailurePolicy.FAIL and rollout.is_idle(now):
            # Better Pods without the remedy than no Pods, until a replica answers again.
            settings = replace(settings, failure_policy=FailurePolicy.IGNORE)
            remarks.append("failure-policy=fail is suspended while no replica answers")
        values = webhook_deployment.prepare(
            cluster, settings, application, self.probe_label(application), inputs.workload, now
        )
        if values.trust.identity.is_near_its_end(now):
            remarks.append(f"certificate ends on {values.trust.identity.expires:%Y-%m-%d}")
        manifests = self.render(settings, application, inputs.mesh.injection, values)
        return Objects(manifests, tuple(remarks))

    def render(
        self,
        settings: Settings,
        application: Application,
        injection: Injection,
        values: WebhookValues,
    ) -> list[Manifest]:
        """Render the objects.

        Args:
            settings: the charm's configuration.
            application: the application that the objects belong to.
            injection: what selectors have to know of the mesh.
            values: what the workload's templates are filled with.
        """
        # Where Istio labels every Pod that it injects, the label says what the condition would.
        by_label = injection.labels_canonical_name
        context = {
            "name": self.object_name(application),
            "labels": application.labels,
            "failure_policy": FAILURE_POLICY[settings.failure_policy],
            "namespace_expressions": namespace_expressions(settings.policy),
            "injected_expressions": [r.expression() for r in istio.INJECTED] if by_label else [],
            "injected_conditions": [] if by_label else [INJECTED],
            "workload": values,
        }
        return render(self.templates, context)

    def install(
        self,
        cluster: Cluster,
        application: Application,
        manifests: list[Manifest],
        timeouts: Timeouts,
    ) -> Installed:
        """See `Backend.install`."""
        configuration, workload = _split(manifests)
        stored = cluster.get(self.resource, self.object_name(application))
        first = configuration if _fails(stored) else _ignoring(configuration)
        if stored:
            # A new authority must be trusted before a replica serves a certificate of it.
            cluster.apply([first])
        cluster.apply(workload)
        rollout = poll(
            lambda: _read_rollout(cluster, application),
            lambda rollout: rollout.complete,
            timeouts.rollout,
        )
        if rollout.ready and not stored:
            cluster.apply([first])
        if not rollout.ready and _fails(first):
            cluster.apply([_ignoring(configuration)])
        return Installed(rollout.complete, str(rollout))

    def settle(
        self,
        cluster: Cluster,
        application: Application,
        manifests: list[Manifest],
        verification: Verification,
    ) -> tuple[str, ...]:
        """See `Backend.settle`; failure-policy=fail is what waits for the proof."""
        configuration, _ = _split(manifests)
        if not _fails(configuration):
            return ()
        in_force = _fails(cluster.get(self.resource, self.object_name(application)))
        if verification.effect is Effect.ARRIVES:
            if not in_force:
                cluster.apply([configuration])
            return ()
        refuted = verification.effect is Effect.MISSING or verification.call_failed
        if in_force and not refuted:
            return ()
        if in_force:
            cluster.apply([_ignoring(configuration)])
        return ("failure-policy=fail is suspended until the remedy is seen to arrive",)


def _read_rollout(cluster: Cluster, application: Application) -> Rollout:
    return webhook_deployment.read_rollout(
        cluster.get(DEPLOYMENT, application.webhook_name, application.model)
    )


def _split(manifests: list[Manifest]) -> tuple[Manifest, list[Manifest]]:
    """The webhook configuration, and what it needs."""
    title = WEBHOOK_CONFIGURATION.__name__
    configuration = next(manifest for manifest in manifests if manifest["kind"] == title)
    return configuration, [manifest for manifest in manifests if manifest is not configuration]


def _fails(configuration: Manifest | None) -> bool:
    """Whether the API server refuses Pods if it can't call the webhook."""
    return any(webhook.get("failurePolicy") == _FAIL for webhook in _webhooks(configuration))


def _ignoring(configuration: Manifest) -> Manifest:
    """The configuration with failurePolicy Ignore."""
    webhooks = [{**webhook, "failurePolicy": _IGNORE} for webhook in _webhooks(configuration)]
    return {**configuration, "webhooks": webhooks}


def _webhooks(configuration: Manifest | None) -> list[dict[str, object]]:
    webhooks = (configuration or {}).get("webhooks")
    return [{**mapping(webhook)} for webhook in webhooks] if isinstance(webhooks, list) else []
