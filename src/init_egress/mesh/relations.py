"""The relations that tell the mesh namespace, as their databags have it."""

from __future__ import annotations

import logging

import ops
from charmlibs.interfaces.istio_metadata import IstioMetadataRequirer

from init_egress.mesh.istiod import Related

logger = logging.getLogger(__name__)

GATEWAY_INFO = "gateway-info"
ISTIO_METADATA = "istio-metadata"
ENDPOINTS = (GATEWAY_INFO, ISTIO_METADATA)


def related(model: ops.Model) -> list[Related]:
    """What each relation that there is says of the mesh namespace.

    Args:
        model: the charm's model.
    """
    ends: list[Related] = []
    if relation := model.get_relation(GATEWAY_INFO):
        namespace = relation.data[relation.app].get("gateway_namespace", "")
        ends.append(Related(GATEWAY_INFO, relation.app.name, "gateway_namespace", namespace))
    if relation := model.get_relation(ISTIO_METADATA):
        namespace = _root_namespace(model)
        ends.append(Related(ISTIO_METADATA, relation.app.name, "root_namespace", namespace))
    return ends


def _root_namespace(model: ops.Model) -> str:
    try:
        data = IstioMetadataRequirer(model.relations, ISTIO_METADATA).get_data()
    except ValueError as error:
        logger.warning("%s", error)
        return ""
    return data.root_namespace if data else ""
