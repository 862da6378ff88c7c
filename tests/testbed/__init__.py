"""A real Kubernetes control plane with Istio and Kyverno, out of Go modules, for tests and demos.

Nothing is installed and no container runtime is needed: the servers are built once from pinned
modules, run as ordinary processes inside a network namespace of their own, and are gone when the
process that started them is. `tests.testbed.fixtures` offers them to pytest,
`python -m tests.testbed` to people.
"""
