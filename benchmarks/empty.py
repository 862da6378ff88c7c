"""The webhook's HTTP server with an empty handler: what remains if nothing is decided."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from granian.rsgi import (
    HTTPProtocol,  # pyright: ignore[reportPrivateImportUsage] - it is RSGI's public name
    Scope,
)

from init_egress.webhook import be_patient, load_certificate, make_server, run

ANSWER = (
    b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":'
    b'{"uid":"0d6e4a4e-2c11-4b3c-9a76-1a5d0b8f0c11","allowed":true}}'
)
_HEADERS = [("content-type", "application/json")]


class Empty:
    """Reads the body and allows whatever it is."""

    async def __rsgi__(self, scope: Scope, proto: HTTPProtocol) -> None:
        """Answer one request."""
        await proto()
        proto.response_bytes(200, _HEADERS, ANSWER)


async def _serve(port: int, certificate: Path) -> int:
    server = make_server(Empty(), "127.0.0.1", port, load_certificate(certificate))
    await asyncio.create_task(server.serve())
    return 0


def main() -> None:
    """Serve until it is killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--certificate", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    be_patient()
    run(_serve(options.port, options.certificate))


if __name__ == "__main__":
    main()
