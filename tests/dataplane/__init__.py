"""Where the packets of a Pod go: the charm's promise, proved with Istio's own CNI plugin.

A Pod is created on the testbed's API server, where the real istiod injects it and the charm's
policy remedies it. A network namespace stands for its sandbox. Debian's `bridge` plugin gives it
an interface, and `istio-cni`, chained behind it, reads the stored Pod and programs the
redirection, as on a node. Then packets are sent:

    Pod's namespace ── bridge ── the testbed's namespace ── veth ── `outside`
    client.py, as the users of the Pod's containers                server.py: "outside"
    server.py: "sidecar", where Envoy listens

While init containers run no sidecar does, so whatever is redirected is refused. The namespaces
have no names: they are gone when the processes that hold them are.
"""
