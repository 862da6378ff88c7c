#!/usr/bin/env python3
"""The charm: Juju's events, relations, actions and status. No YAML, no Kubernetes objects."""

from __future__ import annotations

import logging

import ops
import yaml
from charmlibs.interfaces.istio_metadata import IstioMetadataRequirer
from charmlibs.interfaces.tls_certificates import (
    KeyAlgorithm,
    Mode,
    ProviderCertificate,
    TLSCertificatesRequiresV4,
)

import actions
from actions import OPERATIONAL
from init_egress.backends import certificates, manifests, reconciler, webhook_deployment
from init_egress.backends.certificates import Identity
from init_egress.backends.manifests import MODEL_LABEL, Application
from init_egress.backends.reconciler import ReconcileReport
from init_egress.backends.verification import Effect
from init_egress.backends.webhook_deployment import Image, WorkloadInputs
from init_egress.config import Config, Settings
from init_egress.kube.client import ApiClient
from init_egress.kube.errors import ClusterError, Unreachable
from init_egress.mesh import istiod
from init_egress.observability import scraping
from init_egress.observability.relations import Observability
from init_egress.rule.remedies import REMEDIES

logger = logging.getLogger(__name__)
# Both tell of every request, in eleven lines, and each line is a process of its own: juju-log.
for _library in ("httpcore2", "httpx2"):
    logging.getLogger(_library).setLevel(logging.WARNING)

CERTIFICATES = "certificates"
GATEWAY_INFO = "gateway-info"
ISTIO_METADATA = "istio-metadata"
WEBHOOK_IMAGE = "webhook-image"


