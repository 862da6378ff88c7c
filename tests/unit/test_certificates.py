"""Certificates: when they are recreated, and whom the API server trusts meanwhile."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from init_egress.backends.certificates import (
    Authority,
    Identity,
    Lifetimes,
    Trust,
    followed_by,
    pkcs8,
    signed,
)

HOSTS = frozenset({"webhook.kubeflow.svc", "webhook.kubeflow.svc.cluster.local"})
LIFETIMES = Lifetimes(authority=timedelta(days=3650), leaf=timedelta(days=365))
NOW = datetime.now(timezone.utc)


@pytest.fixture(scope="module")
def made() -> tuple[Authority, Identity]:
    return signed(None, None, HOSTS, NOW, LIFETIMES)


def parsed(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


def test_an_identity_is_signed_by_the_authority_for_the_hosts(
    made: tuple[Authority, Identity],
) -> None:
    authority, identity = made
    certificate = parsed(identity.certificate)

    certificate.verify_directly_issued_by(parsed(authority.certificate))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == HOSTS
    assert identity.authority == authority.certificate


def test_a_key_belongs_to_its_certificate_and_is_pkcs8(made: tuple[Authority, Identity]) -> None:
    _, identity = made

    key = load_pem_private_key(identity.key.encode(), None)

    assert key.public_key() == parsed(identity.certificate).public_key()
    assert identity.key.startswith("-----BEGIN PRIVATE KEY-----")


def test_nothing_is_recreated_before_its_time(made: tuple[Authority, Identity]) -> None:
    assert signed(*made, HOSTS, NOW + timedelta(days=243), LIFETIMES) == made


def test_an_identity_is_renewed_at_two_thirds_of_its_life_by_the_same_authority(
    made: tuple[Authority, Identity],
) -> None:
    authority, identity = signed(*made, HOSTS, NOW + timedelta(days=244), LIFETIMES)

    assert authority == made[0]
    assert identity.certificate != made[1].certificate
    assert identity.key != made[1].key


def test_an_authority_is_renewed_at_two_thirds_of_its_life_and_signs_again(
    made: tuple[Authority, Identity],
) -> None:
    authority, identity = signed(*made, HOSTS, NOW + timedelta(days=2434), LIFETIMES)

    assert authority.certificate != made[0].certificate
    parsed(identity.certificate).verify_directly_issued_by(parsed(authority.certificate))


def test_other_hosts_need_another_identity(made: tuple[Authority, Identity]) -> None:
    authority, identity = signed(*made, frozenset({"other.svc"}), NOW, LIFETIMES)

    assert authority == made[0]
    assert identity.serves(frozenset({"other.svc"}))


def test_an_identity_of_another_authority_is_replaced_by_one_of_our_own(
    made: tuple[Authority, Identity],
) -> None:
    _, foreign = signed(None, None, HOSTS, NOW, LIFETIMES)

    authority, identity = signed(made[0], foreign, HOSTS, NOW, LIFETIMES)

    assert authority == made[0]
    assert identity.authority == made[0].certificate


def test_the_old_authority_is_trusted_until_every_replica_serves_the_new(
    made: tuple[Authority, Identity],
) -> None:
    _, new = signed(None, None, HOSTS, NOW, LIFETIMES)
    old = Trust(made[1])

    rolling = followed_by(old, new, settled=True)
    still_rolling = followed_by(rolling, new, settled=False)
    rolled = followed_by(still_rolling, new, settled=True)

    assert rolling.bundle == new.authority + made[1].authority
    assert still_rolling == rolling
    assert rolled.bundle == new.authority


def test_two_changes_before_the_first_is_rolled_out_trust_all_three(
    made: tuple[Authority, Identity],
) -> None:
    (_, second), (_, third) = (signed(None, None, HOSTS, NOW, LIFETIMES) for _ in range(2))

    twice = followed_by(followed_by(Trust(made[1]), second, settled=False), third, settled=False)

    assert twice.bundle == third.authority + second.authority + made[1].authority


def test_a_new_identity_of_the_same_authority_adds_nothing_to_trust(
    made: tuple[Authority, Identity],
) -> None:
    _, renewed = signed(*made, HOSTS, NOW + timedelta(days=244), LIFETIMES)

    assert followed_by(Trust(made[1]), renewed, settled=False).bundle == made[0].certificate


def test_the_first_identity_follows_nothing(made: tuple[Authority, Identity]) -> None:
    assert followed_by(None, made[1], settled=False) == Trust(made[1])


@pytest.mark.parametrize(("days", "near"), [(243, False), (304, False), (305, True), (400, True)])
def test_a_certificate_that_nobody_renewed_is_near_its_end(
    made: tuple[Authority, Identity], days: int, near: bool
) -> None:
    assert made[1].is_near_its_end(NOW + timedelta(days=days)) is near


def test_a_key_in_the_traditional_form_is_rewritten() -> None:
    key = rsa.generate_private_key(65537, 2048)
    traditional = key.private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
    ).decode()

    rewritten = load_pem_private_key(pkcs8(traditional).encode(), None)

    assert rewritten.public_key() == key.public_key()
    with pytest.raises(ValueError, match=r"."):
        pkcs8("no key")
