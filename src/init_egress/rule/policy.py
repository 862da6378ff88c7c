"""What the operator configured, as far as the rule is concerned."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from init_egress.rule.istio import ISTIO_CONTAINERS
from init_egress.rule.selector import EVERYTHING, Selector


class RemedyKind(str, Enum):
    """How a cut-off init container gets its network back; the values of the option `remedy`."""

    EXCLUDE_IP_RANGES = "exclude-ip-ranges"
    PROXY_USER = "proxy-user"
    PROXY_GROUP = "proxy-group"


class ExistingAnnotation(str, Enum):
    """What becomes of an exclude annotation that the Pod has already."""

    MERGE = "merge"
    KEEP = "keep"
    REPLACE = "replace"


@dataclass(frozen=True)
class Policy:
    """What the operator configured.

    Attributes:
        remedy: what is done to a Pod that needs it.
        ranges: canonical CIDR prefixes to exclude, such as `10.0.0.0/8`.
        ports: TCP and UDP ports to exclude, as decimal text.
        existing: what becomes of annotations that are there already.
        ignored: names of init containers that need no network.
        namespaces: the namespaces that the charm acts in.
        pods: the Pods that the charm acts on.
    """

    remedy: RemedyKind = RemedyKind.EXCLUDE_IP_RANGES
    ranges: tuple[str, ...] = ("0.0.0.0/0", "::/0")
    ports: tuple[str, ...] = ()
    existing: ExistingAnnotation = ExistingAnnotation.MERGE
    ignored: tuple[str, ...] = ()
    namespaces: Selector = EVERYTHING
    pods: Selector = EVERYTHING

    @cached_property
    def skipped_names(self) -> frozenset[str]:
        """Names of the init containers that are left alone: Istio's own and the ignored ones."""
        return frozenset((*ISTIO_CONTAINERS, *self.ignored))
