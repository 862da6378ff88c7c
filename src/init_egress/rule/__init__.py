"""The rule: which Pods need a remedy, why, and what the remedy changes."""
