"""The remedies, one in a file each. Whoever adds one registers it here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from init_egress.rule.policy import RemedyKind
from init_egress.rule.remedies.exclude_ip_ranges import ExcludeIpRanges
from init_egress.rule.remedies.proxy_group import ProxyGroup
from init_egress.rule.remedies.proxy_user import ProxyUser
from init_egress.rule.remedies.remedy import Remedy

REMEDIES: Mapping[RemedyKind, Remedy] = MappingProxyType(
    {remedy.kind: remedy for remedy in (ExcludeIpRanges(), ProxyUser(), ProxyGroup())}
)
"""Every remedy by the value of the option that chooses it."""
