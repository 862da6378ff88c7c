#!/usr/bin/env python3
"""The charm: Juju's events, relations, actions and status. No YAML, no Kubernetes objects."""

from __future__ import annotations

import logging

import ops
import yaml
from charmlibs.interfaces.tls_certificates import (
    KeyAlgorithm,
    Mode,
    ProviderCertificate,
    TLSCertificatesRequiresV4,
)

import actions
from actions import OPERATIONAL
from init_egress.backends import certificates, reconciler, webhook_deployment
from init_egress.backends.certificates import Identity
from init_egress.backends.reconciler import Reconciler, ReconcileReport
from init_egress.backends.webhook_deployment import Image, WorkloadInputs
from init_egress.config import Config, Settings
from init_egress.kube.application import MODEL_LABEL, Application
from init_egress.kube.client import ApiClient
from init_egress.kube.cluster import Cluster
from init_egress.kube.errors import ClusterError, Unreachable
from init_egress.mesh import istiod, relations
from init_egress.observability import scraping
from init_egress.observability.relations import Observability

logger = logging.getLogger(__name__)
# Both tell of every request, in eleven lines, and each line is a process of its own: juju-log.
for _library in ("httpcore2", "httpx2"):
    logging.getLogger(_library).setLevel(logging.WARNING)

CERTIFICATES = "certificates"
WEBHOOK_IMAGE = "webhook-image"


def connect() -> Cluster:
    """The cluster that the charm runs on; a test puts another in its place.

    Raises:
        Unreachable: there is no way to it.
    """
    return ApiClient.connect()


class IstioInitEgressCharm(ops.CharmBase):
    """Keeps on the cluster what gives init containers of the mesh their network back."""

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        self._application = Application(self.app.name, self.model.name)
        self._status: ops.StatusBase | None = None
        self._request = certificates.attributes(webhook_deployment.hosts(self._application))
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
        for endpoint in relations.ENDPOINTS:
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
            report = Reconciler(*self._inputs(settings)).reconcile()
            self._status = _reached(report)
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
                connect(), self._application, image, report, policy, reconciler.now()
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
            plan = Reconciler(*self._inputs(self._settings())).plan()
        except OPERATIONAL as error:
            event.fail(self._status_of(error).message)
            return
        event.set_results(
            {
                "backend": plan.backend.kind.value,
                "objects": len(plan.objects),
                "policy": plan.to_yaml(),
            }
        )

    def _on_rotate_certificates(self, event: ops.ActionEvent) -> None:
        if not self.unit.is_leader():
            event.fail(f"run: juju run {self.app.name}/leader rotate-certificates")
            return
        try:
            wanted = Reconciler(*self._inputs(self._settings(), rotate=True))
            if not wanted.plan().backend.capabilities.runs_workload:
                event.fail("only backend=webhook has a certificate")
                return
            if self.model.get_relation(CERTIFICATES):
                self._certificates.regenerate_private_key()
                event.set_results({"result": "a new certificate was asked for; it is on its way"})
                return
            report = wanted.reconcile()
        except OPERATIONAL as error:
            event.fail(self._status_of(error).message)
            return
        self._status = _reached(report)
        event.set_results({"result": self._status.message})

    def _on_remove(self, _: ops.RemoveEvent) -> None:
        """Leave nothing behind with the last unit. Whatever goes wrong, the removal goes on."""
        if self.app.planned_units() > 0:
            return
        for application in (self._application, self._application.of_exporter):
            try:
                connect().prune(application)
            except Exception:
                logger.exception(
                    "cannot clean the cluster; what is left has the label %s=%s",
                    MODEL_LABEL,
                    application.model,
                )

    def _settings(self) -> Settings:
        settings = self.load_config(Config).settings()
        for note in settings.notes:
            logger.warning("%s", note)
        return settings

    def _inputs(self, settings: Settings, *, rotate: bool = False) -> actions.Inputs:
        """All that the reconciler needs, from Juju."""
        ends = relations.related(self.model)
        namespace = istiod.namespace(settings.mesh_namespace, ends, self.app.name)
        return connect(), settings, self._application, namespace, self._workload(rotate)

    def _workload(self, rotate: bool) -> WorkloadInputs | None:
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

    def _status_of(self, error: Exception) -> ops.StatusBase:
        text = actions.message(error, self.app.name)
        if isinstance(error, (istiod.MeshPending, Unreachable)):
            return ops.WaitingStatus(text)
        return ops.BlockedStatus(text)


def _leaf_first(assigned: ProviderCertificate) -> list[str]:
    """The certificate and those between it and its authority, which the API server has."""
    between = [c for c in assigned.chain if c not in (assigned.certificate, assigned.ca)]
    return [str(certificate) for certificate in (assigned.certificate, *between)]


def _reached(report: ReconcileReport) -> ops.StatusBase:
    if report.in_effect:
        return ops.ActiveStatus(report.message)
    return ops.WaitingStatus(report.message)


if __name__ == "__main__":
    ops.main(IstioInitEgressCharm)
