"""Builds the servers from the Go modules that pin them, once.

What is built lies outside the repository, in a folder whose name says what it was built from, so a
second run finds it there. An interrupted build keeps every binary that was complete, and Go's own
cache keeps the rest.
"""

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

_MODULES = Path(__file__).parent / "modules"
_KUBERNETES_VERSION = "k8s.io/component-base/version"


class BuildError(RuntimeError):
    """A server can't be built here; the message says what to do."""


@dataclass(frozen=True)
class Module:
    """A Go module of ours, and what is made from the modules it requires.

    Two may share a go.mod, the one that `home` names: what only one of them makes is then built
    only for those who need it, out of the same pinned sources.
    """

    name: str
    binaries: Mapping[str, str]  # name: package
    files: Mapping[str, str] = field(default_factory=dict)  # name: path in the required module
    requires: str = ""  # the module that holds the files
    ldflags: str = "-s -w"
    tags: str = ""
    folder: Path = _MODULES
    home: str = ""

    @property
    def path(self) -> Path:
        """The folder of its go.mod."""
        return self.folder / (self.home or self.name)

    @property
    def products(self) -> tuple[str, ...]:
        """The names of all that is made from it."""
        return (*self.binaries, *self.files)


ETCD = Module("etcd", {"etcd": "go.etcd.io/etcd/server/v3"})
KUBERNETES = Module(
    "kubernetes",
    {
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    },
    # Without these the server reports no version; the module's own version is not looked at.
    ldflags=f"-s -w -X {_KUBERNETES_VERSION}.gitVersion=v1.36.4"
    f" -X {_KUBERNETES_VERSION}.gitMajor=1 -X {_KUBERNETES_VERSION}.gitMinor=36",
)
NODE = Module(
    "node",
    {
        "kubelet": "k8s.io/kubernetes/cmd/kubelet",
        "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    },
    ldflags=KUBERNETES.ldflags,
    home=KUBERNETES.name,
)
ISTIO = Module(
    "istio",
    {
        "istio-cni": "istio.io/istio/cni/cmd/istio-cni",
        "istioctl": "istio.io/istio/istioctl/cmd/istioctl",
        "pilot-discovery": "istio.io/istio/pilot/cmd/pilot-discovery",
    },
)
KYVERNO = Module(
    "kyverno",
    {
        "kyverno": "github.com/kyverno/kyverno/cmd/kyverno",
        "background-controller": "github.com/kyverno/kyverno/cmd/background-controller",
    },
    files={"kyverno.yaml": "config/install-latest-testing.yaml"},
    requires="github.com/kyverno/kyverno",
)
PROMTOOL = Module(
    "prometheus",
    {"promtool": "github.com/prometheus/prometheus/cmd/promtool"},
    tags="remove_all_sd",  # the discovery of every cloud is most of Prometheus
)
KWOK = Module("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"})
MODULES = (ETCD, KUBERNETES, NODE, ISTIO, KYVERNO, KWOK, PROMTOOL)


def product(module: Module, name: str) -> Path:
    """The path of one thing that is made from a module; the module is built if it has to be."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")  # the convention of controller-runtime's envtest
    if assets and (given := Path(assets, name)).exists():
        return given
    return build(module) / name


def prepare(module: Module) -> None:
    """Make what is made from a module, save what is supplied from elsewhere."""
    for name in module.products:
        product(module, name)


def build(module: Module) -> Path:
    """Make what is not made yet, and return the folder that holds all of it."""
    if not shutil.which("go"):
        raise BuildError(
            f"The testbed builds {', '.join(module.products)} from source and needs Go for it: "
            "install Go (Ubuntu: `snap install go --classic`; others: https://go.dev/doc/install)"
        )
    folder = cache() / f"{module.name}-{_fingerprint(module)}"
    folder.mkdir(parents=True, exist_ok=True)
    if _missing(module, folder):
        with _alone(folder), _Progress(module.name) as progress:
            for name in _missing(module, folder):
                _make(module, name, folder, progress)
    return folder


def cache() -> Path:
    """The folder that holds what is built, for every checkout on this machine."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    ours = os.environ.get("ISTIO_INIT_EGRESS_CACHE") or Path(caches, "istio-init-egress")
    return Path(ours, "testbed")


