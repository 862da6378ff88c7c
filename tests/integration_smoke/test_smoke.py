"""One smoke test with pytest-operator, for Juju 3.6: python-libjuju refuses Juju 4.

The other tests are in tests/integration/, whose names and inputs this one shares.
"""

from __future__ import annotations

import os

import pytest
from pytest_operator.plugin import OpsTest  # pyright: ignore[reportMissingImports]

from tests.integration import inputs, names

_DEADLINE = 15 * 60


@pytest.mark.asyncio
async def test_deployed_and_related_it_is_active(ops_test: OpsTest) -> None:
    charm, pilot = inputs.charm(os.environ), inputs.pilot(os.environ)
    assert ops_test.model is not None

    await ops_test.model.deploy(
        charm.charm, application_name=names.APP, resources=dict(charm.resources), trust=True
    )
    await ops_test.model.deploy(
        pilot.charm,
        application_name=names.PILOT,
        channel=pilot.channel,
        config=dict(pilot.config),
        trust=True,
    )
    await ops_test.model.integrate(names.OURS, names.THEIRS)
    await ops_test.model.wait_for_idle(
        apps=[names.APP], status="active", raise_on_error=True, timeout=_DEADLINE
    )

    units = ops_test.model.applications[names.APP].units
    assert [unit.workload_status_message.startswith(names.BACKENDS) for unit in units] == [True]
