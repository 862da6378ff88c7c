"""What the webhook reads at its start: the mounted settings and the mounted certificate."""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509

from init_egress.config import Config, ConfigError
from init_egress.rule.selector import EVERYTHING
from init_egress.webhook.review import Context


class InvalidInput(ValueError):
    """The settings or the certificate cannot be used; the message says why."""


@dataclass(frozen=True)
class WebhookInputs:
    """The mounted settings, validated.

    Attributes:
        context: what reviews are answered with.
        revision: identifies these settings in the log and the metrics.
        notes: what was read differently from how it was written.
    """

    context: Context
    revision: str
    notes: tuple[str, ...] = ()


def load_settings(path: Path) -> WebhookInputs:
    """Read the settings: the charm's options by their names, and optionally `probe`, `revision`.

    Options that are left out have the charm's defaults.

    Raises:
        InvalidInput: the file cannot be read, or is not valid.
    """
    try:
        content = path.read_bytes()
        document = yaml.safe_load(content)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InvalidInput(f"settings: {error}") from None
    try:
        options = _options({} if document is None else document)
        probe = options.pop("probe", "")
        revision = options.pop("revision", hashlib.sha256(content).hexdigest()[:12])
        found = Config.from_options(options).settings()
    except (ConfigError, InvalidInput) as error:
        raise InvalidInput(f"settings {path}: {error}") from None
    # The webhook configuration selects namespaces; a review does not hold their labels.
    policy = replace(found.policy, namespaces=EVERYTHING)
    return WebhookInputs(Context(policy, probe), revision, found.notes)


def _options(document: object) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise InvalidInput("expected a mapping of options to values")
    known = {"probe": str, "revision": str}
    known |= {field.name.replace("_", "-"): type(field.default) for field in fields(Config)}
    unknown = [str(key) for key in document if key not in known]
    if unknown:
        raise InvalidInput(f"unknown option {', '.join(unknown)}; options are {', '.join(known)}")
    for key, value in document.items():
        if type(value) is not known[key]:
            wanted = "string; put it in quotes" if known[key] is str else "whole number"
            raise InvalidInput(f"{key}: {value!r} is not a {wanted}")
    return document


@dataclass(frozen=True)
class Certificate:
    """The certificate of a mounted Secret of type kubernetes.io/tls.

    Attributes:
        folder: where tls.crt and tls.key are.
        expiry: when it expires.
        fingerprint: a digest of both files.
    """

    folder: Path
    expiry: datetime
    fingerprint: str

    @property
    def chain(self) -> Path:
        """The file of the certificate and its intermediates."""
        return self.folder / "tls.crt"

    @property
    def key(self) -> Path:
        """The file of the private key."""
        return self.folder / "tls.key"

    @property
    def expired(self) -> bool:
        """Whether the API server rejects it by now."""
        return self.expiry <= datetime.now(timezone.utc)


def load_certificate(folder: Path) -> Certificate:
    """Read the certificate and check that the key belongs to it.

    Raises:
        InvalidInput: a file cannot be read, the key does not match, or the certificate has
            expired.
    """
    chain, key = folder / "tls.crt", folder / "tls.key"
    try:
        content = chain.read_bytes(), key.read_bytes()
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, key, password=_no_password)
        expiry = x509.load_pem_x509_certificate(content[0]).not_valid_after_utc
    except (OSError, ValueError) as error:
        raise InvalidInput(f"certificate {folder}: {error}") from None
    if b"-----BEGIN PRIVATE KEY-----" not in content[1]:
        # "PKCS#8 format only", granian says of its option --ssl-keyfile.
        raise InvalidInput(f"certificate {folder}: tls.key is not an unencrypted PKCS#8 key")
    certificate = Certificate(folder, expiry, hashlib.sha256(b"".join(content)).hexdigest())
    if certificate.expired:
        raise InvalidInput(f"certificate {folder}: it expired at {expiry.isoformat()}")
    return certificate


def _no_password() -> str:
    """Without this, OpenSSL asks for a password on the terminal."""
    return ""
