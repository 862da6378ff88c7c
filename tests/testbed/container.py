"""A Pod's container as a process: what it runs, whether it is ready, and how it ends."""

import contextlib
import os
import re
import signal
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from time import monotonic

from tests.testbed.control_plane import Manifest
from tests.testbed.pod_files import MACHINE, command_in
from tests.testbed.process import Process

CONTAINER = "container"  # the name of its log
_SOURCES = Path(__file__).parents[2] / "src"
_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")
_LONGEST_BACK_OFF = 5.0
_LEAST_GRACE = 2.0  # for a process whose preStop hook took all of it, as the kubelet has it
_UNVERIFIED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # probes look at no certificate
_UNVERIFIED.check_hostname, _UNVERIFIED.verify_mode = False, ssl.CERT_NONE


class Container:
    """The only container of a Pod. Its methods are for one thread, save `kill`."""

    def __init__(
        self, pod: Manifest, entry_point: Sequence[str], address: str, folder: Path, root: Path
    ) -> None:
        self.phase = "Pending"
        self.ready = False
        self._spec: Manifest = pod["spec"]["containers"][0]
        self._variables = _environment(pod, self._spec, address)
        self._command = _command(self._spec, entry_point, self._variables)
        self._address, self._folder, self._root = address, folder, root
        self._process: Process | None = None
        self._reaping = threading.Lock()  # till it is reaped, nobody else has its process id
        self._start_at = monotonic()
        self._started = False
        self._restarts = 0
        self._state: Manifest = {"waiting": {"reason": "ContainerCreating"}}
        self._last_state: Manifest = {}

    def attend(self) -> None:
        """Start it if it doesn't run, and probe it if it does."""
        if self._process and self._ended():
            self._note_end(self._process)
            self._reap()
        elif self._process:
            self._probe()
        elif monotonic() >= self._start_at:
            self._start()

    def stop(self, grace: float, meanwhile: Callable[[], bool]) -> None:
        """End it as the kubelet does; until that is done, or `meanwhile` says no, call that."""
        end = monotonic() + grace
        with self._pre_stop() as over:
            self._wait(over, end, meanwhile)
        if self._process:
            os.kill(self._process.pid, signal.SIGTERM)  # the runtime tells the first process only
        self._wait(self._ended, max(end, monotonic() + _LEAST_GRACE), meanwhile)
        self.close()

    def kill(self) -> None:
        """Kill all its processes."""
        with self._reaping:
            if self._process:
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Leave nothing of it."""
        self.kill()
        self._reap()

    def status(self) -> Manifest:
        """What a Pod's status says of it."""
        status = {"name": self._spec["name"], "image": self._spec["image"], "imageID": ""}
        flags = {"ready": self.ready, "started": self._started, "restartCount": self._restarts}
        return {**status, **flags, "state": self._state, "lastState": self._last_state}

    def _start(self) -> None:
        words = command_in(self._root, self._command, self._variables)
        self._process = Process(CONTAINER, words, self._folder)
        self._start_at = monotonic()
        self.phase = "Running"
        self._state = {"running": {"startedAt": now()}}
        self._startup, self._readiness = (
            _Probe(self._spec.get(kind), self._spec, self._address)
            for kind in ("startupProbe", "readinessProbe")
        )

    def _probe(self) -> None:
        if not self._started:
            self._started = self._startup.passes()
            if not self._started and monotonic() > self._start_at + self._startup.patience:
                self.kill()
        self._probe_readiness()

    def _probe_readiness(self) -> None:
        self.ready = self._started and not self._ended() and self._readiness.passes()

    def _ended(self) -> bool:
        return self._process is None or _end_of(self._process) is not None

    def _note_end(self, process: Process) -> None:
        end = _end_of(process)
        assert end
        code = end.si_status if end.si_code == os.CLD_EXITED else 128 + end.si_status
        self._last_state = {"terminated": {"exitCode": code, "finishedAt": now()}}
        self._state = {"waiting": {"reason": "CrashLoopBackOff"}}
        self.ready = self._started = False
        self._restarts += 1
        back_off = 0 if self._restarts == 1 else 0.25 * 2**self._restarts
        self._start_at = monotonic() + min(back_off, _LONGEST_BACK_OFF)

    def _reap(self) -> None:
        """Forget its process, which has ended, and end those that it has left."""
        with self._reaping:
            if self._process:
                _kill(self._process)
            self._process = None

    @contextmanager
    def _pre_stop(self) -> Iterator[Callable[[], bool]]:
        """Begin the preStop hook; it tells whether that is over."""
        hook = (self._spec.get("lifecycle") or {}).get("preStop") or {}
        if self._process is None:
            yield lambda: True
        elif "exec" in hook:
            words = command_in(self._root, hook["exec"]["command"], self._variables)
            process = Process("pre-stop", words, self._folder)
            try:
                yield lambda: _end_of(process) is not None
            finally:
                _kill(process)
        else:
            end = monotonic() + (hook.get("sleep") or {}).get("seconds", 0)
            yield lambda: monotonic() >= end

    def _wait(self, over: Callable[[], bool], end: float, meanwhile: Callable[[], bool]) -> None:
        while not over() and monotonic() < end:
            self._probe_readiness()  # a Service may still serve from Pods that end
            if not meanwhile():
                return


