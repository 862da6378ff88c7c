"""Asks addresses who answers there, as another user: `client.py UID GID <targets`.

It reads a list of [protocol, address, port] as JSON, and writes what came back from each, in the
same order: the word that was answered, or why there was none. It needs nothing of this project on
its path, and drops root by itself: who owns a socket is who made it, and Python may lie where only
root can read.
"""

import json
import os
import socket
import sys
import threading
from time import monotonic

_PATIENCE = 15.0  # seconds for a connection; one that is cut off is refused at once


def ask(protocol: str, address: str, port: int, patience: float) -> str:
    """The word that is answered within some seconds, or `refused`, `silent`, `unreachable: …`."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
    with socket.socket(family, kind) as connection:
        connection.settimeout(patience)
        try:
            connection.connect((address, port))
            if protocol == "udp":
                connection.send(b"who is there?")
            return connection.recv(64).decode() or "closed"
        except ConnectionRefusedError:
            return "refused"
        except TimeoutError:
            return "silent"
        except OSError as error:
            return f"unreachable: {error.strerror}"


def ask_all(targets: list[tuple[str, str, int]]) -> list[str]:
    """Ask all for a connection at once, then send all the datagrams at once.

    A datagram that nobody answers says nothing, so it is waited for long enough: many times as
    long as this machine took for its slowest connection.
    """
    answers = [""] * len(targets)

    def note(index: int, patience: float) -> None:
        answers[index] = ask(*targets[index], patience)

    began = monotonic()
    patience = _PATIENCE
    for protocol in ("tcp", "udp"):
        threads = [
            threading.Thread(target=note, args=(index, patience))
            for index, target in enumerate(targets)
            if target[0] == protocol
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        patience = 1 + 20 * (monotonic() - began)
    return answers


def main() -> None:
    """Become the user, and ask."""
    uid, gid = map(int, sys.argv[1:])
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    json.dump(ask_all(json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
