"""The exporter: shows Prometheus the result of the charm's last reconcile."""
