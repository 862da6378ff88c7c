"""The webhook's workload: what its manifests are filled with, and how far its roll-out is."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
import yaml

from init_egress.backends import certificates
from init_egress.backends.certificates import Authority, Identity, Lifetimes, Trust
from init_egress.config import Settings
from init_egress.kube.application import Application
from init_egress.kube.cluster import Cluster
from init_egress.kube.kinds import DEPLOYMENT, SECRET
from init_egress.kube.manifest import Manifest, mapping
from init_egress.telemetry import loki

logger = logging.getLogger(__name__)

LIFETIMES = Lifetimes()
_CERTIFICATE = "istio-init-egress/certificate"
PATIENCE_WITH_NO_REPLICA = timedelta(seconds=60)
"""How long no replica may be ready before failure-policy=fail gives way to ignore."""


@dataclass(frozen=True)
class Image:
    """The workload's image, as Juju has it.

    Attributes:
        reference: where it is, such as `registry.example.com/webhook:1`.
        username: for a private registry, else empty.
        password: for a private registry, else empty.
    """

    reference: str
    username: str = ""
    password: str = ""


@dataclass(frozen=True)
class WorkloadInputs:
    """What the workload is made of beside the charm's options.

    Attributes:
        image: its image.
        external: an identity from the certificates relation, if there is one.
        rotate: whether everything that the charm signed itself is to be recreated.
        logs: where log lines go, if they go anywhere.
    """

    image: Image
    external: Identity | None = None
    rotate: bool = False
    logs: loki.Destination | None = None


@dataclass(frozen=True)
class WebhookValues:
    """What the webhook's templates are filled with; what ends up in a Secret is base64 already.

    Attributes:
        name: of the Deployment, the Service and the rest.
        namespace: the model's.
        image: where the image is.
        replicas: how many there are to be.
        selector: the labels of its Pods.
        settings: the mounted file, YAML.
        revision: changes with the settings.
        certificate_revision: changes with the certificate.
        authority: the data of the Secret of the charm's own authority.
        certificate: the data of the Secret of the certificate.
        registry: the credentials of a private registry, else empty.
        bundle: the authorities that the API server trusts.
        trust: the same, readable: what is served and trusted.
        logs: the mounted file that says where log lines go, JSON; empty if they go nowhere.
    """

    name: str
    namespace: str
    image: str
    replicas: int
    selector: Mapping[str, str]
    settings: str
    revision: str
    certificate_revision: str
    authority: Mapping[str, str]
    certificate: Mapping[str, str]
    registry: str
    bundle: str
    trust: Trust
    logs: str = ""


@dataclass(frozen=True)
class Rollout:
    """How far the Deployment's replicas are what they should be.

    Attributes:
        ready: replicas that answer.
        updated: replicas of the newest template.
        wanted: replicas that there should be.
        complete: whether all are of the newest template and answer, and no other is left.
        certificate_revision: which certificate the newest template serves with.
        idle_since: since when none answers, if none does.
    """

    ready: int = 0
    updated: int = 0
    wanted: int = 0
    complete: bool = False
    certificate_revision: str = ""
    idle_since: datetime | None = None

    def is_idle(self, now: datetime) -> bool:
        """Whether no replica has answered for longer than a moment."""
        return self.idle_since is not None and now - self.idle_since > PATIENCE_WITH_NO_REPLICA

    def __str__(self) -> str:
        return f"{self.ready} of {self.wanted} replicas ready, {self.updated} up to date"


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    """The part of an object that is read here."""


class _Condition(_Struct, frozen=True):
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class _Status(_Struct, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    conditions: tuple[_Condition, ...] = ()

    def unavailable_since(self) -> datetime | None:
        """Since when the Deployment is not available, if it is not."""
        unavailable = [c for c in self.conditions if (c.type, c.status) == ("Available", "False")]
        return unavailable[0].last_transition_time if unavailable else None


class _Metadata(_Struct, frozen=True):
    generation: int = 0
    annotations: dict[str, str] = {}


class _Template(_Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Spec(_Struct, frozen=True):
    replicas: int = 1
    template: _Template = _Template()


class _Deployment(_Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


def hosts(application: Application) -> frozenset[str]:
    """The names by which the API server calls the webhook."""
    service = f"{application.webhook_name}.{application.model}.svc"
    return frozenset({service, f"{service}.cluster.local"})


def selector(application: Application) -> dict[str, str]:
    """The labels of the webhook's Pods."""
    return {"istio-init-egress/webhook": application.name}


