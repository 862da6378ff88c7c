"""What takes no Pod: another policy that denies, and a webhook that fails closed."""

from __future__ import annotations

from tests.testbed.control_plane import Manifest

_PODS_ARE_CREATED = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods"],
}


def denying(labels: dict[str, str], message: str) -> list[Manifest]:
    """A policy that denies every Pod in namespaces with these labels."""
    version = "admissionregistration.k8s.io/v1"
    metadata = {"name": "tests-deny"}
    constraints = {"resourceRules": [_PODS_ARE_CREATED]}
    validations = [{"expression": "false", "message": message}]
    return [
        {
            "apiVersion": version,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata,
            "spec": {"matchConstraints": constraints, "validations": validations},
        },
        {
            "apiVersion": version,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {
                "policyName": "tests-deny",
                "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": {"matchLabels": labels}},
            },
        },
    ]


def failing_webhook(labels: dict[str, str]) -> Manifest:
    """A webhook that nobody answers for, and that fails closed."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "tests-fail"},
        "webhooks": [
            {
                "name": "pods.fails.example.com",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "timeoutSeconds": 1,
                "clientConfig": {"url": "https://127.0.0.1:1/nobody"},
                "rules": [_PODS_ARE_CREATED],
                "namespaceSelector": {"matchLabels": labels},
            }
        ],
    }
