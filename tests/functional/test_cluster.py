"""The client does on a real API server what the charm's tests expect of the fake."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lightkube import Client

from init_egress.kube.client import ApiClient
from init_egress.kube.cluster import Cluster
from tests.expectations import APP, Expectations
from tests.testbed.control_plane import ControlPlane


class TestCluster(Expectations):
    """The expectations of a cluster, of a real one."""

    @pytest.fixture
    def cluster(self, cluster: ControlPlane, client: Client) -> Iterator[Cluster]:
        cluster.create_namespace(APP.model)
        real = ApiClient.connect(client.config)
        yield real
        real.prune(APP)
