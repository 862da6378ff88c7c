"""The files of a Pod: its volumes, and a root in which they lie where they are mounted.

There is no image. A Pod sees this machine's files: everything in its root is a link to the same
place below `/.machine`, where this machine's root is, save what is mounted. What stands for the
image, the interpreter above all, is therefore found below `/.machine` even if a volume hides it.
"""

import base64
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lightkube import Client
from lightkube.resources.core_v1 import ConfigMap, Secret

from tests.testbed.control_plane import Manifest

MACHINE = Path("/.machine")
# The mount is seen in the process's own namespace only. Every step is an exec, so the command has
# the process id of the whole.
_UNSHARE = ("unshare", "--mount", "--propagation", "private")
_ENTER = 'PATH="$PATH:/usr/sbin:/sbin"; mount --rbind / "$1/.machine" && exec chroot "$@"'
_DEFAULT_MODE = 0o644


class Volumes:
    """The volumes of a Pod, each of them a folder. What is no Secret or ConfigMap is empty."""

    def __init__(self, client: Client, pod: Manifest, folder: Path) -> None:
        self._client = client
        self._namespace = pod["metadata"]["namespace"]
        self._volumes: list[Manifest] = pod["spec"].get("volumes") or []
        self._folder = folder
        self._versions: dict[Path, str | None] = {}

    def mounts(self, container: Manifest) -> dict[str, Path]:
        """What lies at which path of a container."""
        return {
            mount["mountPath"]: Path(self._folder, mount["name"], mount.get("subPath") or "")
            for mount in container.get("volumeMounts") or []
        }

    def refresh(self) -> None:
        """Bring them up to date; if a source is missing, that is an ApiError."""
        for volume in self._volumes:
            folder = self._folder / volume["name"]
            folder.mkdir(parents=True, exist_ok=True)
            source = volume.get("secret") or volume.get("configMap")
            if source:
                version, contents = self._read(source)
                if self._versions.get(folder) != version:
                    _replace_files(folder, _chosen(source, contents))
                    self._versions[folder] = version

    def _read(self, source: Manifest) -> tuple[str | None, dict[str, bytes]]:
        """The version of a Secret or ConfigMap, and what it holds."""
        if "secretName" in source:
            found = self._client.get(Secret, source["secretName"], namespace=self._namespace)
            contents = _decoded(found.data)
        else:
            found = self._client.get(ConfigMap, source["name"], namespace=self._namespace)
            texts = {key: text.encode() for key, text in (found.data or {}).items()}
            contents = {**texts, **_decoded(found.binaryData)}
        return found.metadata and found.metadata.resourceVersion, contents


@contextmanager
def root_with(mounts: Mapping[str, Path]) -> Iterator[Path]:
    """A root that looks like this machine's, save what is mounted."""
    # It lies in no folder of the testbed's, and its removal begins with the mount point, which
    # must be empty: never are this machine's files removed through it.
    root = Path(tempfile.mkdtemp(prefix="istio-init-egress-root-"))
    try:
        _link_all(root, Path("/"))
        _below(root, MACHINE).mkdir()
        for path, volume in sorted(mounts.items()):
            for parent in reversed(Path(path).parents):
                _open(_below(root, parent))
            place = _below(root, Path(path))
            place.unlink(missing_ok=True)
            place.symlink_to(_on_machine(volume))
        yield root
    finally:
        _below(root, MACHINE).rmdir()
        shutil.rmtree(root)


def command_in(root: Path, command: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The command line that runs a command in such a root, with these variables alone."""
    settings = [f"{name}={value}" for name, value in variables.items()]
    return [*_UNSHARE, "sh", "-c", _ENTER, "enter", str(root), "env", "-i", *settings, *command]


def _below(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _on_machine(path: Path) -> Path:
    return _below(MACHINE, path)


def _link_all(folder: Path, original: Path) -> None:
    for child in original.iterdir() if original.is_dir() else ():
        (folder / child.name).symlink_to(_on_machine(child))


def _open(place: Path) -> None:
    """Put a folder of links where there is a link to a folder, or nothing."""
    if place.is_symlink():
        original = Path("/") / place.readlink().relative_to(MACHINE)
        place.unlink()
        place.mkdir()
        _link_all(place, original)
    place.mkdir(exist_ok=True)


def _decoded(data: Mapping[str, str] | None) -> dict[str, bytes]:
    return {key: base64.b64decode(text) for key, text in (data or {}).items()}


def _chosen(source: Manifest, contents: Mapping[str, bytes]) -> dict[str, tuple[bytes, int]]:
    """The files that a volume has of its source: their contents and modes."""
    mode = source.get("defaultMode", _DEFAULT_MODE)
    items: list[Manifest] = source.get("items") or [{"key": k, "path": k} for k in contents]
    return {item["path"]: (contents[item["key"]], item.get("mode", mode)) for item in items}


def _replace_files(folder: Path, files: Mapping[str, tuple[bytes, int]]) -> None:
    """Have these files in a folder, all at once: like the kubelet, by turning one link."""
    data, turned = folder / "..data", folder / "..data_tmp"
    former = data.resolve() if data.exists() else None
    latest = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    for path, (content, mode) in files.items():
        file = latest / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(mode)
        link = folder / Path(path).parts[0]
        if not link.is_symlink():
            link.symlink_to(Path("..data", link.name))
    turned.symlink_to(latest.name)
    os.replace(turned, data)
    for link in folder.iterdir():
        if not link.exists():
            link.unlink()
    if former:
        shutil.rmtree(former)
