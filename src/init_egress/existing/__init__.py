"""Existing Pods: audit them, explain one, recreate those that are stuck."""
