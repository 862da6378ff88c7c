"""What all tests share: the fixtures of the testbed, which start nothing until they are asked."""

import os

from hypothesis import settings

pytest_plugins = ["tests.testbed.fixtures"]

# A submission is judged by the same examples each time; at home hypothesis looks for new ones.
settings.register_profile("ci", derandomize=True, database=None)
if os.environ.get("CI"):
    settings.load_profile("ci")
