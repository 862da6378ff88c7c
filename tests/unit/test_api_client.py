"""The API server's client, against an API server that is made up to have faults."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from init_egress.kube.application import Application
from init_egress.kube.client import ApiClient
from init_egress.kube.connection import DEADLINE
from init_egress.kube.errors import (
    Changed,
    ClusterError,
    Forbidden,
    InvalidName,
    NotFound,
    OutcomeUnknown,
    OverBudget,
    Refused,
    Unreachable,
    Unreadable,
)
from init_egress.kube.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    NATIVE_POLICY,
    OURS,
    POD,
    REPLICA_SET,
    Resource,
)
from init_egress.kube.objects import StoredPod
from init_egress.kube.paging import Collection, Page

Answer = httpx2.Response | Exception
Json = dict[str, Any]
PODS = Resource.of(POD)
ALL = Collection(PODS, StoredPod)
POD_A_1: Json = {
    "metadata": {"namespace": "a", "name": "1", "uid": "u", "resourceVersion": "42"},
}


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

    def client(self, *, dry_run: bool = False) -> ApiClient:
        http = httpx2.Client(transport=httpx2.MockTransport(self), base_url="https://api")
        return ApiClient(http, self.pauses.append, dry_run=dry_run)

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests]

    @property
    def methods(self) -> list[str]:
        return [request.method for request in self.requests]


def ok(body: object) -> httpx2.Response:
    return httpx2.Response(200, json=body)


def page(*names: str, token: str = "") -> httpx2.Response:
    """A page of Pods, named `namespace/name`."""
    items = [
        {"metadata": {"namespace": n, "name": m}} for n, _, m in (p.partition("/") for p in names)
    ]
    return ok({"items": items, "metadata": {"continue": token}})


def status(code: int, message: str = "", **more: Any) -> httpx2.Response:
    headers = more.pop("headers", {})
    body = {"kind": "Status", "message": message, **more}
    return httpx2.Response(code, json=body, headers=headers)


def expired(token: str = "") -> httpx2.Response:
    return status(410, "The provided continue parameter is too old", metadata={"continue": token})


def names(pages: Iterator[Page[StoredPod]]) -> list[str]:
    return [pod.place for page in pages for pod in page.items]


LOST = httpx2.ReadTimeout("timed out")
REFUSED_CONNECTION = httpx2.ConnectError("connection refused")
HTML = httpx2.Response(200, text="<html>a proxy</html>")


# Lists


def test_a_list_is_read_page_by_page_by_the_tokens_of_the_server() -> None:
    server = Server(page("a/1", "a/2", token="next"), page("b/1"))

    assert names(server.client().pages(ALL, limit=2)) == ["a/1", "a/2", "b/1"]

    asked = [dict(request.url.params) for request in server.requests]
    assert asked == [{"limit": "2"}, {"limit": "2", "continue": "next"}]


def test_a_page_is_asked_for_when_the_one_before_is_done_with() -> None:
    server = Server(page("a/1", token="next"), page("a/2"))

    next(server.client().pages(ALL))

    assert len(server.requests) == 1


def test_an_empty_list_that_is_written_as_null_has_no_pages() -> None:
    server = Server(ok({"items": None, "metadata": {}}))

    assert list(server.client().pages(ALL)) == []


def test_a_namespace_labels_and_metadata_alone_are_asked_for_as_the_api_has_it() -> None:
    server = Server(page())
    chosen = replace(ALL, namespace="team", selector="app in (a,b)", metadata_only=True)

    list(server.client().pages(chosen))

    request = server.requests[0]
    assert request.url.path == "/api/v1/namespaces/team/pods"
    assert request.url.params["labelSelector"] == "app in (a,b)"
    assert request.headers["Accept"].startswith("application/json;as=PartialObjectMetadataList")


def test_a_list_that_has_expired_goes_on_by_the_token_of_the_answer() -> None:
    server = Server(page("a/1", token="old"), expired("new"), page("a/2"))

    assert names(server.client().pages(ALL)) == ["a/1", "a/2"]
    assert server.requests[2].url.params["continue"] == "new"


def test_a_list_that_has_expired_for_good_begins_again_and_gives_no_object_twice() -> None:
    server = Server(
        page("a/1", "a/3", token="old"),
        expired(),
        page("a/1", "a/2", "a/3", token="other"),
        page("a/4"),
    )

    # a/2 came behind the point that was reached already: it is not of this list.
    assert names(server.client().pages(ALL)) == ["a/1", "a/3", "a/4"]
    assert "continue" not in server.requests[2].url.params


def test_a_namespace_that_sorts_before_another_by_its_hyphen_is_not_lost() -> None:
    # "a-b/1" < "a/1" by bytes, since "-" < "/"; by namespace alone it would be the other way.
    server = Server(page("a-b/1", token="old"), expired(), page("a-b/1", "a/1"))

    assert names(server.client().pages(ALL)) == ["a-b/1", "a/1"]


def test_a_list_that_expires_again_and_again_is_given_up() -> None:
    server = Server(page("a/1", token="old"), expired())
    pages = server.client().pages(ALL)
    next(pages)

    with pytest.raises(Refused, match=r"can't list pods: .* too old"):
        next(pages)


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ({"metadata": {"namespace": "a", "name": "2", "creationTimestamp": "0000-01-01"}}, "a/2"),
        (
            {
                "metadata": {
                    "namespace": "a",
                    "name": "2",
                    "managedFields": [{"time": "0000-01-01T00:00:00Z"}],
                }
            },
            "a/2",
        ),
        ({"metadata": {"namespace": "a", "name": "2"}, "spec": []}, "a/2"),
        ({"metadata": {"name": 2}}, ""),
        ("no object", ""),
    ],
)
def test_an_object_that_cannot_be_decoded_is_told_beside_the_others(
    item: object, named: str
) -> None:
    listed = json.loads(page("a/1", "a/3", token="next").content)
    listed["items"].insert(1, item)
    server = Server(ok(listed), page("a/4"))

    pages = list(server.client().pages(ALL))

    assert names(iter(pages)) == ["a/1", "a/3", "a/4"]
    assert [str(it) for page in pages for it in page.unreadable] == [named]


def test_an_unreadable_object_is_not_told_twice_when_a_list_begins_again() -> None:
    broken = ok(
        {
            "items": [{"metadata": {"namespace": "a", "name": "1", "uid": 7}}],
            "metadata": {"continue": "old"},
        }
    )
    server = Server(broken, expired(), broken, page("a/2"))

    pages = list(server.client().pages(ALL))

    assert [str(it) for page in pages for it in page.unreadable] == ["a/1"]
    assert names(iter(pages)) == ["a/2"]


def test_without_rights_the_list_is_forbidden() -> None:
    denied = status(403, 'pods is forbidden: User "x" cannot list resource "pods"')

    with pytest.raises(Forbidden, match="can't list pods"):
        list(Server(denied).client().pages(ALL))


# When a request is sent again


def test_a_busy_server_is_asked_again_after_as_long_as_it_says() -> None:
    server = Server(
        status(429, headers={"Retry-After": "3"}),
        status(503, details={"retryAfterSeconds": 7}),
        page("a/1"),
    )

    assert names(server.client().pages(ALL)) == ["a/1"]
    assert server.pauses == [3, 7]


def test_a_server_that_asks_for_an_hour_is_not_waited_for_that_long() -> None:
    server = Server(status(429, headers={"Retry-After": "3600"}), page("a/1"))

    list(server.client().pages(ALL))

    assert server.pauses == [30]


@pytest.mark.parametrize(
    "fault",
    [
        status(500, "etcdserver: request timed out"),
        httpx2.Response(502, text="Bad Gateway"),
        httpx2.Response(302, headers={"Location": "https://login.example.com"}),
        HTML,
        httpx2.Response(200, content=b'{"items": ["\xff'),
        httpx2.Response(200, content=b""),
        LOST,
        REFUSED_CONNECTION,
        httpx2.RemoteProtocolError("server disconnected"),
    ],
)
def test_a_fault_that_passes_is_tried_again_with_growing_pauses(fault: Answer) -> None:
    server = Server(fault, fault, fault, page("a/1"))

    assert names(server.client().pages(ALL)) == ["a/1"]
    assert server.pauses == [0.5, 1, 2]


@pytest.mark.parametrize(
    ("fault", "words"),
    [(LOST, "timed out"), (HTML, "not JSON"), (httpx2.Response(502), "answered 502")],
)
def test_a_fault_that_stays_is_given_up_after_five_attempts(fault: Answer, words: str) -> None:
    server = Server(fault)
    client = server.client()

    with pytest.raises(Unreachable, match=f"can't list pods: .*{words}"):
        list(client.pages(ALL))

    assert len(server.requests) == client.requests == 5


def test_no_attempt_begins_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(status(503, headers={"Retry-After": "25"}))
    monkeypatch.setattr("tenacity.time.monotonic", lambda: sum(server.pauses))

    with pytest.raises(Unreachable):
        server.client().get(CONFIG_MAP, "x", "a")

    assert server.pauses == [25, 25]
    assert sum(server.pauses) < DEADLINE < sum(server.pauses) + 25


def test_what_was_refused_is_not_tried_again() -> None:
    server = Server(status(422, "the server rejected our request"))

    with pytest.raises(Refused) as raised:
        server.client().patch(PODS, "1", "a", [])

    assert raised.value.code == 422
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('pods is forbidden: User "system:anonymous" cannot create resource "pods"', Forbidden),
        ('pods "x" is forbidden: exceeded quota: full', Refused),
        ('admission webhook "x" denied the request: User containers cannot run here', Refused),
    ],
)
def test_only_a_missing_right_is_taken_for_one(message: str, kind: type[ClusterError]) -> None:
    with pytest.raises(ClusterError) as raised:
        Server(status(403, message)).client().dry_run("team", {})

    assert type(raised.value) is kind


@pytest.mark.parametrize(
    ("code", "rejected"), [(422, True), (403, True), (500, True), (503, False)]
)
def test_a_pod_is_rejected_by_a_refusal_and_by_a_webhook_that_fails(
    code: int, rejected: bool
) -> None:
    with pytest.raises(ClusterError) as raised:
        Server(status(code, "no")).client().dry_run("team", {})

    assert raised.value.means_rejected is rejected


# One object


def test_an_object_is_read_into_its_type() -> None:
    assert Server(ok(POD_A_1)).client().read(PODS, "1", "a", StoredPod).place == "a/1"


def test_an_object_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound, match='can\'t read Pod a/1: pods "1" not found'):
        Server(status(404, 'pods "1" not found')).client().read(PODS, "1", "a", StoredPod)


@pytest.mark.parametrize("other", [{"name": "2"}, {"namespace": "b"}, {"uid": "v"}])
def test_an_object_that_is_not_the_one_asked_for_is_not_found(other: Json) -> None:
    server = Server(ok({"metadata": {**POD_A_1["metadata"], **other}}))

    with pytest.raises(NotFound, match="Pod a/1 is gone"):
        server.client().read(PODS, "1", "a", StoredPod, uid="u")


def test_an_object_with_a_field_that_cannot_be_decoded_is_unreadable() -> None:
    server = Server(ok({"metadata": []}))

    with pytest.raises(Unreadable, match="can't read Pod a/1: Expected `object`"):
        server.client().read(PODS, "1", "a", StoredPod)
    assert len(server.requests) == 1


def test_an_object_that_is_too_deep_to_be_decoded_is_unreadable() -> None:
    deep = '{"x":' * 20_000 + "1" + "}" * 20_000
    server = Server(httpx2.Response(200, text=f'{{"metadata": {deep}}}'))

    with pytest.raises(Unreadable):
        server.client().read(PODS, "1", "a", StoredPod)


@pytest.mark.parametrize(
    "name", ["..", "a/b", "a%2fb", "../../x", "a b", "a\n", "", "A", "a" * 254]
)
def test_a_name_that_kubernetes_would_not_take_is_never_asked_for(name: str) -> None:
    server = Server(ok(POD_A_1))
    client = server.client()

    for ask in (
        lambda: client.read(REPLICA_SET, name, "team", StoredPod),
        lambda: client.read(REPLICA_SET, "web", name or "..", StoredPod),
        lambda: client.merge(REPLICA_SET, name, "team", {}),
        lambda: client.patch(PODS, name, "team", []),
        lambda: client.evict("team", name, "u", "1"),
        lambda: client.get(DEPLOYMENT, name, "team"),
        lambda: client.resource(f"{name or '..'}/v1", "Thing"),
    ):
        with pytest.raises(InvalidName):
            ask()

    assert server.requests == []


@pytest.mark.parametrize("name", [f"{'a.' * 30}a"])
def test_a_name_is_shown_in_full_or_cut(name: str) -> None:
    with pytest.raises(InvalidName) as raised:
        Server(ok({})).client().read(PODS, f"{name}\x1b[2J" * 50, "a", StoredPod)

    assert len(str(raised.value)) < 300
    assert str(raised.value).isprintable()


def test_a_kind_is_found_by_discovery() -> None:
    resources = [
        {"name": "things/status", "kind": "Thing", "namespaced": True},
        {"name": "things", "kind": "Thing", "namespaced": True},
    ]
    server = Server(ok({"resources": resources}))

    found = server.client().resource("example.com/v1", "Thing")

    assert found == Resource("example.com", "v1", "Thing", "things")
    assert server.client().resource("example.com/v1", "Other") is None
    assert server.requests[0].url.path == "/apis/example.com/v1"


def test_patches_are_sent_as_what_they_are_by_the_charms_field_manager() -> None:
    server = Server(ok({}))
    operation = {"op": "test", "path": "/metadata/uid", "value": "u"}

    server.client().patch(PODS, "1", "a", (operation for _ in range(1)))
    server.client().merge(REPLICA_SET, "web", "a", {"spec": {}})

    assert [request.headers["Content-Type"] for request in server.requests] == [
        "application/json-patch+json",
        "application/merge-patch+json",
    ]
    assert server.bodies == [[operation], {"spec": {}}]
    assert [dict(request.url.params) for request in server.requests] == [
        {"fieldManager": "istio-init-egress"}
    ] * 2
    assert server.requests[1].url.path == "/apis/apps/v1/namespaces/a/replicasets/web"


def test_in_a_dry_run_every_write_says_so() -> None:
    server = Server(ok({}))
    client = server.client(dry_run=True)

    client.patch(PODS, "1", "a", [])
    client.merge(REPLICA_SET, "web", "a", {})
    client.evict("a", "1", "u", "42")
    client.apply(
        [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x", "namespace": "a"}}]
    )

    assert [request.url.params["dryRun"] for request in server.requests] == ["All"] * 4


# Evictions


def evict(server: Server) -> None:
    server.client().evict("a", "1", "u", "42")


def changed(**metadata: str) -> httpx2.Response:
    return ok({"metadata": {**POD_A_1["metadata"], **metadata}})


def test_an_eviction_names_the_pod_that_was_seen_and_no_other() -> None:
    server = Server(status(201))

    evict(server)

    assert server.requests[0].url.path == "/api/v1/namespaces/a/pods/1/eviction"
    preconditions = {"uid": "u", "resourceVersion": "42"}
    assert server.bodies[0]["deleteOptions"] == {"preconditions": preconditions}


def test_a_disruption_budget_is_not_a_busy_server() -> None:
    causes = [{"reason": "DisruptionBudget", "message": "needs 1 healthy pods and has 1"}]
    server = Server(status(429, "Cannot evict pod", details={"causes": causes}))

    with pytest.raises(OverBudget, match="can't evict Pod a/1: Cannot evict pod"):
        evict(server)

    assert len(server.requests) == 1


def test_two_disruption_budgets_are_not_tried_again_either() -> None:
    message = (
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not"
        " support."
    )
    server = Server(status(500, message))

    with pytest.raises(OverBudget, match="more than one PodDisruptionBudget"):
        evict(server)

    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "fault",
    [status(429, "too many requests", headers={"Retry-After": "1"}), REFUSED_CONNECTION],
)
def test_an_eviction_that_was_not_begun_is_tried_again(fault: Answer) -> None:
    server = Server(fault, status(201))

    evict(server)

    assert server.methods == ["POST", "POST"]


@pytest.mark.parametrize("lost", [LOST, HTML, status(500, "etcd is slow"), status(504)])
@pytest.mark.parametrize(
    "now",
    [
        status(404, "not found"),
        changed(uid="another"),
        changed(resourceVersion="43", deletionTimestamp="2026-01-02T03:04:05Z"),
    ],
)
def test_an_eviction_whose_answer_was_lost_is_not_sent_again_if_the_pod_is_gone(
    lost: Answer, now: httpx2.Response
) -> None:
    server = Server(lost, now)

    evict(server)

    assert server.methods == ["POST", "GET"]


def test_an_eviction_whose_answer_was_lost_is_sent_again_if_the_pod_is_as_it_was() -> None:
    server = Server(LOST, changed(), status(201))

    evict(server)

    assert server.methods == ["POST", "GET", "POST"]


def test_a_pod_that_has_changed_since_its_eviction_was_lost_is_left_alone() -> None:
    server = Server(LOST, changed(resourceVersion="43"))

    with pytest.raises(Changed):
        evict(server)

    assert server.methods == ["POST", "GET"]


@pytest.mark.parametrize("then", [[LOST], [changed(), LOST]])
def test_an_eviction_of_which_nothing_is_heard_is_not_known(then: list[Answer]) -> None:
    with pytest.raises(OutcomeUnknown, match="whether it was carried out is not known"):
        evict(Server(LOST, *then))


# What the charm asks for


POLICY: Json = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingAdmissionPolicy",
    "metadata": {"name": "app.model"},
}
APPLICATION = Application("app", "model")


def test_a_kind_that_the_cluster_does_not_serve_is_told() -> None:
    assert Server(ok({"items": []})).client().serves(NATIVE_POLICY)
    assert (
        not Server(httpx2.Response(404, text="404 page not found")).client().serves(NATIVE_POLICY)
    )


def test_an_object_is_applied_by_server_side_apply() -> None:
    server = Server(status(503), ok(POLICY))

    server.client().apply([POLICY])

    request = server.requests[-1]
    assert request.method == "PATCH"
    assert request.url.path.endswith("/v1/mutatingadmissionpolicies/app.model")
    assert dict(request.url.params) == {"fieldManager": "istio-init-egress", "force": "true"}
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"
    assert server.bodies == [POLICY, POLICY]


def test_an_object_that_is_not_there_is_none() -> None:
    assert Server(status(404)).client().get(DEPLOYMENT, "x", "a") is None


@pytest.mark.parametrize("code", [429, 500, 503, 504])
def test_a_dry_run_for_which_the_api_server_has_no_time_is_tried_again(code: int) -> None:
    server = Server(status(code), status(code), ok({"kind": "Pod"}))

    assert server.client().dry_run("team", {"kind": "Pod"}) == {"kind": "Pod"}
    assert [dict(request.url.params)["dryRun"] for request in server.requests] == ["All"] * 3


@pytest.mark.parametrize("text", ["\ud800", "deep"])
def test_a_pod_that_is_not_json_is_refused(text: str) -> None:
    deep: Json = {}
    for _ in range(10_000):
        deep = {"x": deep}
    server = Server(ok({}))

    with pytest.raises(Refused, match="not valid JSON"):
        server.client().dry_run("team", {"spec": deep if text == "deep" else text})

    assert server.requests == []


def test_pods_that_are_being_deleted_are_not_among_the_labelled_ones() -> None:
    items = [
        {"metadata": {"name": "b", "namespace": "a"}},
        {"metadata": {"name": "a", "namespace": "a"}, "status": {"podIP": "10.0.0.1"}},
        {"metadata": {"name": "c", "namespace": "a", "deletionTimestamp": "2026-01-02T03:04:05Z"}},
    ]
    items.sort(key=lambda item: str(item["metadata"]["name"]))
    server = Server(ok({"items": items}))

    found = server.client().labelled_pods("a", {"app": "x", "part": "y"})

    assert [pod["metadata"] for pod in found] == [item["metadata"] for item in items[:2]]
    assert found[0]["status"] == {"podIP": "10.0.0.1"}
    assert server.requests[0].url.params["labelSelector"] == "app=x,part=y"


def test_config_maps_are_given_by_their_names() -> None:
    items = [
        {"metadata": {"name": "a", "namespace": "m"}, "data": {"x": "y"}},
        {"metadata": {"name": "b", "namespace": "m"}},
    ]

    assert Server(ok({"items": items})).client().config_maps("m") == {"a": {"x": "y"}, "b": {}}


def test_namespaces_are_given_by_name_without_those_that_are_going() -> None:
    meta = [
        {"name": "a", "labels": {"x": "y"}, "managedFields": [{"time": "0000-01-01T00:00:00Z"}]},
        {"name": "b", "deletionTimestamp": "2026-01-02T03:04:05Z"},
    ]

    found = Server(ok({"items": [{"metadata": m} for m in meta]})).client().namespaces()

    assert [(namespace.name, namespace.labels) for namespace in found] == [("a", {"x": "y"})]


class Pruned:
    """An API server that has a Deployment, a webhook configuration and a Secret of the charm's."""

    def __init__(self, **faults: httpx2.Response) -> None:
        self.deleted: list[str] = []
        self.bodies: list[Any] = []
        self._faults = faults

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":
            plural, name = request.url.path.split("/")[-2:]
            if plural in self._faults:
                return self._faults[plural]
            self.deleted.append(f"{plural}/{name}")
            self.bodies.append(json.loads(request.content))
            return ok({})
        plural = request.url.path.rpartition("/")[2]
        if plural in ("clusterpolicies", "mutatingpolicies"):
            return httpx2.Response(404, text="404 page not found")
        found = plural in ("mutatingwebhookconfigurations", "deployments", "secrets")
        namespace = {} if plural == "mutatingwebhookconfigurations" else {"namespace": "model"}
        items = [{"metadata": {"name": "x", "uid": f"uid-{plural}", **namespace}}] if found else []
        return ok({"items": items})

    def client(self) -> ApiClient:
        http = httpx2.Client(transport=httpx2.MockTransport(self), base_url="https://api")
        return ApiClient(http, lambda _: None)


