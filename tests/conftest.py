"""What all tests share: the table of suites, and the testbed, which starts nothing unasked."""

import os

from hypothesis import settings

pytest_plugins = ["tests.testbed.fixtures", "tests.suites"]

# A submission is judged by the same examples each time; at home hypothesis looks for new ones.
settings.register_profile("ci", derandomize=True, database=None)
if os.environ.get("CI"):
    settings.load_profile("ci")
