"""The webhook's certificate: who signs it, when it is renewed, and whom the API server trusts.

Secrets on the cluster are the source of truth for every unit, so a change of leader changes
nothing. A new authority is trusted before anybody serves a certificate of it, and an old one until
nobody does: the webhook configuration holds both while the replicas are replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from charmlibs.interfaces.tls_certificates import (
    Certificate,
    CertificateRequestAttributes,
    CertificateSigningRequest,
    KeyAlgorithm,
    PrivateKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import load_pem_x509_certificate


@dataclass(frozen=True)
class Lifetimes:
    """How long certificates live that the charm signs itself."""

    authority: timedelta = timedelta(days=3650)
    leaf: timedelta = timedelta(days=365)


@dataclass(frozen=True)
class Authority:
    """A certificate authority of the charm's own.

    Attributes:
        certificate: its certificate, PEM.
        key: its private key, PEM.
    """

    certificate: str
    key: str


@dataclass(frozen=True)
class Identity:
    """What the webhook serves with.

    Attributes:
        certificate: its certificate and those between it and the authority, PEM.
        key: its private key, PEM in PKCS#8.
        authority: the certificate of the authority that signed it, PEM.
    """

    certificate: str
    key: str
    authority: str

    @property
    def expires(self) -> datetime:
        """When the certificate ends."""
        return Certificate.from_string(self.certificate).expiry_time

    def is_due(self, now: datetime) -> bool:
        """Whether two thirds of its life are over."""
        return _is_due(self.certificate, now)

    def is_near_its_end(self, now: datetime) -> bool:
        """Whether five sixths of its life are over: somebody should have renewed it."""
        return _passed(self.certificate, now) > 5 / 6

    def serves(self, hosts: frozenset[str]) -> bool:
        """Whether it is valid for exactly these host names."""
        return Certificate.from_string(self.certificate).sans_dns == set(hosts)


@dataclass(frozen=True)
class Trust:
    """What is served and what is trusted.

    Attributes:
        identity: what the replicas serve with, once they are replaced.
        previous: the authority of what replicas not yet replaced serve with, PEM; else empty.
    """

    identity: Identity
    previous: str = ""

    @property
    def bundle(self) -> str:
        """The authorities that the API server shall trust, PEM."""
        return self.identity.authority + self.previous


def signed(
    authority: Authority | None,
    identity: Identity | None,
    hosts: frozenset[str],
    now: datetime,
    lifetimes: Lifetimes,
) -> tuple[Authority, Identity]:
    """The charm's own authority and an identity signed by it, each renewed if it is time.

    Args:
        authority: the authority that there is, if any.
        identity: the identity that there is, if any, whoever signed it.
        hosts: the host names that the identity is for.
        now: the time, with its zone.
        lifetimes: for what is recreated.
    """
    if authority is None or _is_due(authority.certificate, now):
        authority = _new_authority(lifetimes.authority)
    if (
        identity is None
        or identity.authority != authority.certificate
        or identity.is_due(now)
        or not identity.serves(hosts)
    ):
        identity = _new_identity(authority, hosts, lifetimes.leaf)
    return authority, identity


def followed_by(before: Trust | None, identity: Identity, settled: bool) -> Trust:
    """The trust with an identity in the place of the one before.

    Args:
        before: what was served and trusted, if anything was.
        identity: what is served from now on.
        settled: whether every replica serves with the identity of `before` already, so that the
            authority before that is trusted no longer.
    """
    if before is None:
        return Trust(identity)
    previous = "" if settled else before.previous
    if before.identity.authority == identity.authority:
        return Trust(identity, previous)
    return Trust(identity, before.identity.authority + previous)


def pkcs8(key: str) -> str:
    """A private key in PKCS#8, the one form that the webhook's server reads.

    Raises:
        ValueError: it is no private key.
    """
    loaded = load_pem_private_key(key.encode(), password=None)
    return loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def check(certificate: str) -> None:
    """Make sure that it is a certificate.

    Raises:
        ValueError: it is none.
    """
    load_pem_x509_certificate(certificate.encode())


def _new_authority(lifetime: timedelta) -> Authority:
    key = PrivateKey.generate(key_algorithm=KeyAlgorithm.ECDSA)
    attributes = CertificateRequestAttributes(common_name="istio-init-egress", is_ca=True)
    certificate = Certificate.generate_self_signed_ca(attributes, key, lifetime)
    return Authority(_pem(certificate), pkcs8(str(key)))


def _new_identity(authority: Authority, hosts: frozenset[str], lifetime: timedelta) -> Identity:
    key = PrivateKey.generate(key_algorithm=KeyAlgorithm.ECDSA)
    request = CertificateSigningRequest.generate(attributes(hosts), key)
    certificate = request.sign(
        Certificate.from_string(authority.certificate),
        PrivateKey.from_string(authority.key),
        lifetime,
    )
    return Identity(_pem(certificate), pkcs8(str(key)), authority.certificate)


def attributes(hosts: frozenset[str]) -> CertificateRequestAttributes:
    """What to ask an authority for; host names may be longer than a common name can be."""
    return CertificateRequestAttributes(
        common_name="istio-init-egress", sans_dns=hosts, add_unique_id_to_subject_name=False
    )


def _pem(certificate: Certificate) -> str:
    return str(certificate).rstrip("\n") + "\n"


def _passed(certificate: str, now: datetime) -> float:
    """Which part of a certificate's life is over."""
    parsed = Certificate.from_string(certificate)
    begin, end = parsed.validity_start_time, parsed.expiry_time
    return (now - begin) / (end - begin)


def _is_due(certificate: str, now: datetime) -> bool:
    return _passed(certificate, now) > 2 / 3
