"""Pods created without pause, while something else happens."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from lightkube.core.exceptions import ApiError

from init_egress.kube.kinds import POD
from init_egress.rule.istio import EXCLUDE_RANGES
from tests.testbed.control_plane import ControlPlane, Manifest

A_POD: Manifest = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "created-"},
    "spec": {
        "initContainers": [{"name": "fetch", "image": "example.com/fetch:1"}],
        "containers": [{"name": "app", "image": "example.com/app:1"}],
    },
}


@contextlib.contextmanager
def creating_pods(
    plane: ControlPlane, namespace: str, threads: int = 1
) -> Iterator[list[str | None]]:
    """Create Pods by dry run; gives what each became: its annotation, or why it was denied."""
    created: list[str | None] = []
    done = threading.Event()

    def create() -> None:
        with plane.client() as client:
            while not done.is_set():
                try:
                    pod = client.create(POD.from_dict(A_POD), namespace=namespace, dry_run=True)
                    created.append(pod["metadata"]["annotations"].get(EXCLUDE_RANGES))
                except ApiError as error:
                    created.append(f"denied: {error}")

    creating = [threading.Thread(target=create) for _ in range(threads)]
    for thread in creating:
        thread.start()
    try:
        yield created
    finally:
        done.set()
        for thread in creating:
            thread.join(timeout=30)
            assert not thread.is_alive()
