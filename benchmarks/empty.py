"""The webhook's HTTP server with an empty handler: what remains if nothing is decided.

An API server takes no answer to another's review, so for it the handler repeats the review's uid;
as a further measure it gives the patch that the webhook makes of the benchmark's Pod.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
from pathlib import Path

from granian.rsgi import (
    HTTPProtocol,  # pyright: ignore[reportPrivateImportUsage] - it is RSGI's public name
    Scope,
)

from init_egress.rule.istio import EXCLUDE_RANGES
from init_egress.rule.patch import annotation_path
from init_egress.webhook.inputs import load_certificate
from init_egress.webhook.server import make_server, run, use_batch_scheduling

ANSWER = (
    b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":'
    b'{"uid":"0d6e4a4e-2c11-4b3c-9a76-1a5d0b8f0c11","allowed":true}}'
)
_HEADERS = [("content-type", "application/json")]
_UID, _UID_LENGTH = b'"uid":"', 36
PATCH = {"op": "add", "path": annotation_path(EXCLUDE_RANGES), "value": "0.0.0.0/0,::/0"}


class Empty:
    """Reads the body and allows whatever it is."""

    async def __rsgi__(self, scope: Scope, proto: HTTPProtocol) -> None:
        """Answer one request."""
        await proto()
        proto.response_bytes(200, _HEADERS, ANSWER)


class Allowing:
    """Allows whatever review it is, with one and the same patch or with none."""

    def __init__(self, patch: list[dict[str, str]]) -> None:
        self._head = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{'
        encoded = base64.b64encode(json.dumps(patch).encode())
        change = b',"patchType":"JSONPatch","patch":"' + encoded + b'"' if patch else b""
        self._tail = b'","allowed":true' + change + b"}}"

    async def __rsgi__(self, scope: Scope, proto: HTTPProtocol) -> None:
        """Answer one request."""
        body = await proto()
        # The request's own uid comes first: the API server writes it before the object.
        start = body.index(_UID) + len(_UID)
        uid = body[start : start + _UID_LENGTH]
        proto.response_bytes(200, _HEADERS, self._head + _UID + uid + self._tail)


ANSWERS = {
    "constant": Empty,
    "allow": lambda: Allowing([]),
    "patch": lambda: Allowing([PATCH]),
}


async def _serve(answer: str, port: int, certificate: Path) -> int:
    server = make_server(ANSWERS[answer](), "127.0.0.1", port, load_certificate(certificate))
    await asyncio.create_task(server.serve())
    return 0


def main() -> None:
    """Serve until it is killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--certificate", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--answer", choices=ANSWERS, default="constant")
    options = parser.parse_args()
    use_batch_scheduling()
    run(_serve(options.answer, options.port, options.certificate))


if __name__ == "__main__":
    main()
