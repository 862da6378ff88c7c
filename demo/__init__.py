"""The charm's main job, shown on a real API server with a real Istio."""
