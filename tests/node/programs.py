"""What the Pods on the node run: Python texts, and the images to run them in."""

from __future__ import annotations

from pathlib import Path

from tests.testbed.control_plane import Manifest
from tests.testbed.images import Image, script
from tests.testbed.istio import Mesh

PYTHON = "example.com/python:3"
PORT = 8080
# Istio's own containers run this machine's Python in place of Envoy; the plugin alone decides what
# reaches the network before a sidecar runs. The names are the injector's.
MESH = Mesh(
    values={
        "values.global.hub": "example.com/istio",
        "values.global.tag": "testbed",
        "values.global.imagePullPolicy": "IfNotPresent",
    }
)
_PROXY = "example.com/istio/proxyv2:testbed"
_FETCH = """
import sys, urllib.request
try:
    with urllib.request.urlopen(sys.argv[1], timeout=5) as answer:
        print(answer.status, answer.read().decode())
except OSError as error:
    sys.exit(f"{sys.argv[1]}: {error}")
"""
_SERVE = """
import http.server, signal, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"a model")

signal.signal(signal.SIGTERM, lambda *_: sys.exit())
http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Handler).serve_forever()
"""
# istio-validation is content; istio-proxy says that it is ready, and does nothing else.
_SIDECAR = f"""
import sys
if sys.argv[1] == "istio-iptables":
    sys.exit()
sys.argv[1] = "15021"
{_SERVE}
"""


def images(base: Path) -> list[Image]:
    """What the Pods of these tests need."""
    return [Image(PYTHON, [base], ["python3"]), script(_PROXY, base, _SIDECAR)]


def fetching(name: str, url: str) -> Manifest:
    """A container that fetches something and ends, well or not."""
    return {"name": name, "image": PYTHON, "args": ["-c", _FETCH, url]}


def serving(name: str) -> Manifest:
    """A container that answers every request on PORT."""
    return {"name": name, "image": PYTHON, "args": ["-c", _SERVE, str(PORT)]}
