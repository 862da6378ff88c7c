"""What all tests share: the fixtures of the testbed, which start nothing until they are asked."""

pytest_plugins = ["tests.testbed.fixtures"]
