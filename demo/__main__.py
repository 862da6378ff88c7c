"""Show the charm's main job: `python -m demo`.

A real control plane with a real istiod, and the charm's real event handlers. Only Juju itself is
stood in for, by ops.testing.
"""

from __future__ import annotations

import difflib
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import yaml
from lightkube import Client
from lightkube.generic_resource import GenericNamespacedResource

from charm import IstioInitEgressCharm
from demo import juju
from demo.terminal import Terminal
from init_egress.kube.application import APPLICATION_LABEL
from init_egress.kube.kinds import NATIVE_BINDING, NATIVE_POLICY, POD
from init_egress.kube.manifest import Manifest
from init_egress.rule.istio import EXCLUDE_RANGES
from tests.testbed import build
from tests.testbed.control_plane import ControlPlane, control_plane, controller_manager
from tests.testbed.istio import NAMESPACE, istiod
from tests.testbed.network import enter_private_network
from tests.testbed.process import wait_until

APPLICATION = "istio-init-egress"
TEAM = "team-a"
POD_OF_A_TEAM = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "orders", "labels": {"app": "orders"}},
    "spec": {
        "initContainers": [
            {
                "name": "wait-for-db",
                "image": "example.com/wait-for:1",
                "args": ["db.example.com:5432"],
            }
        ],
        "containers": [{"name": "orders", "image": "example.com/orders:1"}],
    },
}


def main() -> int:
    """Run the demo; returns the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    terminal = Terminal(sys.stdout)
    try:
        for module in (build.ETCD, build.KUBERNETES, build.ISTIO):
            build.prepare(module)
        with _cluster(terminal) as plane, plane.client() as client:
            os.environ["KUBECONFIG"] = str(plane.kubeconfig())
            return Demo(terminal, client).run()
    except KeyboardInterrupt:
        return 130
    except (build.BuildError, RuntimeError, TimeoutError) as error:
        terminal.failure(str(error))
        return 1


@contextmanager
def _cluster(terminal: Terminal) -> Iterator[ControlPlane]:
    terminal.heading("A cluster")
    begun = time.monotonic()
    with ExitStack() as stack:
        plane = stack.enter_context(control_plane(enter_private_network()))
        stack.enter_context(controller_manager(plane))
        terminal.say("A real Kubernetes API server is up.")
        stack.enter_context(istiod(plane))
        plane.create_namespace(TEAM, {"istio-injection": "enabled"})
        terminal.say(
            f"A real istiod with Istio's CNI plugin is up, in namespace {NAMESPACE} as the"
            f" istio-pilot charm installs it ({time.monotonic() - begun:.0f} s)."
        )
        yield plane
    terminal.say("The cluster is gone.")


@dataclass
class Demo:
    """The story, a chapter a method."""

    terminal: Terminal
    client: Client

    def run(self) -> int:
        """Tell the story; returns the exit code, which is 1 if it went another way."""
        without = self._before()
        controller = juju.Controller(self.terminal, IstioInitEgressCharm, APPLICATION)
        self._deploy(controller)
        statuses = [controller.status]
        with_charm = self._pod("The same Pod, created again", compared_with=without)
        self._configure(controller)
        statuses.append(controller.status)
        narrower = self._pod("The next Pod", compared_with=with_charm)
        self._mistake(controller)
        statuses.append(controller.status)
        kept = self._pod("The next Pod has what was in force before", compared_with=narrower)
        self._remove(controller)
        after = self._pod("The next Pod is as Istio makes it again", compared_with=kept)
        as_told = without == after and kept == narrower and len({without, with_charm, kept}) == 3
        return self._end(as_told and statuses == ["active", "active", "blocked"])

    def _before(self) -> str:
        self.terminal.heading("Without the charm")
        self.terminal.say(
            f"A Pod of {TEAM} has an init container that needs the network. Istio injects it, and"
            " from the start its traffic goes to istio-proxy, which runs only when all init"
            " containers have ended: wait-for-db waits for ever."
        )
        return self._pod("The Pod, as the API server has it")

    def _deploy(self, controller: juju.Controller) -> None:
        self.terminal.heading("With the charm")
        controller.deploy()
        controller.integrate("gateway-info", "istio-pilot", {"gateway_namespace": NAMESPACE})
        self._objects()

    def _configure(self, controller: juju.Controller) -> None:
        self.terminal.heading("Narrower ranges")
        controller.config("exclude-outbound-ip-ranges", "10.0.0.0/8,fd00::/8")

    def _mistake(self, controller: juju.Controller) -> None:
        self.terminal.heading("A mistake")
        controller.config("exclude-outbound-ip-ranges", "10.0.0.0/8, 192.168.1.1")

    def _remove(self, controller: juju.Controller) -> None:
        self.terminal.heading("Removal")
        controller.remove()
        self._objects()
        self._wait_until_nothing_acts()

    def _pod(self, title: str, compared_with: str | None = None) -> str:
        """Create the Pod for real, show the part that matters, and delete it again."""
        created = self.client.create(POD.from_dict(POD_OF_A_TEAM), namespace=TEAM)
        self.client.delete(POD, "orders", namespace=TEAM, grace_period=0)
        text = yaml.safe_dump(_excerpt(created), sort_keys=False, allow_unicode=True)
        self.terminal.say(f"{title}:")
        self.terminal.show(_compared(compared_with, text))
        return text

    def _objects(self) -> None:
        found = [
            f"{kind.__name__} {item.metadata.name}"
            for kind in (NATIVE_BINDING, NATIVE_POLICY)
            for item in self.client.list(kind, labels={APPLICATION_LABEL: APPLICATION})
            if item.metadata
        ]
        self.terminal.say("The charm's objects on the cluster:")
        self.terminal.show(found or ["none"])

    def _wait_until_nothing_acts(self) -> None:
        """The API server looks for policies that are gone about every second."""

        def untouched() -> bool:
            pod = self.client.create(POD.from_dict(POD_OF_A_TEAM), namespace=TEAM, dry_run=True)
            return EXCLUDE_RANGES not in pod["metadata"]["annotations"]

        wait_until(untouched, "the API server notices that the policy is gone")

    def _end(self, expected: bool) -> int:
        self.terminal.heading("The end")
        if expected:
            self.terminal.say("Each status and each Pod was what it should be.")
            return 0
        self.terminal.failure("A status or a Pod was not what it should be; see above.")
        return 1


def _excerpt(pod: GenericNamespacedResource) -> Manifest:
    """What Istio and the charm change of a Pod, without all that is beside the point."""
    metadata, spec = pod["metadata"], pod["spec"]
    shown = ("excludeOutbound", "sidecar.istio.io/status")
    annotations = {
        key: value if "exclude" in key else "…"
        for key, value in sorted(metadata["annotations"].items())
        if any(part in key for part in shown)
    }
    names = ("initContainers", "containers")
    return {
        "annotations": annotations,
        **{name: [container["name"] for container in spec[name]] for name in names},
    }


def _compared(before: str | None, after: str) -> list[str]:
    """The lines of a text, those that are new or gone marked with + and -."""
    if before is None:
        return after.splitlines()
    compared = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line.rstrip() for line in compared if not line.startswith("?")]


if __name__ == "__main__":
    sys.exit(main())
