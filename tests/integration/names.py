"""The names that both integration suites use.

They stand in one place so that a unit test can hold them against charmcraft.yaml: a misspelt
option would otherwise show only on a controller, and late.
"""

from typing import Final

APP: Final = "istio-init-egress"
PILOT: Final = "istio-pilot"
"""The other end of gateway-info, published or stand-in: the charm's status names it so."""


class Endpoint:
    """Endpoints of the charm."""

    GATEWAY_INFO: Final = "gateway-info"


class PilotEndpoint:
    """Endpoints of the other end."""

    GATEWAY_INFO: Final = "gateway-info"


class Option:
    """Options of the charm."""

    BACKEND: Final = "backend"
    REMEDY: Final = "remedy"
    RANGES: Final = "exclude-outbound-ip-ranges"
    MESH_NAMESPACE: Final = "mesh-namespace"


class Action:
    """Actions of the charm."""

    SHOW_POLICY: Final = "show-policy"


class Result:
    """Keys in the results of the actions."""

    POLICY: Final = "policy"


class Value:
    """Values that the tests give to options."""

    NARROW_RANGES: Final = "10.0.0.0/8,fd00::/8"
    INVALID_RANGES: Final = "10.0.0.1"
    PROXY_USER: Final = "proxy-user"


DEFAULT_RANGES: Final = "0.0.0.0/0,::/0"
BACKENDS: Final = ("native", "kyverno", "webhook")
"""What an active status begins with; values of the option `backend` as well."""

OURS: Final = f"{APP}:{Endpoint.GATEWAY_INFO}"
THEIRS: Final = f"{PILOT}:{PilotEndpoint.GATEWAY_INFO}"

TRUST_COMMAND: Final = f"juju trust {APP} --scope=cluster"
INTEGRATE_COMMAND: Final = f"juju integrate {OURS} {THEIRS}"
MESH_COMMAND: Final = f"juju config {APP} {Option.MESH_NAMESPACE}="
STANDBY: Final = "standby: not the leader"
NOT_VERIFIED: Final = "not verified"

APPLICATION_LABEL: Final = "istio-init-egress/application"
MODEL_LABEL: Final = "istio-init-egress/model"
SKIP_LABEL: Final = "istio-init-egress/skip"
