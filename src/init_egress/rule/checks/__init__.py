"""The checks of the rule, one in a file each, as Kubernetes' pod-security-admission has them.

Whoever adds a verdict adds its check here, at the place of its asking.
"""

from __future__ import annotations

from init_egress.rule.checks import (
    already_excluded,
    already_exempt,
    beyond_remedy,
    native_sidecar,
    needs_remedy,
    no_init_containers,
    not_injected,
    not_redirected,
    opted_out,
    system_namespace,
)
from init_egress.rule.checks.check import Check

CHECKS: tuple[Check, ...] = (
    system_namespace.CHECK,
    opted_out.CHECK,
    not_injected.CHECK,
    no_init_containers.CHECK,
    native_sidecar.CHECK,
    not_redirected.CHECK,
    already_exempt.CHECK,
    already_excluded.CHECK,
    beyond_remedy.CHECK,
    needs_remedy.CHECK,
)
"""In the order of asking; the last one always holds."""
