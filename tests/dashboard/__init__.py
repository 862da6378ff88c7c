"""The dashboard, drawn from real metrics of the testbed: `python -m tests.dashboard`."""
