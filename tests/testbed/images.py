"""Container images made of what is on this machine, for a node that can pull none.

An image is a list of layers, and each layer a tar. The lowest is this machine's Python with the
libraries it needs and nothing else: no shell, no packages. What an image runs is a Python text.
"""

import hashlib
import io
import json
import platform
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
DAEMON = "_daemon_"
# The only user that a rock may name:
# https://documentation.ubuntu.com/rockcraft/en/stable/reference/rockcraft.yaml/#run-user
DAEMON_ID = 584792
_PASSWD = f"""root:x:0:0:root:/root:/sbin/nologin
{DAEMON}:x:{DAEMON_ID}:{DAEMON_ID}::/nonexistent:/sbin/nologin
"""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# Of the standard library: what needs a display, and what nobody runs in a container.
_LEFT_OUT = frozenset(
    {
        "test",
        "idlelib",
        "tkinter",
        "turtledemo",
        "lib2to3",
        "ensurepip",
        "site-packages",
        "dist-packages",
    }
)


@dataclass(frozen=True)
class Image:
    """What an image is called, holds and runs.

    Attributes:
        reference: its name, such as `example.com/app:1`.
        layers: tars, the lowest first.
        entry_point: ENTRYPOINT.
        arguments: CMD.
        user: USER; empty for root.
        environment: further variables.
    """

    reference: str
    layers: Sequence[Path]
    entry_point: Sequence[str]
    arguments: Sequence[str] = ()
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def script(reference: str, base: Path, text: str, *arguments: str) -> Image:
    """An image that runs a Python text with arguments, to which a container's own are added."""
    return Image(reference, [base], ["python3", "-c", text, *arguments])


def write_archive(image: Image, path: Path) -> None:
    """Write an image as `docker save` does, which every container runtime can load."""
    digests = [hashlib.sha256(layer.read_bytes()).hexdigest() for layer in image.layers]
    variables = {"PATH": "/usr/local/bin:/usr/bin", **image.environment}
    settings = {
        "architecture": _ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {
            "Env": [f"{name}={value}" for name, value in variables.items()],
            "Entrypoint": list(image.entry_point),
            "Cmd": list(image.arguments),
            "User": image.user,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
    }
    config = json.dumps(settings).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    names = [f"{digest}.tar" for digest in digests]
    manifest = [{"Config": config_name, "RepoTags": [image.reference], "Layers": names}]
    with tarfile.open(path, "w") as archive:
        for name, layer in zip(names, image.layers, strict=True):
            archive.add(layer, name)
        _add_text(archive, config_name, config)
        _add_text(archive, "manifest.json", json.dumps(manifest).encode())


def write_python_layer(path: Path) -> Path:
    """Write a layer with this machine's Python under /usr, and the users that images name."""
    binary = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    modules = sorted(Path(library, "lib-dynload").glob("*.so"))
    with tarfile.open(path, "w") as layer:
        for link in ("bin", "lib", "lib64", "sbin"):  # /lib -> usr/lib, where that is so
            if Path("/", link).is_symlink():
                layer.add(Path("/", link), link)
        layer.add(binary, f"usr/bin/{VERSION}", filter=_of_root)
        _add_link(layer, "usr/bin/python3", VERSION)
        layer.add(library, f"usr/lib/{VERSION}", filter=_needed)
        wanted = [module for module in modules if not module.name.startswith("_tkinter")]
        for place in sorted(_shared_libraries([binary, *wanted])):
            layer.add(place.resolve(), str(place.relative_to("/")), filter=_of_root)
        _add_text(layer, "etc/passwd", _PASSWD.encode())
        _add_folder(layer, "tmp", 0o1777)
    return path


def write_packages_layer(path: Path, packages: Path) -> Path:
    """Write a layer with a virtual environment at /usr/local that has the packages of a folder."""
    modules = sorted(packages.rglob("*.so"))
    with tarfile.open(path, "w") as layer:
        _add_text(layer, "usr/local/pyvenv.cfg", b"home = /usr/bin\n")
        _add_link(layer, "usr/local/bin/python3", "/usr/bin/python3")
        layer.add(packages, f"usr/local/lib/{VERSION}/site-packages", filter=_of_root)
        for place in sorted(_shared_libraries(modules)):
            if not place.is_relative_to(packages.resolve()):  # those that a wheel brings along
                layer.add(place.resolve(), str(place.relative_to("/")), filter=_of_root)
    return path


def _shared_libraries(binaries: Sequence[Path]) -> set[Path]:
    """What the dynamic linker loads for these, where it finds it, through no linked folder."""
    listed = subprocess.run(["ldd", *binaries], check=True, capture_output=True, text=True)
    return set(_libraries(listed.stdout))


def _libraries(listing: str) -> Iterator[Path]:
    """Read what ldd prints: `name => /path (address)`, or `/path (address)` for the linker."""
    for line in listing.splitlines():
        words = line.split()
        if words and words[-1].startswith("(0x"):
            path = Path(words[-2])
            if path.is_absolute():
                yield path.parent.resolve() / path.name


def _needed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = PurePosixPath(entry.name).name
    if name in _LEFT_OUT or name.startswith(("config-", "_tkinter")):
        return None
    return _of_root(entry)


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Everybody may read it, and it belongs to root."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode |= 0o555 if entry.isdir() else 0o444
    return entry


def _add_text(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _add_link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)


def _add_folder(archive: tarfile.TarFile, name: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    archive.addfile(entry)
