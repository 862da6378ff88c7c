"""Measurements: how fast the webhook answers, and what it costs."""
