"""The whole story on a real node: a Pod is stuck without the charm, and runs with it."""

from __future__ import annotations

from time import monotonic

from tests.functional.unit import Unit
from tests.node.programs import fetching, serving
from tests.node.site import STORY, RecordProperty, Site
from tests.testbed.fixtures import MakeNamespace
from tests.testbed.process import wait_until

STUCK = "Init:CrashLoopBackOff"


def test_a_pod_that_is_stuck_in_its_init_container_runs_once_the_charm_is_there(
    site: Site,
    unit: Unit,
    namespace: MakeNamespace,
    record_property: RecordProperty,
) -> None:
    team = namespace({"istio-injection": "enabled"})
    url = site.serve(namespace(), "models")

    fetch = fetching("storage-initializer", url)
    site.deploy(team, "predictor", {"initContainers": [fetch], "containers": [serving("app")]})
    stuck = site.wait_shown(team, "Init:Error", STUCK)

    def backs_off() -> bool:
        # The kubelet tells of it when it looks at the Pod meanwhile; any change makes it look.
        look = f"looked-at={monotonic()}"
        site.plane.kubectl("annotate", "pod", stuck, f"--namespace={team}", "--overwrite", look)
        return site.shown(team) == {stuck: STUCK}

    wait_until(backs_off, "its Pod is stuck, and tried again more and more rarely")
    wait_until(
        lambda: "Connection refused" in site.logs(team, stuck, "storage-initializer"),
        "it was refused, for nothing listens where its traffic is redirected",
    )

    status = unit.configured(backend="native")
    assert status.name == "active", status.message
    assert site.shown(team).keys() == {stuck}  # it doesn't get better by itself
    results = unit.act("mutate-existing-pods", namespace=team)
    assert (results["evicted"], results["stuck-still"]) == ("1", "0")

    running = site.wait_shown(team, "Running")
    assert running != stuck
    assert "200 a model" in site.logs(team, running, "storage-initializer")
    site.plane.kubectl(
        "rollout", "status", "deployment/predictor", f"--namespace={team}", "--timeout=60s"
    )
    record_property(STORY, f"mutate-existing-pods under backend=native: {STUCK} -> Running")
