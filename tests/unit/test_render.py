"""Templates in, manifests out."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError

from init_egress.backends.render import environment as templates
from init_egress.rule.policy import Policy


def test_an_undefined_name_in_a_template_is_an_error() -> None:
    environment = templates()
    with pytest.raises(UndefinedError):
        environment.from_string("{{ nothing }}").render()
    with pytest.raises(UndefinedError):
        environment.from_string("{{ policy.nothing }}").render(policy=Policy())
