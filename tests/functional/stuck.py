"""Pods that are stuck, without a kubelet: their status says what a kubelet's would."""

from __future__ import annotations

from lightkube import Client

from init_egress.kube.kinds import POD


def get_stuck(client: Client, namespace: str, name: str, container: str) -> None:
    """Have a Pod be stuck in an init container that fails again and again."""
    status = {
        "phase": "Pending",
        "startTime": "2026-01-02T03:04:05Z",
        "conditions": [
            {
                "type": "Initialized",
                "status": "False",
                "lastTransitionTime": "2026-01-02T03:04:06Z",
            }
        ],
        "initContainerStatuses": [
            {
                "name": container,
                "image": "",
                "imageID": "",
                "ready": False,
                "restartCount": 7,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
            }
        ],
    }
    client.patch(POD.Status, name, {"status": status}, namespace=namespace)