def prepare(
    cluster: Cluster,
    settings: Settings,
    application: Application,
    probe_label: str,
    sources: WorkloadInputs,
    now: datetime,
) -> WebhookValues:
    """Work out the workload, with what the cluster holds of certificates already.

    Raises:
        ClusterError: the cluster can't be asked.
    """
    stored_authority, before = _stored(cluster, application)
    authority, identity = stored_authority, sources.external
    if identity is None:
        known = (None, None) if sources.rotate else (stored_authority, before and before.identity)
        authority, identity = certificates.signed(*known, hosts(application), now, LIFETIMES)
    rollout = read_rollout(cluster.get(DEPLOYMENT, application.webhook_name, application.model))
    served = rollout.certificate_revision == _digest(identity.certificate)
    settled = rollout.complete and served
    return fill(
        settings,
        application,
        probe_label,
        sources.image,
        authority,
        certificates.followed_by(before, identity, settled),
        sources.logs,
    )


def fill(
    settings: Settings,
    application: Application,
    probe_label: str,
    image: Image,
    authority: Authority | None,
    trust: Trust,
    logs: loki.Destination | None = None,
) -> WebhookValues:
    """Fill in what the templates name.

    Args:
        settings: the charm's configuration.
        application: the application that the workload belongs to.
        probe_label: the probe label on which the webhook acts.
        image: the workload's image.
        authority: the charm's own authority, to be kept; None if it has none.
        trust: what is served and trusted.
        logs: where log lines go, if they go anywhere.
    """
    options = settings.options()
    text = yaml.safe_dump(
        {
            **options,
            "probe": probe_label,
            "revision": _digest(json.dumps(options)),
        },
        sort_keys=False,
    )
    forwarding = msgspec.json.encode(logs).decode() if logs else ""
    identity = trust.identity
    return WebhookValues(
        name=application.webhook_name,
        namespace=application.model,
        image=image.reference,
        replicas=settings.webhook_replicas,
        selector=selector(application),
        settings=text,
        revision=_digest(text + forwarding),
        certificate_revision=_digest(identity.certificate),
        authority=_encoded({"tls.crt": authority.certificate, "tls.key": authority.key})
        if authority
        else {},
        certificate=_encoded(
            {
                "tls.crt": identity.certificate,
                "tls.key": identity.key,
                "ca.crt": identity.authority,
                "previous-ca.crt": trust.previous,
            }
        ),
        registry=registry(image),
        bundle=_base64(trust.bundle),
        trust=trust,
        logs=forwarding,
    )


def read_rollout(deployment: Manifest | None) -> Rollout:
    """How far a Deployment is."""
    if deployment is None:
        return Rollout()
    read = msgspec.convert(deployment, _Deployment)
    status, wanted = read.status, read.spec.replicas
    counts = {status.ready_replicas, status.updated_replicas, status.replicas}
    return Rollout(
        ready=status.ready_replicas,
        updated=status.updated_replicas,
        wanted=wanted,
        complete=status.observed_generation == read.metadata.generation and counts == {wanted},
        certificate_revision=read.spec.template.metadata.annotations.get(_CERTIFICATE, ""),
        idle_since=None if status.ready_replicas else status.unavailable_since(),
    )


def _stored(cluster: Cluster, application: Application) -> tuple[Authority | None, Trust | None]:
    """What the Secrets hold; what somebody spoilt is as good as none."""
    authority = cluster.get(SECRET, f"{application.webhook_name}-authority", application.model)
    served = cluster.get(SECRET, f"{application.webhook_name}-certificate", application.model)
    try:
        return _read_authority(_decoded(authority)), _read_trust(_decoded(served))
    except (KeyError, ValueError) as error:
        logger.warning("the webhook's certificates are recreated: %s", error)
        return None, None


def _read_authority(data: Mapping[str, str]) -> Authority | None:
    if not data.get("tls.crt"):
        return None
    certificate, key = data["tls.crt"], certificates.pkcs8(data["tls.key"])
    certificates.check(certificate)
    return Authority(certificate, key)


def _read_trust(data: Mapping[str, str]) -> Trust | None:
    if not data.get("tls.crt"):
        return None
    identity = Identity(data["tls.crt"], certificates.pkcs8(data["tls.key"]), data["ca.crt"])
    for certificate in (identity.certificate, identity.authority):
        certificates.check(certificate)
    return Trust(identity, data.get("previous-ca.crt", ""))


def registry(image: Image) -> str:
    """The credentials of a private registry as the kubelet reads them."""
    if not image.username:
        return ""
    first = image.reference.split("/")[0]
    login = {"username": image.username, "password": image.password}
    return _base64(json.dumps({"auths": {first: login}}))


def _encoded(data: Mapping[str, str]) -> dict[str, str]:
    return {key: _base64(value) for key, value in data.items()}


def _decoded(secret: Manifest | None) -> dict[str, str]:
    data = mapping((secret or {}).get("data"))
    return {key: base64.b64decode(str(value)).decode() for key, value in data.items()}


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
