"""Many objects at once, against an API server that is made up to have faults."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx2
import msgspec
import pytest

from init_egress.existing.survey import StoredPod
from init_egress.kube.client import Forbidden, NotFound, Refused, Unreachable
from init_egress.kube.paging import ApiClient, Collection, OverBudget, map_concurrent

Answer = httpx2.Response | Exception
PODS = Collection("/api/v1/pods", StoredPod, lambda pod: pod.place, "Pods")


class Server:
    """Answers in order, the last of them for ever, and remembers what was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.requests: list[httpx2.Request] = []
        self.pauses: list[float] = []
        self._answers = itertools.chain(answers, itertools.repeat(answers[-1]))

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def bulk(self, *, dry_run: bool = False) -> ApiClient:
        client = httpx2.Client(transport=httpx2.MockTransport(self), base_url="https://api")
        return ApiClient(client, self.pauses.append, dry_run=dry_run)

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests]


def page(*names: str, token: str = "") -> httpx2.Response:
    """A page of Pods, named `namespace/name`."""
    items = [
        {"metadata": {"namespace": n, "name": m}} for n, _, m in (p.partition("/") for p in names)
    ]
    return httpx2.Response(200, json={"items": items, "metadata": {"continue": token}})


def status(code: int, message: str = "", **more: Any) -> httpx2.Response:
    headers = more.pop("headers", {})
    body = {"kind": "Status", "message": message, **more}
    return httpx2.Response(code, json=body, headers=headers)


def expired(token: str = "") -> httpx2.Response:
    return status(410, "The provided continue parameter is too old", metadata={"continue": token})


def names(pages: Iterator[list[StoredPod]]) -> list[str]:
    return [pod.place for page in pages for pod in page]


# Lists


def test_a_list_is_read_page_by_page_by_the_tokens_of_the_server() -> None:
    server = Server(page("a/1", "a/2", token="next"), page("b/1"))

    assert names(server.bulk().pages(PODS, limit=2)) == ["a/1", "a/2", "b/1"]

    asked = [dict(request.url.params) for request in server.requests]
    assert asked == [{"limit": "2"}, {"limit": "2", "continue": "next"}]


def test_a_page_is_asked_for_when_the_one_before_is_done_with() -> None:
    server = Server(page("a/1", token="next"), page("a/2"))

    pages = server.bulk().pages(PODS)
    next(pages)

    assert len(server.requests) == 1


def test_an_empty_list_that_is_written_as_null_has_no_pages() -> None:
    server = Server(httpx2.Response(200, json={"items": None, "metadata": {}}))

    assert list(server.bulk().pages(PODS)) == []


def test_labels_and_metadata_alone_are_asked_for_as_the_api_has_it() -> None:
    server = Server(page())
    chosen = replace(PODS, selector="app in (a,b)", metadata_only=True)

    list(server.bulk().pages(chosen))

    request = server.requests[0]
    assert request.url.params["labelSelector"] == "app in (a,b)"
    assert request.headers["Accept"].startswith("application/json;as=PartialObjectMetadataList")


def test_a_list_that_has_expired_goes_on_by_the_token_of_the_answer() -> None:
    server = Server(page("a/1", token="old"), expired("new"), page("a/2"))

    assert names(server.bulk().pages(PODS)) == ["a/1", "a/2"]
    assert server.requests[2].url.params["continue"] == "new"


def test_a_list_that_has_expired_for_good_begins_again_and_gives_no_object_twice() -> None:
    server = Server(
        page("a/1", "a/3", token="old"),
        expired(),
        page("a/1", "a/2", "a/3", token="other"),
        page("a/4"),
    )

    # a/2 came behind the point that was reached already: it is none of this list's.
    assert names(server.bulk().pages(PODS)) == ["a/1", "a/3", "a/4"]
    assert "continue" not in server.requests[2].url.params


