"""The fake cluster does what a cluster does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.expectations import APP, Expectations
from tests.fake_cluster import FakeCluster


class TestFakeCluster(Expectations):
    """The expectations of a cluster, of the fake."""

    @pytest.fixture
    def cluster(self) -> Iterator[FakeCluster]:
        fake = FakeCluster(live_namespaces={"default": {}, "team": {}})
        yield fake
        fake.prune(APP)
