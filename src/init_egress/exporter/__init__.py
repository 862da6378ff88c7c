"""The exporter: shows Prometheus what the charm saw at its last reconcile."""
