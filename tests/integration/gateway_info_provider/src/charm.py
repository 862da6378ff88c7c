#!/usr/bin/env python3
"""Writes the databag of istio-pilot's gateway-info: flat strings, by the leader."""

from __future__ import annotations

import ops

ENDPOINT = "gateway-info"
GATEWAY = "istio-gateway"  # the default of istio-pilot's option default-gateway


class GatewayInfoProvider(ops.CharmBase):
    """Does the same whatever happened: it writes to every relation what holds now."""

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        events = self.on[ENDPOINT]
        for event in (
            self.on.start,
            self.on.leader_elected,
            self.on.config_changed,
            self.on.upgrade_charm,
            events.relation_created,
            events.relation_changed,
        ):
            framework.observe(event, self._publish)

    def _publish(self, _: ops.EventBase) -> None:
        self.unit.status = ops.ActiveStatus()
        if not self.unit.is_leader():
            return
        for relation in self.model.relations[ENDPOINT]:
            relation.data[self.app].update(
                {
                    "gateway_name": GATEWAY,
                    "gateway_namespace": str(self.config["namespace"]) or self.model.name,
                    "gateway_up": "true",
                }
            )


if __name__ == "__main__":
    ops.main(GatewayInfoProvider)
