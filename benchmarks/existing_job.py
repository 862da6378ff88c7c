"""What the actions do about many Pods, as a process of its own, so that its memory is its own.

`python -m benchmarks.existing_job audit|mutate` with KUBECONFIG; prints how many requests it made
and how many Pods it found or changed, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import msgspec

from init_egress.config import Config
from init_egress.existing.advice import Juju
from init_egress.existing.audit import audit, document
from init_egress.existing.mutation import Disruptions, Mutation
from init_egress.existing.mutation_plan import Restart
from init_egress.existing.mutation_report import MutationReport, MutationResult
from init_egress.kube.client import ApiClient
from init_egress.kube.scope import Scope
from init_egress.results import ACTION_LIMIT


def _audit() -> dict[str, int]:
    bulk = ApiClient.connect()
    policy = Config().settings().policy
    found = audit(bulk, policy, Scope(), Juju("istio-init-egress"), limit=ACTION_LIMIT)
    msgspec.json.encode(document(found, []))
    return {"requests": bulk.requests, "pods": found.pods}


def _mutate() -> dict[str, int]:
    bulk = ApiClient.connect()
    policy = Config().settings().policy
    report = MutationReport(Scope(), dry_run=False, limit=ACTION_LIMIT)
    # No Pod is recreated, so nothing has to be proved.
    Mutation(
        bulk,
        policy,
        Scope(),
        Restart.NONE,
        lambda *_: "",
        report,
        Disruptions(1),
        lambda _: None,
    ).run()
    report.document()
    return {"requests": bulk.requests, "pods": report.results[MutationResult.PATCHED]}


_JOBS: dict[str, Callable[[], dict[str, int]]] = {"audit": _audit, "mutate": _mutate}

if __name__ == "__main__":
    print(json.dumps(_JOBS[sys.argv[1]]()))
