"""The testbed on the command line: `python -m tests.testbed --help`."""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from tests.testbed import build, istio, kwok, kyverno
from tests.testbed.control_plane import ControlPlane, control_plane, controller_manager
from tests.testbed.network import enter_private_network

_COMPONENTS: dict[str, tuple[build.Module, Callable[[ControlPlane], AbstractContextManager]]] = {
    "istio": (build.ISTIO, istio.istiod),
    "kyverno": (build.KYVERNO, kyverno.kyverno),
    "kwok": (build.KWOK, kwok.kwok),
}
_INTERRUPTED = 128 + signal.SIGINT
_ENDINGS = (signal.SIGINT, signal.SIGTERM)


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says; returns the exit code."""
    own, command = _split(arguments)
    options = _parser().parse_args(own)
    for ending in _ENDINGS:  # also where our parent ignores the former
        signal.signal(ending, signal.default_int_handler)
    try:
        if options.verb == "build":
            for module in build.MODULES:
                build.prepare(module)
            return 0
        return _up(options.components, command or [os.environ.get("SHELL", "/bin/sh")])
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (build.BuildError, OSError, RuntimeError) as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1


def _up(components: Sequence[str], command: Sequence[str]) -> int:
    """Run a command beside a cluster that lives as long as it does."""
    modules = [build.ETCD, build.KUBERNETES, *(_COMPONENTS[name][0] for name in components)]
    for module in modules:
        build.prepare(module)
    network = enter_private_network()
    with ExitStack() as stack:
        plane = stack.enter_context(control_plane(network))
        stack.enter_context(controller_manager(plane))
        for name in components:
            _say(f"starting {name}")
            stack.enter_context(_COMPONENTS[name][1](plane))
        # Once it goes down, it goes down in order: a second Ctrl-C must not cut that short.
        stack.callback(signal.signal, signal.SIGINT, signal.SIG_IGN)
        _say(f"up at {plane.url}, files in {plane.folder}; all of it goes when the command ends")
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        environment = {**os.environ, **plane.environment, "PATH": path}
        return _run(command, environment)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command that never outlives us, whenever a signal comes; returns its exit code.

    `subprocess.run` loses a child for which it was told to end before it knew it.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)
    child = subprocess.Popen(command, env=environment, preexec_fn=_hear_endings)
    try:
        _hear_endings()
        return child.wait()
    finally:
        child.kill()
        child.wait()


def _hear_endings() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDINGS)


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """What stands before `--`, and what stands after it."""
    if "--" not in arguments:
        return arguments, ()
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.testbed",
        description="A real Kubernetes control plane, with Istio and Kyverno, out of Go modules.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("build", help="build all servers, and say how it goes")
    up = verbs.add_parser(
        "up",
        help="start a cluster, and open a shell beside it or run the command after --",
        usage="%(prog)s [-h] [--with COMPONENT]... [-- COMMAND...]",
    )
    up.add_argument(
        "--with",
        dest="components",
        action="append",
        default=[],
        choices=sorted(_COMPONENTS),
        help="a component to start too; may be repeated",
    )
    return parser


def _say(text: str) -> None:
    print(f"testbed: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
