"""The webhook configuration: which Pods the API server sends."""

from __future__ import annotations

from typing import Any

import pytest

from init_egress.backends.registry import (
    WEBHOOK,
)
from init_egress.config import Settings
from init_egress.rule import istio
from tests.rendering import (
    WEBHOOK_CONFIGURATION,
    at,
    render,
    selects,
)


def configuration(*, labels_canonical_name: bool) -> dict[str, Any]:
    """The webhook's configuration, by whether Istio is known to label every Pod."""
    objects: list[Any] = render(WEBHOOK, Settings(), labels_canonical_name=labels_canonical_name)
    return next(o for o in objects if o["kind"] == WEBHOOK_CONFIGURATION)


@pytest.mark.parametrize(
    ("pod", "known", "unknown"),
    [
        pytest.param({istio.CANONICAL_NAME: "app"}, True, True, id="injected"),
        pytest.param({istio.CANONICAL_NAME: ""}, True, True, id="injected-without-a-name"),
        pytest.param({"app": "app"}, False, True, id="unknown-to-istio"),
        pytest.param(
            {istio.CANONICAL_NAME: "gateway", "sidecar.istio.io/inject": "false"},
            False,
            True,
            id="gateway-that-is-not-injected",
        ),
    ],
)
def test_the_webhook_selects_by_istios_label_only_where_istio_is_known_to_write_it(
    pod: dict[str, str], known: bool, unknown: bool
) -> None:
    for labels_canonical_name, expected in ((True, known), (False, unknown)):
        (chosen,) = at(
            configuration(labels_canonical_name=labels_canonical_name), "objectSelector"
        )
        assert selects(chosen, pod) is expected


def test_the_api_server_weighs_pods_only_where_no_label_tells_the_injected_ones() -> None:
    assert at(configuration(labels_canonical_name=True), "matchConditions") == []
    ((condition,),) = at(configuration(labels_canonical_name=False), "matchConditions")
    assert istio.STATUS in condition["expression"]


def test_nothing_else_of_the_webhook_goes_by_that_label() -> None:
    with_label, without = (
        configuration(labels_canonical_name=known)["webhooks"][0] for known in (True, False)
    )
    with_label["objectSelector"]["matchExpressions"][:2] = []
    del without["matchConditions"]
    assert with_label == without
