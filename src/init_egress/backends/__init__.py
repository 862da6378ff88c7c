"""Backends: what carries the rule out on a cluster, and the order in which it gets there."""
