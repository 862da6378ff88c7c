"""The command line of `python -m init_egress.webhook`."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from init_egress.telemetry.plain_http import LIVE, METRICS, READY
from init_egress.webhook.application import PATH

_DEFAULT_GRACE_SECONDS = 12.0


@dataclass(frozen=True)
class Options:
    """The command line.

    Attributes:
        settings: the file of the settings.
        certificate: the folder of tls.crt and tls.key.
        address: the address to listen on.
        port: the port of reviews, with TLS.
        metrics_port: the port of metrics, without TLS.
        grace: seconds to go on answering after SIGTERM.
        logs: the file that names the Loki to forward log lines to, if there is one.
    """

    settings: Path
    certificate: Path
    address: str
    port: int
    metrics_port: int
    grace: float
    logs: Path | None


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line; an error in it ends the process with the usage."""
    parser = argparse.ArgumentParser(
        prog="python -m init_egress.webhook",
        description="Answers the API server's reviews of new Pods, over HTTPS.",
        epilog=f"Serves POST {PATH} and GET {LIVE}, {READY} with TLS; GET {METRICS}, {LIVE}, "
        f"{READY} without. SIGTERM ends it after the grace period, a second SIGTERM at once.",
    )
    wildcard = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104 - it is a server
    parser.add_argument(
        "--settings", type=Path, required=True, metavar="FILE", help="the charm's options, as YAML"
    )
    parser.add_argument(
        "--certificate", type=Path, required=True, metavar="DIR", help="holds tls.crt and tls.key"
    )
    parser.add_argument("--address", default=wildcard, help="listen here (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8443, help="with TLS (default: %(default)s)")
    parser.add_argument(
        "--metrics-port", type=int, default=8080, help="without TLS (default: %(default)s)"
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=_DEFAULT_GRACE_SECONDS,
        metavar="SECONDS",
        help="go on answering for this long after SIGTERM (default: %(default)g)",
    )
    parser.add_argument(
        "--logs",
        type=Path,
        metavar="FILE",
        help="names the Loki to forward log lines to, as JSON",
    )
    return Options(**vars(parser.parse_args(arguments)))
