"""The verdicts of the rule."""

from __future__ import annotations

from enum import Enum


class Verdict(str, Enum):
    """What the rule says of a Pod, in the order of asking; the first that fits holds."""

    SYSTEM_NAMESPACE = "system-namespace"
    OPTED_OUT = "opted-out"
    NOT_INJECTED = "not-injected"
    NO_INIT_CONTAINERS = "no-init-containers"
    NATIVE_SIDECAR = "native-sidecar"
    NOT_REDIRECTED = "not-redirected"
    ALREADY_EXEMPT = "already-exempt"
    ALREADY_EXCLUDED = "already-excluded"
    BEYOND_REMEDY = "beyond-remedy"
    NEEDS_REMEDY = "needs-remedy"