class IstioInitEgressCharm(ops.CharmBase):
    """Keeps on the cluster what gives init containers of the mesh their network back."""

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        self._owner = Application(self.app.name, self.model.name)
        self._status: ops.StatusBase | None = None
        self._request = certificates.attributes(webhook_deployment.hosts(self._owner))
        self._certificates = TLSCertificatesRequiresV4(
            self,
            CERTIFICATES,
            [self._request],
            mode=Mode.APP,
            key_algorithm=KeyAlgorithm.ECDSA,
            renewal_relative_time=2 / 3,
        )
        self._observability = Observability(self)
        # Whatever happened, the state of the cluster is looked at and repaired.
        repairing = [
            self.on.install,
            self.on.start,
            self.on.upgrade_charm,
            self.on.config_changed,
            self.on.leader_elected,
            self.on.update_status,
            self.on[CERTIFICATES].relation_broken,
            self._certificates.on.certificate_available,
            *self._observability.events,
        ]
        for endpoint in (GATEWAY_INFO, ISTIO_METADATA):
            events = self.on[endpoint]
            repairing += [
                events.relation_created,
                events.relation_changed,
                events.relation_broken,
            ]
        for event in repairing:
            framework.observe(event, self._reconcile)
        framework.observe(self.on.remove, self._on_remove)
        framework.observe(self.on.collect_unit_status, self._on_collect_unit_status)
        framework.observe(self.on.show_policy_action, self._on_show_policy)
        framework.observe(self.on.rotate_certificates_action, self._on_rotate_certificates)
        self._actions = actions.Actions(self, lambda: self._inputs(self._settings()))

    def _reconcile(self, _: ops.EventBase) -> None:
        self._observability.publish_static()
        if not self.unit.is_leader():
            self._status = ops.ActiveStatus("standby: not the leader")
            return
        settings: Settings | None = None
        report: ReconcileReport | None = None
        try:
            settings = self._settings()
            report = reconciler.reconcile(*self._inputs(settings))
            self._status = _reached(report, settings)
        except OPERATIONAL as error:
            logger.warning("%s", error)
            self._status = self._status_of(error)
        self._update_monitoring(report, settings)

    def _update_monitoring(
        self, report: ReconcileReport | None, settings: Settings | None
    ) -> None:
        """Tell those who watch what was seen; if it can't be told, all else is as it is."""
        image = self._image() if self._observability.scraped else None
        policy = settings.policy if settings else None
        try:
            targets = scraping.update(
                ApiClient.connect(), self._owner, image, report, policy, reconciler.now()
            )
            self._observability.publish(targets)
        except ClusterError as error:
            logger.warning("those who watch are told nothing new: %s", error)

    def _on_collect_unit_status(self, event: ops.CollectStatusEvent) -> None:
        # After an action nothing was looked at, and the status stays as it was.
        if self._status is not None:
            event.add_status(self._status)

    def _on_show_policy(self, event: ops.ActionEvent) -> None:
        try:
            plan = reconciler.plan(*self._inputs(self._settings()))
        except OPERATIONAL as error:
            event.fail(self._status_of(error).message)
            return
        shown = [webhook_deployment.without_secrets(manifest) for manifest in plan.objects]
        event.set_results(
            {
                "backend": plan.form.value,
                "objects": len(plan.objects),
                "policy": manifests.to_yaml(shown),
            }
        )

    def _on_rotate_certificates(self, event: ops.ActionEvent) -> None:
        if not self.unit.is_leader():
            event.fail(f"run: juju run {self.app.name}/leader rotate-certificates")
            return
        try:
            settings = self._settings()
            inputs = self._inputs(settings, rotate=True)
            if reconciler.plan(*inputs).workload is None:
                event.fail("only backend=webhook has a certificate")
                return
            if self.model.get_relation(CERTIFICATES):
                self._certificates.regenerate_private_key()
                event.set_results({"result": "a new certificate was asked for; it is on its way"})
                return
            report = reconciler.reconcile(*inputs)
        except OPERATIONAL as error:
            event.fail(self._status_of(error).message)
            return
        self._status = _reached(report, settings)
        event.set_results({"result": self._status.message})

    def _on_remove(self, _: ops.RemoveEvent) -> None:
        """Leave nothing behind with the last unit. Whatever goes wrong, the removal goes on."""
        try:
            if self.app.planned_units() > 0:
                return
            cluster = ApiClient.connect()
            cluster.prune(self._owner)
            scraping.remove(cluster, self._owner)
        except Exception:
            logger.exception(
                "could not clean the cluster; what is left has the label %s=%s",
                MODEL_LABEL,
                self._owner.model,
            )

    def _settings(self) -> Settings:
        settings = self.load_config(Config).settings()
        for note in settings.notes:
            logger.warning("%s", note)
        return settings

    def _inputs(self, settings: Settings, *, rotate: bool = False) -> actions.Inputs:
        """All that the reconciler needs, from Juju."""
        namespace = self._mesh_namespace(settings)
        return ApiClient.connect(), settings, self._owner, namespace, self._sources(rotate)

    def _sources(self, rotate: bool) -> WorkloadInputs | None:
        image = self._image()
        if image is None:
            return None
        return WorkloadInputs(image, self._external_identity(), rotate, self._observability.logs())

    def _image(self) -> Image | None:
        try:
            path = self.model.resources.fetch(WEBHOOK_IMAGE)
            details = yaml.safe_load(path.read_text())
            return Image(
                details["registrypath"], details.get("username", ""), details.get("password", "")
            )
        except (ops.ModelError, NameError, OSError, KeyError, TypeError, yaml.YAMLError) as error:
            logger.info("no usable resource %s: %s", WEBHOOK_IMAGE, error)
            return None

    def _external_identity(self) -> Identity | None:
        """The certificate of the certificates relation, once there is one."""
        if not self.model.get_relation(CERTIFICATES):
            return None
        assigned, key = self._certificates.get_assigned_certificate(self._request)
        if assigned is None or key is None:
            return None
        chain = "".join(f"{certificate}\n" for certificate in _leaf_first(assigned))
        return Identity(chain, certificates.pkcs8(str(key)), f"{assigned.ca}\n")

    def _mesh_namespace(self, settings: Settings) -> str:
        ends: list[istiod.Related] = []
        if relation := self.model.get_relation(GATEWAY_INFO):
            namespace = relation.data[relation.app].get("gateway_namespace", "")
            ends.append(
                istiod.Related(GATEWAY_INFO, relation.app.name, "gateway_namespace", namespace)
            )
        if relation := self.model.get_relation(ISTIO_METADATA):
            ends.append(
                istiod.Related(
                    ISTIO_METADATA, relation.app.name, "root_namespace", self._root_namespace()
                )
            )
        return istiod.namespace(settings.mesh_namespace, ends, self.app.name)

    def _root_namespace(self) -> str:
        try:
            data = IstioMetadataRequirer(self.model.relations, ISTIO_METADATA).get_data()
        except ValueError as error:
            logger.warning("%s", error)
            return ""
        return data.root_namespace if data else ""

    def _status_of(self, error: Exception) -> ops.StatusBase:
        text = actions.message(error, self.app.name)
        if isinstance(error, (istiod.MeshPending, Unreachable)):
            return ops.WaitingStatus(text)
        return ops.BlockedStatus(text)


def _leaf_first(assigned: ProviderCertificate) -> list[str]:
    """The certificate and those between it and its authority, which the API server has."""
    between = [c for c in assigned.chain if c not in (assigned.certificate, assigned.ca)]
    return [str(certificate) for certificate in (assigned.certificate, *between)]


def _reached(report: ReconcileReport, settings: Settings) -> ops.StatusBase:
    form, verified = report.plan.form, report.verification
    if verified.effect is Effect.MISSING:
        return ops.WaitingStatus(
            f"{form.description}: applied, but not in effect yet ({verified.detail});"
            " what was in force before stays" + "".join(f"; {remark}" for remark in report.remarks)
        )
    parts = [f"{form.description}: {REMEDIES[settings.policy.remedy].status(settings.policy)}"]
    if verified.effect is Effect.ARRIVES:
        parts.append(f"verified in {verified.detail}")
    else:
        parts.append(f"not verified: {verified.detail}")
    if verified.native_sidecars:
        parts.append("native sidecars: only Pods that opt out of them need it")
    parts += [*report.plan.mesh.remarks(), *settings.notes, *report.remarks]
    return ops.ActiveStatus("; ".join(parts))


if __name__ == "__main__":
    ops.main(IstioInitEgressCharm)
