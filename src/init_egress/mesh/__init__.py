"""The mesh: what istiod and Sidecar objects say."""
