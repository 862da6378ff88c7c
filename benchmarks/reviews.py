"""AdmissionReviews of a given size, of Pods as Istio's injector leaves them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

Json = dict[str, Any]


def review(size: int) -> bytes:
    """An AdmissionReview of a Pod that needs the remedy and has this many bytes as JSON.

    Raises:
        ValueError: no Pod that needs the remedy is that small.
    """
    document = {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "0d6e4a4e-2c11-4b3c-9a76-1a5d0b8f0c11",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "team",
            "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:kube-system:replicaset-controller",
                "uid": "7a1e3b0e-98a4-4c11-8a0e-5d0b8f0c1111",
                "groups": ["system:serviceaccounts", "system:authenticated"],
            },
            "object": pod(size),
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }
    return _encoded(document)


def pod(size: int) -> Json:
    """The Pod of such a review."""
    found = _smallest()
    if len(_encoded(found)) > size:
        raise ValueError(f"the smallest Pod has {len(_encoded(found))} bytes, not {size}")
    growth = _growth(found)
    while len(_encoded(found)) < size - 600:
        next(growth)
    annotations = found["metadata"]["annotations"]
    annotations["note"] = ""
    annotations["note"] = "x" * (size - len(_encoded(found)))
    return found


def _growth(found: Json) -> Iterator[None]:
    """Add what makes Pods big, one thing after the other, again and again."""
    spec, metadata = found["spec"], found["metadata"]
    proxy, app = spec["containers"]
    for number in count():
        volume = f"volume-{number}"
        spec["volumes"].append({"name": volume, "configMap": {"name": f"settings-{number}"}})
        app["volumeMounts"].append({"name": volume, "mountPath": f"/etc/settings/{number}"})
        yield
        app["env"].append({"name": f"SETTING_{number}", "value": "a value of some length"})
        yield
        if number < 20:  # Istio's proxy has about this many variables
            source = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
            proxy["env"].append({"name": f"ISTIO_META_{number}", "valueFrom": source})
            yield
        metadata["annotations"][f"example.com/note-{number}"] = "written by some controller"
        yield
        fields = metadata["managedFields"][0]["fieldsV1"]["f:spec"]
        fields[f'k:{{"name":"{volume}"}}'] = {".": {}, "f:name": {}, "f:configMap": {}}
        yield


def _smallest() -> Json:
    istio = {"image": "istio/proxyv2:1.28.0", "imagePullPolicy": "IfNotPresent"}
    context = {"runAsUser": 1337, "runAsGroup": 1337, "runAsNonRoot": True}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": "iris-predictor-7c9d4b5f66-q8xk2",
            "namespace": "team",
            "labels": {"app": "iris", "security.istio.io/tlsMode": "istio"},
            "annotations": {
                "istio.io/rev": "default",
                "sidecar.istio.io/status": '{"initContainers":["istio-validation"],'
                '"containers":["istio-proxy"],"volumes":["istio-envoy"],"revision":"default"}',
            },
            "managedFields": [
                {"manager": "kube-controller-manager", "fieldsV1": {"f:spec": {}}},
            ],
        },
        "spec": {
            "initContainers": [
                {"name": "istio-validation", **istio, "securityContext": context},
                {
                    "name": "storage-initializer",
                    "image": "kserve/storage-initializer:v0.15.0",
                    "args": ["s3://models/iris", "/mnt/models"],
                    "volumeMounts": [{"name": "models", "mountPath": "/mnt/models"}],
                },
            ],
            "containers": [
                {
                    "name": "istio-proxy",
                    **istio,
                    "args": ["proxy", "sidecar", "--domain", "$(POD_NAMESPACE).svc.cluster.local"],
                    "env": [{"name": "PILOT_CERT_PROVIDER", "value": "istiod"}],
                    "securityContext": context,
                },
                {
                    "name": "kserve-container",
                    "image": "kserve/sklearnserver:v0.15.0",
                    "args": ["--model_name=iris", "--model_dir=/mnt/models"],
                    "env": [],
                    "volumeMounts": [{"name": "models", "mountPath": "/mnt/models"}],
                },
            ],
            "volumes": [{"name": "models", "emptyDir": {}}, {"name": "istio-envoy"}],
            "securityContext": {"fsGroup": 1337},
        },
    }


def _encoded(document: Json) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
