"""A mutating webhook of somebody else's, which changes Pods before or after the others do."""

import base64
import copy
import json
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.testbed.certificates import write_certificate, write_key
from tests.testbed.control_plane import ControlPlane, Manifest
from tests.testbed.network import free_port
from tests.testbed.process import wait_until

Operation = dict[str, Any]  # of a JSON patch (RFC 6902)

_SERVICE_NAMESPACE = "default"


@contextmanager
def late_webhook(
    plane: ControlPlane,
    operations: Sequence[Operation],
    *,
    name: str = "late-webhook",
    namespace: str | None = None,
    reinvocation_policy: str = "Never",
) -> Iterator[None]:
    """Make changes to every Pod that is created, each of them once, until this ends.

    The API server calls webhooks in the order of their configurations' names, so `name` says when:
    the default comes after Istio's and Kyverno's. `namespace` limits it to the Pods of one.
    """
    port, probed = free_port(), namespace or _SERVICE_NAMESPACE
    key, certificate = plane.folder / f"{name}.key", plane.folder / f"{name}.crt"
    hosts = [f"{name}.{_SERVICE_NAMESPACE}.svc", "localhost"]
    authority = write_certificate(certificate, write_key(key), hosts)
    configuration = _configuration(name, namespace, reinvocation_policy, authority)
    if plane.network.address is None:
        url = f"https://localhost:{port}/"
        configuration["webhooks"][0]["clientConfig"] |= {"service": None, "url": url}
    endpoints = plane.endpoints(name, _SERVICE_NAMESPACE, {"https": port})
    manifests = [_service(name), *endpoints, configuration]
    with _serve((plane.network.bind, port), certificate, key, operations) as server:
        try:
            plane.apply(manifests)
            plane.create_namespace(probed)
            wait_until(lambda: _is_called(server, plane, probed), f"{name} is called")
            yield
        finally:
            plane.delete(manifests)


def changed_once(pod: Manifest, operations: Sequence[Operation]) -> Manifest:
    """The Pod after operations of a JSON patch; additions change nothing when they are repeated.

    An addition to a list is left out if the list holds an item of the same name, and a removal if
    there is nothing to remove. Other than RFC 6902 has it, missing parents are made.

    Raises:
        ValueError: an operation is none of add, replace and remove.
    """
    pod = copy.deepcopy(pod)
    for operation in operations:
        place, last = _place(pod, operation["path"])
        if operation["op"] == "add":
            _add(place, last, operation["value"])
        elif operation["op"] == "replace":
            place[int(last) if isinstance(place, list) else last] = operation["value"]
        elif operation["op"] == "remove":
            _remove(place, last)
        else:
            raise ValueError(f"only add, replace and remove can be done, not {operation}")
    return pod


def _place(pod: Manifest, pointer: str) -> tuple[Any, str]:
    """What holds the value that a pointer points to, and the last step to it."""
    *parents, last = _steps(pointer)
    place: Any = pod
    for step, following in zip(parents, [*parents[1:], last], strict=True):
        if isinstance(place, list):
            place = place[int(step)]
        else:
            place = place.setdefault(step, [] if following == "-" else {})
    return place, last


def _add(place: Any, last: str, value: Any) -> None:
    if isinstance(place, dict):
        place[last] = value
    elif not isinstance(value, dict) or value["name"] not in [item["name"] for item in place]:
        place.insert(len(place) if last == "-" else int(last), value)


def _remove(place: Any, last: str) -> None:
    if isinstance(place, dict):
        place.pop(last, None)
    elif int(last) < len(place):
        del place[int(last)]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    calls = 0
    operations: Sequence[Operation] = ()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # as the API server, keep connections

    def do_POST(self) -> None:
        """Answer an AdmissionReview."""
        assert isinstance(self.server, _Server)
        self.server.calls += 1
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        pod = changed_once(review["request"]["object"], self.server.operations)
        patch = [
            {"op": "add", "path": f"/{key}", "value": pod[key]} for key in ("metadata", "spec")
        ]
        review["response"] = {
            "uid": review.pop("request")["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
        }
        body = json.dumps(review).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (http.server's)
        """Say nothing."""


@contextmanager
def _serve(
    address: tuple[str, int], certificate: Path, key: Path, operations: Sequence[Operation]
) -> Iterator[_Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with _Server(address, _Handler) as server:
        server.operations = operations
        # The handshake belongs into the connection's own thread, not in the one that accepts.
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def _service(name: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": _SERVICE_NAMESPACE},
        "spec": {"ports": [{"name": "https", "port": 443}]},
    }


def _configuration(
    name: str, namespace: str | None, reinvocation_policy: str, authority: bytes
) -> Manifest:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}} if namespace else {}
    webhook = {
        "name": f"{name}.example.com",
        "clientConfig": {
            "service": {"name": name, "namespace": _SERVICE_NAMESPACE},
            "caBundle": base64.b64encode(authority).decode(),
        },
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
            }
        ],
        "namespaceSelector": selector,
        "reinvocationPolicy": reinvocation_policy,
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [webhook],
    }


def _is_called(server: _Server, plane: ControlPlane, namespace: str) -> bool:
    """Whether the API server has noticed the webhook."""
    plane.try_pod(namespace)
    return server.calls > 0


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
