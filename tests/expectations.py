"""What a cluster does for the charm: the same expectations of the fake and of a real one.

`tests/unit/test_fake_cluster.py` runs them on the fake, `tests/functional/test_cluster.py` on a
real API server. So a fake that does something else than a cluster fails a test.
"""

from __future__ import annotations

import pytest

from init_egress.backends.probe import probe_pod
from init_egress.backends.registry import NATIVE
from init_egress.config import Settings
from init_egress.kube.application import Application
from init_egress.kube.cluster import Cluster
from init_egress.kube.errors import NotFound
from init_egress.kube.kinds import (
    CONFIG_MAP,
    NATIVE_BINDING,
    NATIVE_POLICY,
    SECRET,
    WEBHOOK_CONFIGURATION,
)
from init_egress.kube.manifest import Manifest

APP = Application("expectations", "default")
OTHER = Application("expectations-other", "default")


def config_map(name: str, application: Application = APP, **data: str) -> Manifest:
    """A ConfigMap of an application."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": application.model,
            "labels": application.labels,
        },
        "data": data,
    }


def native(application: Application = APP) -> list[Manifest]:
    """The native policy and its bindings."""
    return NATIVE.render(Settings(), application)


class Expectations:
    """To be inherited by a class of tests that has a fixture `cluster`."""

    def test_what_is_applied_can_be_read(self, cluster: Cluster) -> None:
        cluster.apply([config_map("applied", key="value")])

        found = cluster.get(CONFIG_MAP, "applied", APP.model)

        assert found
        assert found["data"] == {"key": "value"}

    def test_what_is_not_there_is_none(self, cluster: Cluster) -> None:
        assert cluster.get(CONFIG_MAP, "absent", APP.model) is None
        assert cluster.get(WEBHOOK_CONFIGURATION, "absent") is None

    def test_what_is_applied_again_has_the_new_content(self, cluster: Cluster) -> None:
        cluster.apply([config_map("again", key="old", dropped="yes")])
        cluster.apply([config_map("again", key="new")])

        found = cluster.get(CONFIG_MAP, "again", APP.model)

        assert found
        assert found["data"] == {"key": "new"}

    def test_prune_deletes_what_is_not_kept_and_says_so(self, cluster: Cluster) -> None:
        kept, other = config_map("kept"), config_map("other")
        cluster.apply([kept, other])

        assert cluster.prune(APP, keep=[kept]) == ["ConfigMap other"]
        assert cluster.get(CONFIG_MAP, "kept", APP.model)
        assert cluster.get(CONFIG_MAP, "other", APP.model) is None

    def test_prune_leaves_another_applications_objects(self, cluster: Cluster) -> None:
        cluster.apply([config_map("theirs", OTHER)])

        cluster.prune(APP)

        assert cluster.get(CONFIG_MAP, "theirs", OTHER.model)
        cluster.prune(OTHER)

    def test_prune_goes_from_what_sends_pods_to_what_they_are_sent_to(
        self, cluster: Cluster
    ) -> None:
        cluster.apply([config_map("last"), *native()])

        pruned = cluster.prune(APP)

        kinds = [name.split()[0] for name in pruned]
        order = [NATIVE_BINDING.__name__, NATIVE_POLICY.__name__, CONFIG_MAP.__name__]
        assert list(dict.fromkeys(kinds)) == order

    def test_a_pruned_application_has_nothing_to_prune(self, cluster: Cluster) -> None:
        cluster.apply([config_map("once")])
        cluster.prune(APP)

        assert cluster.prune(APP) == []

    def test_what_is_served_is_known(self, cluster: Cluster) -> None:
        assert cluster.serves(NATIVE_POLICY)
        assert cluster.serves(WEBHOOK_CONFIGURATION)

    def test_namespaces_come_in_the_order_of_their_names(self, cluster: Cluster) -> None:
        names = [namespace.name for namespace in cluster.namespaces()]

        assert names == sorted(names)

    def test_a_dry_run_stores_nothing(self, cluster: Cluster) -> None:
        namespace = cluster.namespaces()[0].name
        pod = probe_pod(Settings().policy)

        stored = cluster.dry_run(namespace, pod)

        assert stored["kind"] == "Pod"
        assert cluster.labelled_pods(namespace, {}) == []

    def test_a_dry_run_in_a_namespace_that_is_not_there_is_not_found(
        self, cluster: Cluster
    ) -> None:
        with pytest.raises(NotFound, match="absent"):
            cluster.dry_run("absent", probe_pod(Settings().policy))

    def test_a_secret_comes_back_as_it_was_applied(self, cluster: Cluster) -> None:
        secret: Manifest = {**config_map("secret"), "kind": "Secret", "data": {"key": "dmFsdWU="}}
        cluster.apply([secret])

        found = cluster.get(SECRET, "secret", APP.model)

        assert found
        assert found["data"] == {"key": "dmFsdWU="}
