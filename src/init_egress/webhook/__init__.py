"""The admission webhook: an HTTPS server that asks the rule about each new Pod."""
