"""The example bundle and its overlay are what Juju accepts, and what charmcraft.yaml says.

There is no controller here, so Juju's own rules are held against them: those that `juju deploy`
checks before it deploys anything (verifyBundle and ReadAndMergeBundleData of
https://github.com/juju/charm, bundledata.go and overlay.go), with the charms' own declarations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from init_egress.config import Config

ROOT = Path(__file__).resolve().parents[2]
BASE: dict[str, Any] = yaml.safe_load((ROOT / "bundle" / "bundle.yaml").read_text())
OVERLAY: dict[str, Any] = yaml.safe_load((ROOT / "bundle" / "overlay.yaml").read_text())
CHARMCRAFT: dict[str, Any] = yaml.safe_load((ROOT / "charmcraft.yaml").read_text())
NAME: str = CHARMCRAFT["name"]

# Keys of BundleData and ApplicationSpec (bundledata.go) that a Kubernetes bundle may use, and
# those that only Charmhub reads.
BUNDLE_KEYS = {"bundle", "applications", "relations", "saas", "tags", "description"}
CHARMHUB_KEYS = {"name", "docs", "issues", "source", "website"}
APPLICATION_KEYS = {
    *("annotations", "base", "bindings", "channel", "charm", "constraints", "devices", "expose"),
    *("options", "placement", "resources", "scale", "storage", "trust"),
}
OVERLAY_KEYS = {"exposed-endpoints", "offers"}
# names.ApplicationSnippet and names.RelationSnippet of https://github.com/juju/names.
APPLICATION = r"(?:[a-z][a-z0-9]*(?:-[a-z0-9]*[a-z][a-z0-9]*)*)"
ENDPOINT = re.compile(rf"({APPLICATION}):([a-z][a-z0-9]*(?:[_-][a-z0-9]+)*)")
CHANNEL = re.compile(r"[^/\s]+/(stable|candidate|beta|edge)(/[^/\s]+)?")


@dataclass(frozen=True)
class Charm:
    """What a bundle may ask of a charm: endpoints with their interfaces, options, resources."""

    provides: Mapping[str, str] = field(default_factory=dict)
    requires: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, type] = field(default_factory=dict)
    resources: frozenset[str] = frozenset()

    @classmethod
    def of(cls, charmcraft: Mapping[str, Any]) -> Charm:
        types = {"string": str, "int": int, "boolean": bool, "float": float}
        options = charmcraft.get("config", {}).get("options", {})
        return cls(
            provides=_interfaces(charmcraft.get("provides", {})),
            requires=_interfaces(charmcraft.get("requires", {})),
            options={name: types[option["type"]] for name, option in options.items()},
            resources=frozenset(charmcraft.get("resources", {})),
        )


def _interfaces(endpoints: Mapping[str, Any]) -> dict[str, str]:
    return {name: endpoint["interface"] for name, endpoint in endpoints.items()}


# What the bundle uses of the others' metadata.yaml and config.yaml, at the channels named in it:
# https://github.com/canonical/istio-operators, https://github.com/canonical/kserve-operators.
CHARMS = {
    NAME: Charm.of(CHARMCRAFT),
    "istio-pilot": Charm(
        provides={"istio-pilot": "k8s-service", "gateway-info": "istio-gateway-info"},
        options={"default-gateway": str, "cni-bin-dir": str, "cni-conf-dir": str},
    ),
    "istio-gateway": Charm(requires={"istio-pilot": "k8s-service"}, options={"kind": str}),
    "kserve-controller": Charm(
        requires={"ingress-gateway": "istio-gateway-info"}, options={"deployment-mode": str}
    ),
}


def merged(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """The bundle that an overlay makes of another one, by the rules of overlay.go."""
    bundle = deepcopy(dict(base))
    for name, application in overlay.get("applications", {}).items():
        known = bundle["applications"].setdefault(name, {})
        for key, value in application.items():
            if isinstance(value, dict) and value:
                known[key] = {**known.get(key, {}), **value}
            else:
                known[key] = value
    bundle["relations"] = [*base.get("relations", []), *overlay.get("relations", [])]
    return bundle


def faults(bundle: Mapping[str, Any], charms: Mapping[str, Charm] = CHARMS) -> list[str]:
    """What Juju would refuse about a bundle."""
    unknown = set(bundle) - BUNDLE_KEYS - CHARMHUB_KEYS
    found = [f"unknown key {key}" for key in sorted(unknown)]
    if bundle.get("bundle") != "kubernetes":
        found.append("no bundle for Kubernetes")
    applications = bundle.get("applications") or {}
    for name, application in applications.items():
        found += [f"{name}: {fault}" for fault in _application_faults(name, application, charms)]
    return [*found, *_relation_faults(bundle.get("relations", []), applications, charms)]


def _application_faults(
    name: str, application: Mapping[str, Any], charms: Mapping[str, Charm]
) -> Iterator[str]:
    if not re.fullmatch(APPLICATION, name):
        yield "no name of an application"
    for key in sorted(set(application) - APPLICATION_KEYS - OVERLAY_KEYS):
        yield f"unknown key {key}"
    charm = charms.get(application.get("charm", ""))
    if charm is None:
        yield f"unknown charm {application.get('charm')}"
        return
    if not CHANNEL.fullmatch(application.get("channel", "")):
        yield f"no channel: {application.get('channel')}"
    scale = application.get("scale")
    if type(scale) is not int or scale < 1:
        yield f"no scale: {scale}"
    if not isinstance(application.get("trust", False), bool):
        yield "trust is neither true nor false"
    for option, value in application.get("options", {}).items():
        if option not in charm.options:
            yield f"unknown option {option}"
        elif type(value) is not charm.options[option]:
            yield f"option {option} is no {charm.options[option].__name__}"
    for resource, value in application.get("resources", {}).items():
        if resource not in charm.resources:
            yield f"unknown resource {resource}"
        if type(value) not in (int, str):
            yield f"resource {resource} is neither a revision nor an image"


def _relation_faults(
    relations: Sequence[Sequence[str]],
    applications: Mapping[str, Any],
    charms: Mapping[str, Charm],
) -> Iterator[str]:
    seen: set[frozenset[str]] = set()
    for relation in relations:
        matches = [ENDPOINT.fullmatch(end) for end in relation]
        if len(relation) != 2 or not all(matches):
            yield f"no relation of two endpoints: {relation}"
            continue
        if frozenset(relation) in seen:
            yield f"{relation} is there twice"
        seen.add(frozenset(relation))
        (one, first), (other, second) = (match.groups() for match in matches if match)
        if one == other:
            yield f"{relation} relates an application to itself"
        if missing := {one, other} - set(applications):
            yield f"{relation} names {', '.join(sorted(missing))}, which is not there"
            continue
        ours, theirs = (charms.get(applications[name].get("charm")) for name in (one, other))
        if ours and theirs and not _relate(ours, first, theirs, second):
            yield f"{relation} can't be made"


def _relate(ours: Charm, first: str, theirs: Charm, second: str) -> bool:
    """Whether one of two endpoints provides the interface that the other one requires."""
    ways = (
        (ours.provides.get(first), theirs.requires.get(second)),
        (ours.requires.get(first), theirs.provides.get(second)),
    )
    return any(provided and provided == required for provided, required in ways)


def test_the_bundle_alone_is_one_that_juju_accepts() -> None:
    assert faults(BASE) == []
    used = {key for application in BASE["applications"].values() for key in application}
    assert not used & OVERLAY_KEYS


def test_the_bundle_with_its_overlay_is_one_that_juju_accepts() -> None:
    assert faults(merged(BASE, OVERLAY)) == []


def test_the_overlay_adds_the_charm_and_nothing_else() -> None:
    assert set(OVERLAY) == {"applications", "relations"}
    assert set(OVERLAY["applications"]) == {NAME}
    assert all(any(end.startswith(f"{NAME}:") for end in pair) for pair in OVERLAY["relations"])


def test_the_overlay_trusts_the_charm_and_names_its_images() -> None:
    ours = OVERLAY["applications"][NAME]

    assert ours["charm"] == NAME
    assert ours["trust"] is True
    assert ours["resources"] == {
        name: resource["upstream-source"] for name, resource in CHARMCRAFT["resources"].items()
    }


def test_the_overlay_tells_the_charm_where_the_mesh_is() -> None:
    ends = {end for pair in OVERLAY["relations"] for end in pair}

    assert f"{NAME}:gateway-info" in ends


def test_the_overlays_options_can_be_carried_out() -> None:
    options = OVERLAY["applications"][NAME]["options"]

    Config(**{name.replace("-", "_"): value for name, value in options.items()}).settings()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"applications": {NAME: {"options": {"remedi": "proxy-user"}}}}, "unknown option remedi"),
        ({"applications": {NAME: {"options": {"webhook-replicas": "2"}}}}, "is no int"),
        ({"applications": {NAME: {"resources": {"image": 1}}}}, "unknown resource image"),
        ({"applications": {NAME: {"resources": {"webhook-image": 1.5}}}}, "neither a revision"),
        ({"applications": {NAME: {"trust": "yes"}}}, "trust is neither"),
        ({"applications": {NAME: {"scale": 0}}}, "no scale"),
        ({"applications": {NAME: {"num_units": 1}}}, "unknown key num_units"),
        ({"applications": {NAME: {"channel": "stable"}}}, "no channel"),
        ({"applications": {NAME: {"charm": "istio"}}}, "unknown charm istio"),
        ({"applications": {"kserve_controller": {}}}, "no name of an application"),
        ({"relations": [[f"{NAME}:gateway-info", "istio-pilot:ingress"]]}, "can't be made"),
        ({"relations": [[f"{NAME}:gateway-inf", "istio-pilot:gateway-info"]]}, "can't be made"),
        ({"relations": [[f"{NAME}:gateway-info", "pilot:gateway-info"]]}, "which is not there"),
        ({"relations": [[f"{NAME}:gateway-info", f"{NAME}:certificates"]]}, "to itself"),
        ({"relations": [["istio-pilot:gateway-info", f"{NAME}:gateway-info"]]}, "twice"),
        ({"relations": [[NAME]]}, "no relation of two endpoints"),
    ],
)
def test_what_juju_refuses_is_found(change: dict[str, Any], fault: str) -> None:
    found = faults(merged(merged(BASE, OVERLAY), change))

    assert any(fault in one for one in found), found