def _missing(module: Module, folder: Path) -> list[str]:
    return [name for name in module.products if not (folder / name).exists()]


def _fingerprint(module: Module) -> str:
    digest = hashlib.sha256(_go(module, "env", "GOVERSION", "GOOS", "GOARCH").encode())
    for name in ("go.mod", "go.sum", "tools.go"):
        path = module.path / name
        digest.update(path.read_bytes() if path.exists() else b"")
    recipe = [_build_command(module), dict(module.binaries), dict(module.files)]
    digest.update(json.dumps(recipe, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def _build_command(module: Module) -> list[str]:
    tags = [f"-tags={module.tags}"] if module.tags else []
    ldflags = f"-ldflags={module.ldflags}"
    return ["go", "build", "-v", "-trimpath", "-buildvcs=false", ldflags, *tags]


def _make(module: Module, name: str, folder: Path, progress: "_Progress") -> None:
    """Make one product under another name, which it loses when it is complete."""
    partial = folder / f".{name}.partial"
    if name in module.files:
        source = _go(module, "list", "-m", "-f", "{{.Dir}}", module.requires).strip()
        shutil.copyfile(Path(source, module.files[name]), partial)
    else:
        command = [*_build_command(module), "-o", str(partial), module.binaries[name]]
        _run(command, module.path, progress)
    partial.chmod(partial.stat().st_mode | 0o200)
    partial.replace(folder / name)


def _go(module: Module, *arguments: str) -> str:
    done = subprocess.run(
        ["go", *arguments], cwd=module.path, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildError(f"go {' '.join(arguments)} in {module.path}:\n{done.stderr}")
    return done.stdout


def _run(command: list[str], folder: Path, progress: "_Progress") -> None:
    """Run go, telling of every line that it writes, and end it when we are interrupted."""
    go = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert go.stderr
    try:
        lines = [progress.tell(line.strip()) for line in go.stderr]
    except BaseException:
        _interrupt(go)
        raise
    if go.wait():
        raise BuildError(f"{' '.join(command)} in {folder}:\n" + "\n".join(lines[-20:]))


def _interrupt(go: subprocess.Popen[str]) -> None:
    """End go with all that it runs; at an interrupt it removes its temporary files."""
    os.killpg(go.pid, signal.SIGINT)
    try:
        go.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(go.pid, signal.SIGKILL)
        go.wait()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let nobody else build into the folder meanwhile; the lock goes with the process."""
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"testbed: waiting for another build of {folder.name}", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _Progress:
    """Says what the build does: in one line on a terminal, elsewhere in a line now and then."""

    def __init__(self, name: str, stream: IO[str] | None = None) -> None:
        self._name = name
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._began = time.monotonic()
        self._downloads = self._packages = 0
        self._done = threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)

    def tell(self, line: str) -> str:
        """Take in a line of `go build -v`: a download, or the name of a package."""
        if line.startswith("go: downloading"):
            self._downloads += 1
        elif not line.startswith(("go:", "#")):
            self._packages += 1
        return line

    def __enter__(self) -> "_Progress":
        self._clock.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._done.set()
        self._clock.join()
        self._write("built" if kind is None else "stopped", "\n")

    def _tick(self) -> None:
        while not self._done.wait(1 if self._terminal else 15):
            self._write("building", "" if self._terminal else "\n")

    def _write(self, state: str, end: str) -> None:
        seconds = time.monotonic() - self._began
        counts = f"{self._downloads} modules downloaded, {self._packages} packages compiled"
        start = "\r\033[K" if self._terminal else ""
        text = f"{start}testbed: {state} {self._name}, {seconds:.0f} s: {counts}{end}"
        self._stream.write(text)
        self._stream.flush()
