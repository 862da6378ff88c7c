"""Metrics, alerts, dashboards, logs and traces: the relations and the scrape targets."""
