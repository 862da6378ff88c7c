"""The names and labels of the application's objects."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from init_egress.kube.application import APPLICATION_LABEL, MODEL_LABEL, Application
from tests.rendering import (
    APPLICATION,
)


def test_a_short_name_says_application_and_model() -> None:
    assert APPLICATION.object_name == "istio-init-egress.kubeflow"
    assert APPLICATION.labels == {APPLICATION_LABEL: "istio-init-egress", MODEL_LABEL: "kubeflow"}


_names = st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


@settings(deadline=None, database=None)
@given(st.lists(st.builds(Application, _names, _names), min_size=2, max_size=2, unique=True))
def test_any_two_applications_have_different_names(applications: list[Application]) -> None:
    one, other = applications
    assert one.object_name != other.object_name
    assert max(len(one.object_name), len(other.object_name)) <= 45