def test_a_namespace_that_sorts_before_another_by_its_hyphen_is_not_lost() -> None:
    # "a-b/1" < "a/1" by bytes, since "-" < "/"; by namespace alone it would be the other way.
    server = Server(
        page("a-b/1", token="old"), expired(), page("a-b/1", "a/1", token=""), page("never/asked")
    )

    assert names(server.bulk().pages(PODS)) == ["a-b/1", "a/1"]


def test_a_list_that_expires_again_and_again_is_given_up() -> None:
    server = Server(page("a/1", token="old"), expired())
    pages = server.bulk().pages(PODS)
    next(pages)

    with pytest.raises(Refused, match=r"can't list Pods: .* too old"):
        next(pages)


@pytest.mark.parametrize(
    "answer",
    [
        httpx2.Response(200, text="<html>a proxy</html>"),
        httpx2.Response(200, json={"items": [{"metadata": {"name": 1}}]}),
    ],
)
def test_a_list_that_is_none_is_refused(answer: httpx2.Response) -> None:
    with pytest.raises(Refused, match="can't list Pods: the answer is none"):
        list(Server(answer).bulk().pages(PODS))


def test_without_rights_the_list_is_forbidden() -> None:
    denied = status(403, 'pods is forbidden: User "x" cannot list resource "pods"')

    with pytest.raises(Forbidden, match="can't list Pods"):
        list(Server(denied).bulk().pages(PODS))


# Faults that pass


def test_a_busy_server_is_asked_again_after_as_long_as_it_says() -> None:
    server = Server(
        status(429, headers={"Retry-After": "3"}),
        status(503, details={"retryAfterSeconds": 7}),
        page("a/1"),
    )

    assert names(server.bulk().pages(PODS)) == ["a/1"]
    assert server.pauses == [3, 7]


def test_a_server_that_asks_for_an_hour_is_not_waited_for_that_long() -> None:
    server = Server(status(429, headers={"Retry-After": "3600"}), page("a/1"))

    list(server.bulk().pages(PODS))

    assert server.pauses == [30]


@pytest.mark.parametrize(
    "fault",
    [
        status(500, "etcdserver: request timed out"),
        httpx2.Response(502, text="Bad Gateway"),
        httpx2.ReadTimeout("timed out"),
        httpx2.ConnectError("connection refused"),
        httpx2.RemoteProtocolError("server disconnected"),
    ],
)
def test_a_fault_that_passes_is_tried_again_with_growing_pauses(fault: Answer) -> None:
    server = Server(fault, fault, fault, page("a/1"))

    assert names(server.bulk().pages(PODS)) == ["a/1"]
    assert server.pauses == [0.5, 1, 2]


def test_a_fault_that_stays_is_given_up_after_five_attempts() -> None:
    server = Server(httpx2.ReadTimeout("timed out"))
    bulk = server.bulk()

    with pytest.raises(Unreachable, match="can't list Pods: timed out"):
        list(bulk.pages(PODS))

    assert len(server.requests) == bulk.requests == 5


def test_what_was_refused_is_not_tried_again() -> None:
    server = Server(status(422, "the server rejected our request"))

    with pytest.raises(Refused) as raised:
        server.bulk().patch("/x", [], "Pod a/1")

    assert raised.value.code == 422
    assert len(server.requests) == 1


# One object


def test_an_object_is_read_into_its_type() -> None:
    server = Server(httpx2.Response(200, json={"metadata": {"namespace": "a", "name": "1"}}))

    pod = server.bulk().get("/api/v1/namespaces/a/pods/1", StoredPod, "Pod a/1")

    assert pod.place == "a/1"


def test_an_object_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound, match='can\'t read Pod a/1: pods "1" not found'):
        Server(status(404, 'pods "1" not found')).bulk().get("/x", StoredPod, "Pod a/1")


def test_an_object_of_another_shape_is_refused() -> None:
    server = Server(httpx2.Response(200, json={"metadata": []}))

    with pytest.raises(Refused, match="can't read Pod a/1: Expected `object`"):
        server.bulk().get("/x", StoredPod, "Pod a/1")