class _Probe:
    """An httpGet probe, which asks more often than it says; a probe that isn't given passes."""

    def __init__(self, probe: Manifest | None, container: Manifest, address: str) -> None:
        self._probe = probe or {}
        self._passing = not probe
        self._streak = 0
        self._get: Manifest = self._probe["httpGet"] if probe else {}
        self._host = self._get.get("host") or address
        self._port = _port(container, self._get.get("port"))
        # Startup takes its time, however often we ask.
        self.patience = self._of("failureThreshold", 3) * self._of("periodSeconds", 10)

    def passes(self) -> bool:
        """Ask once; the result changes with as many answers in a row as its thresholds say."""
        if self._probe and self._answers() != self._passing:
            self._streak += 1
            threshold = ("failureThreshold", 3) if self._passing else ("successThreshold", 1)
            if self._streak >= self._of(*threshold):
                self._passing, self._streak = not self._passing, 0
        else:
            self._streak = 0
        return self._passing

    def _of(self, key: str, default: int) -> int:
        return self._probe.get(key) or default

    def _answers(self) -> bool:
        timeout = self._of("timeoutSeconds", 1)
        if self._get.get("scheme") == "HTTPS":
            connection = HTTPSConnection(
                self._host, self._port, timeout=timeout, context=_UNVERIFIED
            )
        else:
            connection = HTTPConnection(self._host, self._port, timeout=timeout)
        with contextlib.closing(connection):
            try:
                connection.request("GET", self._get.get("path") or "/")
                return 200 <= connection.getresponse().status < 400
            except (OSError, HTTPException):
                return False


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` as Kubernetes does: `$$` is a dollar sign, an unknown name stays."""
    return _REFERENCE.sub(
        lambda found: "$" if found[1] is None else variables.get(found[1], found[0]), text
    )


def now() -> str:
    """The time as Kubernetes writes it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _environment(pod: Manifest, container: Manifest, address: str) -> dict[str, str]:
    """The variables of what stands for the image, and those of the container."""
    variables = {
        "PATH": f"{MACHINE}{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": f"{MACHINE}{_SOURCES}",
        "HOSTNAME": pod["metadata"]["name"],
        "HOME": "/",
    }
    fields = {f"metadata.{key}": value for key, value in pod["metadata"].items()}
    fields["status.podIP"] = address
    for item in container.get("env") or []:
        if "valueFrom" in item:  # fields only: anything else is a KeyError
            variables[item["name"]] = fields[item["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            variables[item["name"]] = expand(item.get("value") or "", variables)
    return variables


def _command(
    container: Manifest, entry_point: Sequence[str], variables: Mapping[str, str]
) -> list[str]:
    """Its own command or the image's entry point, and its arguments."""
    image = [f"{MACHINE}{word}" if word.startswith("/") else word for word in entry_point]
    own = [expand(word, variables) for word in container.get("command") or []]
    return [*(own or image), *(expand(word, variables) for word in container.get("args") or [])]


def _port(container: Manifest, port: str | int | None) -> int | None:
    named = {item.get("name"): item["containerPort"] for item in container.get("ports") or []}
    return port if port is None or isinstance(port, int) else named[port]


def _end_of(process: Process) -> os.waitid_result | None:
    """How a process has ended, if it has; it can be asked again until the process is reaped."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def _kill(process: Process) -> None:
    """End a process with its whole group, and reap it."""
    os.killpg(process.pid, signal.SIGKILL)
    process.stop()
