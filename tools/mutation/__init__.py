"""How well the unit tests watch the rule and the reconciler: `make mutants`."""
