"""The example bundle and its overlay use what charmcraft.yaml says of the charm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from init_egress.config import Config

ROOT = Path(__file__).resolve().parents[2]
BUNDLE: dict[str, Any] = yaml.safe_load((ROOT / "bundle" / "bundle.yaml").read_text())
OVERLAY: dict[str, Any] = yaml.safe_load((ROOT / "bundle" / "overlay.yaml").read_text())
CHARMCRAFT: dict[str, Any] = yaml.safe_load((ROOT / "charmcraft.yaml").read_text())
NAME: str = CHARMCRAFT["name"]


def test_the_overlay_adds_the_charm_trusted_with_its_image_and_nothing_else() -> None:
    (application,) = OVERLAY["applications"].items()

    assert OVERLAY.keys() == {"applications", "relations"}
    assert application[0] == application[1]["charm"] == NAME
    assert application[1]["trust"] is True
    assert application[1]["resources"] == {
        name: resource["upstream-source"] for name, resource in CHARMCRAFT["resources"].items()
    }


def test_the_overlays_options_can_be_carried_out() -> None:
    options = OVERLAY["applications"][NAME]["options"]

    assert options.keys() <= CHARMCRAFT["config"]["options"].keys()
    Config(**{name.replace("-", "_"): value for name, value in options.items()}).settings()


def test_the_overlay_relates_endpoints_of_the_charm_to_applications_of_the_bundle() -> None:
    ends = [dict(end.split(":") for end in pair) for pair in OVERLAY["relations"]]

    assert ends
    for pair in ends:
        assert pair.pop(NAME) in {**CHARMCRAFT["requires"], **CHARMCRAFT["provides"]}
        assert pair.keys() <= BUNDLE["applications"].keys()
    assert f"{NAME}:gateway-info" in {end for pair in OVERLAY["relations"] for end in pair}


def test_every_relation_of_the_bundle_is_of_two_of_its_applications() -> None:
    for pair in BUNDLE["relations"]:
        names = {end.partition(":")[0] for end in pair}
        assert len(names) == 2
        assert names <= BUNDLE["applications"].keys()
