"""The other end of the certificates relation: an authority of somebody else's."""

from __future__ import annotations

import json
from datetime import timedelta

from charmlibs.interfaces.tls_certificates import (
    Certificate,
    CertificateRequestAttributes,
    CertificateSigningRequest,
    PrivateKey,
)


class Authority:
    """An authority, which signs whatever it is asked for."""

    def __init__(self) -> None:
        self.key = PrivateKey.generate()
        attributes = CertificateRequestAttributes("an authority of theirs", is_ca=True)
        self.certificate = Certificate.generate_self_signed_ca(
            attributes, self.key, timedelta(days=365)
        )

    def sign(self, request: str) -> Certificate:
        """Sign one request."""
        parsed = CertificateSigningRequest.from_string(request)
        return parsed.sign(self.certificate, self.key, timedelta(days=90))

    def answer(self, requested: str) -> dict[str, str]:
        """What it writes on the relation for the `certificate_signing_requests` written there."""
        requests = [item["certificate_signing_request"] for item in json.loads(requested)]
        certificates = [
            {
                "certificate": str(self.sign(request)),
                "certificate_signing_request": request,
                "ca": str(self.certificate),
                "chain": [str(self.sign(request)), str(self.certificate)],
            }
            for request in requests
        ]
        return {"certificates": json.dumps(certificates)}