def test_objects_are_pruned_in_order_and_only_those_that_were_listed() -> None:
    server = Pruned()
    kept: Json = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}

    pruned = server.client().prune(APPLICATION, [kept])

    assert pruned == ["MutatingWebhookConfiguration x", "Deployment x"]
    assert server.deleted == ["mutatingwebhookconfigurations/x", "deployments/x"]
    assert [body["preconditions"]["uid"] for body in server.bodies] == [
        "uid-mutatingwebhookconfigurations",
        "uid-deployments",
    ]


def test_what_cannot_be_deleted_keeps_nothing_else_back() -> None:
    server = Pruned(deployments=status(422, "no"))

    with pytest.raises(Refused, match="can't delete Deployment x: no"):
        server.client().prune(APPLICATION)

    assert server.deleted == ["mutatingwebhookconfigurations/x", "secrets/x"]


def test_the_workload_stays_while_its_webhook_configuration_does() -> None:
    server = Pruned(mutatingwebhookconfigurations=status(503, "not now"))

    with pytest.raises(Unreachable, match="can't delete MutatingWebhookConfiguration x: not now"):
        server.client().prune(APPLICATION)

    assert server.deleted == []


def test_what_is_gone_meanwhile_is_pruned() -> None:
    server = Pruned(deployments=status(404, "not found"))

    assert "Deployment x" in server.client().prune(APPLICATION)


def test_every_kind_of_ours_stands_in_the_table_once() -> None:
    resources = [Resource.of(kind) for kind in OURS]

    assert len({(resource.group, resource.kind) for resource in resources}) == len(OURS)
