"""Tens of thousands of Pods in a minute: a thousand that the API server stored, copied in etcd.

The API server writes a Pod of 12 kB in 10 to 30 ms here, so fifty thousand would take it half an
hour. A copy is the stored bytes under another name and another uid, each as long as the one before
it, so what the API server reads from it later is as if it had been written there.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator

import httpx2

from init_egress.kube.client import ApiClient
from init_egress.kube.kinds import POD, Resource
from init_egress.kube.objects import StoredPod
from init_egress.kube.paging import Collection
from tests.testbed.control_plane import ControlPlane

_PREFIX = b"/registry/pods/"
_AFTER = b"/registry/pods0"  # etcd reads up to, and without, this key
_BATCH = 50  # etcd takes requests of up to 1.5 MiB
_DIGITS = 5


def multiply(plane: ControlPlane, bulk: ApiClient, factor: int, step: int) -> None:
    """Have so many times as many Pods as there are.

    Args:
        plane: the cluster.
        bulk: reads the Pods' uids.
        factor: how many times as many.
        step: the number that ends a Pod's name is smaller than this.
    """
    pods = Collection(Resource.of(POD), StoredPod)
    uids = {pod.place: pod.metadata.uid for page in bulk.pages(pods) for pod in page.items}
    with httpx2.Client(base_url=plane.etcd, timeout=60, trust_env=False) as etcd:
        batch: list[dict[str, object]] = []
        for key, value in list(_stored(etcd)):
            place = key.removeprefix(_PREFIX).decode()
            for copy in range(1, factor):
                batch.append(_put(*_copied(key, value, place, uids[place], copy * step)))
                if len(batch) == _BATCH:
                    _write(etcd, batch)
        _write(etcd, batch)


def _copied(key: bytes, value: bytes, place: str, uid: str, shift: int) -> tuple[bytes, bytes]:
    name = place.rpartition("/")[2]
    stem, number = name[:-_DIGITS], int(name[-_DIGITS:])
    other = f"{stem}{number + shift:0{_DIGITS}}".encode()
    renamed = value.replace(name.encode(), other).replace(uid.encode(), str(uuid.uuid4()).encode())
    return key.replace(name.encode(), other), renamed


def _stored(etcd: httpx2.Client) -> Iterator[tuple[bytes, bytes]]:
    """What etcd has of the Pods, by pages."""
    first = _PREFIX
    while True:
        asked = {"key": _text(first), "range_end": _text(_AFTER), "limit": "200"}
        answer = etcd.post("/v3/kv/range", json=asked).raise_for_status().json()
        found = [
            (base64.b64decode(item["key"]), base64.b64decode(item["value"]))
            for item in answer.get("kvs", [])
        ]
        yield from found
        if not answer.get("more"):
            return
        first = found[-1][0] + b"\0"


def _put(key: bytes, value: bytes) -> dict[str, object]:
    return {"requestPut": {"key": _text(key), "value": _text(value)}}


def _write(etcd: httpx2.Client, batch: list[dict[str, object]]) -> None:
    if batch:
        etcd.post("/v3/kv/txn", json={"success": batch}).raise_for_status()
    batch.clear()


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
