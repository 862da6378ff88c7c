"""All that holds for the mesh and matters to init containers: what istiod and Sidecars say."""

from __future__ import annotations

from init_egress.kube.client import ApiClient
from init_egress.kube.cluster import Cluster
from init_egress.mesh import istiod, sidecars


def mesh_facts(cluster: Cluster, api: ApiClient, namespace: str, mesh_namespace: str) -> list[str]:
    """What holds for the mesh, a sentence each.

    Args:
        cluster: where, for single objects.
        api: the same, for lists.
        namespace: whose Pods are asked about; empty for all.
        mesh_namespace: where istiod's ConfigMaps are.

    Raises:
        ClusterError: the ConfigMaps can't be read.
    """
    mesh = istiod.read(mesh_namespace, cluster.config_maps(mesh_namespace))
    return mesh.facts() + sidecars.facts(api, namespace, mesh_namespace)