def test_patches_are_sent_as_what_they_are_by_the_charms_field_manager() -> None:
    server = Server(status(200))
    operation = {"op": "test", "path": "/metadata/uid", "value": "u"}

    server.bulk().patch("/x", [operation], "Pod a/1")
    server.bulk().merge("/x", {"spec": {}}, "Deployment a/1")

    assert [request.headers["Content-Type"] for request in server.requests] == [
        "application/json-patch+json",
        "application/merge-patch+json",
    ]
    assert server.bodies == [[operation], {"spec": {}}]
    assert [dict(request.url.params) for request in server.requests] == [
        {"fieldManager": "istio-init-egress"}
    ] * 2


def test_an_eviction_names_the_pod_that_was_seen_and_no_other() -> None:
    server = Server(status(201))

    server.bulk().evict("a", "1", "u", "42")

    assert server.requests[0].url.path == "/api/v1/namespaces/a/pods/1/eviction"
    preconditions = {"uid": "u", "resourceVersion": "42"}
    assert server.bodies[0]["deleteOptions"] == {"preconditions": preconditions}


def test_in_a_dry_run_every_write_says_so() -> None:
    server = Server(status(200))
    bulk = server.bulk(dry_run=True)

    bulk.patch("/x", [], "Pod a/1")
    bulk.merge("/x", {}, "Deployment a/1")
    bulk.evict("a", "1", "u", "42")

    assert [request.url.params["dryRun"] for request in server.requests] == ["All"] * 3


def test_a_disruption_budget_is_no_busy_server() -> None:
    causes = [{"reason": "DisruptionBudget", "message": "needs 1 healthy pods and has 1"}]
    server = Server(status(429, "Cannot evict pod", details={"causes": causes}))

    with pytest.raises(OverBudget, match="can't evict Pod a/1: Cannot evict pod"):
        server.bulk().evict("a", "1", "u", "42")

    assert len(server.requests) == 1


def test_two_disruption_budgets_are_not_tried_again_either() -> None:
    message = (
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not"
        " support."
    )
    server = Server(status(500, message))

    with pytest.raises(OverBudget, match="more than one PodDisruptionBudget"):
        server.bulk().evict("a", "1", "u", "42")

    assert len(server.requests) == 1


def test_an_eviction_that_the_api_server_has_no_time_for_is_tried_again() -> None:
    server = Server(status(429, "too many requests", headers={"Retry-After": "1"}), status(201))

    server.bulk().evict("a", "1", "u", "42")

    assert server.pauses == [1]


# Side by side


def test_each_is_done_once_and_given_with_its_result() -> None:
    done = dict(map_concurrent(range(100), lambda number: number * 2, width=4))

    assert done == {number: number * 2 for number in range(100)}


def test_no_more_are_under_way_than_there_is_room_for() -> None:
    lock, under_way, most = threading.Lock(), 0, 0
    together = threading.Barrier(3)

    def work(_: int) -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        together.wait(10)
        with lock:
            under_way -= 1

    list(map_concurrent(range(12), work, width=3))

    assert most == 3


def test_items_are_taken_only_as_there_is_room_for_them() -> None:
    numbers = itertools.count(1)

    results = map_concurrent(numbers, lambda number: number, width=2)
    given = len(list(itertools.islice(results, 10)))

    taken = next(numbers) - 1
    assert given <= taken <= given + 2 * 2


def test_what_the_work_raises_is_raised() -> None:
    def work(number: int) -> int:
        raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        list(map_concurrent([1], work))


def test_what_is_sent_is_json() -> None:
    server = Server(status(200))

    server.bulk().patch("/x", (msgspec.json.decode(b'{"op": "add"}') for _ in range(2)), "Pod a/1")

    assert server.bodies == [[{"op": "add"}] * 2]
