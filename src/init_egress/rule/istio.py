"""Names of Istio's and of ours that the rule reads or writes, with where they come from.

What the CNI plugin redirects: `doAddRun` and `NewRedirect` in
https://github.com/istio/istio/tree/master/cni/pkg/plugin. What Istio injects, and in what order:
https://github.com/istio/istio/blob/master/pkg/kube/inject/webhook.go.
"""

from __future__ import annotations

SKIP_LABEL = "istio-init-egress/skip"
"""On a Pod or a Namespace: `true` leaves it alone."""

PROBE_LABEL = "istio-init-egress/probe"
"""On a dry-run Pod: the one backend of one application that may act on it."""

SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", "local-path-storage")

ISTIO_INIT = "istio-init"
ISTIO_PROXY = "istio-proxy"
ISTIO_CONTAINERS = (
    ISTIO_INIT,
    "istio-validation",
    ISTIO_PROXY,
    "enable-core-dump",
    "grpc-bootstrap-init",
)
DEFAULT_PROXY_ID = 1337
"""The proxy's user and group where its container names none."""

STATUS = "sidecar.istio.io/status"
"""The annotation that Istio writes on every Pod that it injects."""

CANONICAL_NAME = "service.istio.io/canonical-name"
NATIVE_SIDECAR = "sidecar.istio.io/nativeSidecar"
INTERCEPTION_MODE = "sidecar.istio.io/interceptionMode"
INCLUDE_RANGES = "traffic.sidecar.istio.io/includeOutboundIPRanges"
INCLUDE_PORTS = "traffic.sidecar.istio.io/includeOutboundPorts"
EXCLUDE_RANGES = "traffic.sidecar.istio.io/excludeOutboundIPRanges"
EXCLUDE_PORTS = "traffic.sidecar.istio.io/excludeOutboundPorts"

GO_TRUE = ("1", "t", "T", "TRUE", "true", "True")
"""What Go's strconv.ParseBool reads as true; the CNI plugin reads DISABLE_ENVOY with it."""

GO_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""What Go's strings.TrimSpace cuts off; str.strip() alone would also cut \\x1c to \\x1f."""
