"""backend=webhook on a real node: its workload as rendered, its image as rockcraft.yaml says."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from lightkube.core.client import LabelValue
from lightkube.resources.apps_v1 import Deployment
from ops import testing

from init_egress.kube.kinds import POD
from init_egress.rule.istio import EXCLUDE_RANGES
from tests.functional.load import A_POD, creating_pods
from tests.functional.unit import Unit
from tests.node.site import MODEL, STORY, RecordProperty, Site, is_ready
from tests.testbed.control_plane import Manifest
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.images import DAEMON_ID, Image
from tests.testbed.process import wait_until

NAME = "istio-init-egress-webhook"
LABELS: dict[str, LabelValue] = {"istio-init-egress/webhook": "istio-init-egress"}
EVERYTHING = "0.0.0.0/0,::/0"


@pytest.fixture
def webhook(unit: Unit, team: str, webhook_image: Image, tmp_path: Path) -> Unit:
    """A unit whose webhook is in force, in a namespace of Pod Security's strictest level."""
    path = tmp_path / "image.yaml"
    path.write_text(yaml.safe_dump({"registrypath": webhook_image.reference}))
    unit.having(resources={testing.Resource(name="webhook-image", path=path)})
    status = unit.configured(backend="webhook", failure_policy="fail")
    assert status.name == "active", status.message
    return unit


@pytest.fixture
def team(namespace: MakeNamespace) -> str:
    """A namespace of the mesh."""
    return namespace({"istio-injection": "enabled"})


def test_the_deployment_is_available_under_pod_security_and_serves_through_its_service(
    site: Site, team: str, webhook: Unit
) -> None:
    assert "2 of 2 replicas ready, 2 up to date" in webhook.status.message
    deployment = site.client.get(Deployment, NAME, namespace=MODEL).to_dict()
    conditions = {c["type"]: c["status"] for c in deployment["status"]["conditions"]}
    assert conditions["Available"] == "True"

    pod = site.client.create(POD.from_dict(A_POD), namespace=team, dry_run=True)

    assert pod["metadata"]["annotations"][EXCLUDE_RANGES] == EVERYTHING


def test_the_workload_runs_as_the_images_user_on_files_that_it_cannot_change(
    site: Site, webhook: Unit
) -> None:
    pod = replicas(site)[0]
    look = "import os; print(os.getuid(), os.getgid(), os.access('/usr', os.W_OK))"
    seen = site.plane.kubectl(
        "exec", f"--namespace={MODEL}", name_of(pod), "--", "python3", "-c", look
    )
    assert seen.split() == [str(DAEMON_ID), str(DAEMON_ID), "False"]


def test_a_rolling_restart_under_load_leaves_no_pod_without(
    site: Site, team: str, webhook: Unit
) -> None:
    before = {name_of(pod) for pod in replicas(site)}

    with creating_pods(site.plane, team, threads=2) as created:
        workload = f"--namespace={MODEL}", f"deployment/{NAME}"
        site.plane.kubectl("rollout", "restart", *workload)
        site.plane.kubectl("rollout", "status", "--timeout=120s", *workload)
        wait_until(lambda: not before & _names(site), "the old ones are gone", deadline=60)

    assert len(created) > 100
    assert [pod for pod in created if pod != EVERYTHING] == []


def test_a_replica_that_is_deleted_leaves_no_pod_without(
    site: Site, team: str, webhook: Unit
) -> None:
    victim = name_of(replicas(site)[0])

    with creating_pods(site.plane, team, threads=2) as created:
        # Returns when it is gone.
        site.plane.kubectl("delete", "pod", f"--namespace={MODEL}", victim)
        wait_until(lambda: len(replicas(site)) == 2, "there is another in its place")

    assert len(created) > 50
    assert [pod for pod in created if pod != EVERYTHING] == []


def test_a_replica_that_crashes_costs_no_pod_but_those_of_the_moment(
    site: Site, team: str, webhook: Unit, record_property: RecordProperty
) -> None:
    victim = replicas(site)[0]

    with creating_pods(site.plane, team, threads=2) as created:
        wait_until(lambda: len(created) > 20, "Pods are created")
        before = len(created)
        site.node.kill(victim, "webhook")
        wait_until(lambda: _restarts(site, name_of(victim)) > 0, "it was started again")
        wait_until(lambda: len(replicas(site)) == 2, "it serves again")
        after = len(created) + 2  # each thread may still wait for an answer
        wait_until(lambda: len(created) > after + 50, "Pods are created")

    # What it was asked as it died, and until its endpoint is gone, nobody else can answer.
    lost = [pod for pod in created[before:after] if pod != EVERYTHING]
    record_property(STORY, f"a replica crashes: {len(lost)} of {after - before} Pods refused")
    assert [pod for pod in created[:before] + created[after:] if pod != EVERYTHING] == []
    assert len(lost) < (after - before) // 2


def test_the_image_by_itself_says_how_it_is_used(
    site: Site, namespace: MakeNamespace, webhook_image: Image
) -> None:
    alone = namespace()
    container = {"name": "webhook", "image": webhook_image.reference}
    pod: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "webhook", "namespace": alone},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }
    site.plane.apply([pod])

    site.wait_shown(alone, "Completed")

    assert "usage:" in site.logs(alone, "webhook", "webhook")


def replicas(site: Site) -> list[Manifest]:
    """The Pods of the workload that serve."""
    found = [pod.to_dict() for pod in site.client.list(POD, namespace=MODEL, labels=LABELS)]
    pods = [pod for pod in found if "deletionTimestamp" not in pod["metadata"] and is_ready(pod)]
    return sorted(pods, key=name_of)


def name_of(pod: Manifest) -> str:
    return pod["metadata"]["name"]


def _names(site: Site) -> set[str]:
    return {name_of(pod) for pod in replicas(site)}


def _restarts(site: Site, name: str) -> int:
    pod = site.client.get(POD, name, namespace=MODEL)
    return pod["status"]["containerStatuses"][0]["restartCount"]
