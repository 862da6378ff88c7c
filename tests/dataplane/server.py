"""Answers all that comes in with a word: `server.py UID GID WORD PROTOCOL@ADDRESS@PORT…`.

It runs as that user, says `ready` once it listens everywhere, and needs nothing of this project on
its path.
"""

import os
import selectors
import socket
import sys


def listen(endpoint: str) -> socket.socket:
    """A socket at `tcp@192.0.2.1@80` or `udp@::@53`; one of IPv6 is for IPv6 only."""
    protocol, address, port = endpoint.split("@")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
    server = socket.socket(family, kind)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    server.bind((address, int(port)))
    if protocol == "tcp":
        server.listen(64)
    return server


def answer(server: socket.socket, word: bytes) -> None:
    """Answer what has come in at one socket."""
    if server.type == socket.SOCK_DGRAM:
        _, sender = server.recvfrom(64)
        server.sendto(word, sender)
        return
    connection, _ = server.accept()
    with connection:
        connection.sendall(word)


def main() -> None:
    """Become the user, listen, and answer until the process is ended."""
    uid, gid, word, *endpoints = sys.argv[1:]
    os.setgroups([])
    os.setresgid(int(gid), int(gid), int(gid))
    os.setresuid(int(uid), int(uid), int(uid))
    with selectors.DefaultSelector() as selector:
        for endpoint in endpoints:
            selector.register(listen(endpoint), selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in selector.select():
                if isinstance(key.fileobj, socket.socket):
                    answer(key.fileobj, word.encode())


if __name__ == "__main__":
    main()
