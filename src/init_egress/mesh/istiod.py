"""What is known of the mesh: its namespace, from relations, and what istiod is configured to do.

The mesh namespace is where istiod's ConfigMaps are; it is not where the Pods of the mesh live.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import yaml

from init_egress.mesh.injection import Injection
from init_egress.rule import istio
from init_egress.rule.names import is_dns_label

INJECTOR = "istio-sidecar-injector"
MESH_CONFIG = "istio"


@dataclass(frozen=True)
class Related:
    """One end of a relation that tells the mesh namespace.

    Attributes:
        endpoint: our endpoint.
        remote: the application at the other end.
        key: the key in its databag that holds the namespace.
        namespace: the key's value; empty while the other end has not written it.
    """

    endpoint: str
    remote: str
    key: str
    namespace: str


class MeshUnknown(Exception):
    """The mesh namespace can't be told, and the operator can help."""


class MeshPending(Exception):
    """The mesh namespace isn't known yet; the other end of the relation has still to write it."""


def namespace(configured: str, related: Iterable[Related], application: str) -> str:
    """Tell the mesh namespace.

    Args:
        configured: the option mesh-namespace, validated; it overrides a relation.
        related: the relations that there are.
        application: our application's name, for the commands in messages.

    Raises:
        MeshUnknown: neither configured nor related, related to two meshes, or a wrong value.
        MeshPending: related, but nothing written yet.
    """
    ends = tuple(related)
    if len(ends) > 1:
        names = " and ".join(end.endpoint for end in ends)
        raise MeshUnknown(
            f"{names} are both related, but a mesh is either sidecar or ambient;"
            f" remove one: juju remove-relation {application} {ends[-1].remote}"
        )
    if configured:
        return configured
    if not ends:
        raise MeshUnknown(
            "mesh unknown; run: juju integrate"
            f" {application}:gateway-info istio-pilot:gateway-info"
            f" (or: juju config {application} mesh-namespace=<istiod's namespace>)"
        )
    end = ends[0]
    if not end.namespace:
        raise MeshPending(f"waiting for {end.remote} to write {end.key} on {end.endpoint}")
    if not is_dns_label(end.namespace):
        raise MeshUnknown(
            f"{end.remote} wrote {end.key}={end.namespace!r} on {end.endpoint}, which is no"
            f" namespace; run: juju config {application} mesh-namespace=<istiod's namespace>"
        )
    return end.namespace


@dataclass(frozen=True)
class Revision:
    """What one istiod is configured to do, read from its ConfigMaps.

    Attributes:
        name: the revision; empty for the default one.
        cni: whether it leaves redirection to the CNI plugin.
        native_sidecars: ENABLE_NATIVE_SIDECARS as set in its values; empty if left to Istio.
        excluded: mesh-wide excludeIPRanges and excludeOutboundPorts, as they are written.
        injected: the annotations that it writes on every Pod, over the Pod's own.
        dns_capture: whether proxies capture DNS.
        injects_by_default: whether it injects namespaces that have no label.
        registry_only: whether proxies let nothing out that the mesh does not know.
        labels_canonical_name: whether each of its templates with a proxy writes the label of the
            canonical name on the Pod, as Istio's own do.
    """

    name: str
    cni: bool
    native_sidecars: str = ""
    excluded: tuple[str, ...] = ()
    injected: Mapping[str, str] = field(default_factory=dict)
    dns_capture: bool = False
    injects_by_default: bool = False
    registry_only: bool = False
    labels_canonical_name: bool = False

    def facts(self) -> list[str]:
        """All that holds for its Pods and matters to their init containers, a sentence each."""
        native = self.native_sidecars or "left to its version and the kubelets"
        facts = [
            "the CNI plugin redirects" if self.cni else "istio-init redirects, not the CNI plugin",
            f"native sidecars: {native}",
            f"mesh-wide excludes: {','.join(self.excluded) or 'none'}",
        ]
        facts += [
            f"injectedAnnotations write {key}={value!r} on every Pod, over the Pod's own"
            for key, value in sorted(self.injected.items())
        ]
        if self.dns_capture:
            facts.append(
                "DNS capture is on: port 53 goes to the proxy whatever ranges are excluded, so an"
                " init container finds no names; the proxy's user or group does"
            )
        if self.registry_only:
            facts.append(
                "outboundTrafficPolicy is REGISTRY_ONLY: it binds what goes through the proxy,"
                " not excluded ranges nor the proxy's user or group"
            )
        return facts

    def remarks(self) -> list[str]:
        """What an operator should know of it, in a few words each."""
        remarks = [] if self.cni else ["no CNI plugin: istio-init redirects"]
        if self.native_sidecars == "true":
            remarks.append("native sidecars are on")
        if self.excluded:
            remarks.append(f"excludes {','.join(self.excluded)} mesh-wide")
        if value := self.injected.get(istio.EXCLUDE_RANGES):
            remarks.append(f"injectedAnnotations exclude {value} on every Pod")
        if self.dns_capture:
            remarks.append("DNS capture: IP ranges don't cover port 53")
        return remarks


@dataclass(frozen=True)
class Mesh:
    """The mesh, as its namespace shows it.

    Attributes:
        namespace: where istiod's ConfigMaps are.
        revisions: the istiods found there.
        unread: ConfigMaps that could not be understood, with the reason.
    """

    namespace: str
    revisions: tuple[Revision, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def injects_by_default(self) -> bool:
        """Whether any istiod injects namespaces that have no label."""
        return any(revision.injects_by_default for revision in self.revisions)

    @property
    def labels_canonical_name(self) -> bool:
        """Whether every Pod that Istio injects is known to carry its canonical name's label."""
        known = bool(self.revisions) and not self.unread
        return known and all(revision.labels_canonical_name for revision in self.revisions)

    @property
    def injection(self) -> Injection:
        """What selectors have to know of it."""
        return Injection(self.injects_by_default, self.labels_canonical_name)

    def facts(self) -> list[str]:
        """All that holds for the mesh and matters to init containers, a sentence each."""
        if not self.revisions:
            return self.remarks()
        facts = list(self.unread)
        if len(self.revisions) > 1:
            names = ", ".join(revision.name or "default" for revision in self.revisions)
            facts.append(f"several revisions: {names}")
        for revision in self.revisions:
            prefix = f"revision {revision.name or 'default'}: " if len(self.revisions) > 1 else ""
            facts += [f"{prefix}{fact}" for fact in revision.facts()]
        return facts

    def remarks(self) -> list[str]:
        """What an operator should know of the mesh, in a few words each."""
        if not self.revisions and not self.unread:
            return [f"no istiod found in namespace {self.namespace}"]
        remarks: list[str] = list(self.unread)
        for revision in self.revisions:
            prefix = f"revision {revision.name}: " if len(self.revisions) > 1 else ""
            remarks += [f"{prefix}{remark}" for remark in revision.remarks()]
        return remarks


def read(namespace: str, config_maps: Mapping[str, Mapping[str, str]]) -> Mesh:
    """Read the mesh off the ConfigMaps of its namespace.

    Args:
        namespace: the mesh namespace.
        config_maps: name to data of the ConfigMaps there; others than istiod's are passed over.
    """
    revisions: list[Revision] = []
    unread: list[str] = []
    for name, data in sorted(config_maps.items()):
        if name != INJECTOR and not name.startswith(f"{INJECTOR}-"):
            continue
        suffix = name[len(INJECTOR) :]
        try:
            revisions.append(_revision(suffix, data, config_maps.get(MESH_CONFIG + suffix, {})))
        except (ValueError, TypeError, yaml.YAMLError) as error:
            unread.append(f"ConfigMap {namespace}/{name} can't be read: {_first_line(error)}")
    return Mesh(namespace, tuple(revisions), tuple(unread))


def _revision(suffix: str, injector: Mapping[str, str], mesh: Mapping[str, str]) -> Revision:
    values = _or_empty(json.loads(injector.get("values") or "null"))
    proxy = _at(values, "global", "proxy")
    webhook = _at(values, "sidecarInjectorWebhook")
    pilot = _at(values, "pilot")
    config = _or_empty(yaml.safe_load(mesh.get("mesh") or ""))
    metadata = _at(config, "defaultConfig", "proxyMetadata")
    excluded = (proxy.get("excludeIPRanges"), proxy.get("excludeOutboundPorts"))
    # The value's path changed: istio_cni up to 1.21, both in 1.22 and 1.23, pilot.cni from 1.24.
    cni = _at(pilot, "cni").get("enabled") or _at(values, "istio_cni").get("enabled")
    return Revision(
        name=suffix.removeprefix("-"),
        cni=cni is True,
        native_sidecars=str(_at(pilot, "env").get("ENABLE_NATIVE_SIDECARS", "")).lower(),
        excluded=tuple(str(value) for value in excluded if value),
        injected={
            str(key): str(value)
            for key, value in _at(webhook, "injectedAnnotations").items()
            if value is not None
        },
        dns_capture=str(metadata.get("ISTIO_META_DNS_CAPTURE", "")) in istio.GO_TRUE,
        injects_by_default=webhook.get("enableNamespacesByDefault") is True,
        registry_only=_at(config, "outboundTrafficPolicy").get("mode") == "REGISTRY_ONLY",
        labels_canonical_name=_every_template_names(injector.get("config", "")),
    )


def _every_template_names(config: str) -> bool:
    # istio/istio: manifests/charts/istio-control/istio-discovery/files/injection-template.yaml,
    # gateway-injection-template.yaml and grpc-agent.yaml write the label whatever is configured;
    # a template of the operator's own need not.
    try:
        templates = _at(_or_empty(yaml.safe_load(config)), "templates")
    except (TypeError, yaml.YAMLError):
        return False  # nothing else is read from it, so nothing else is lost
    with_proxy = [text for text in map(str, templates.values()) if istio.ISTIO_PROXY in text]
    return bool(with_proxy) and all(istio.CANONICAL_NAME in text for text in with_proxy)


def _at(tree: object, *path: str) -> Mapping[str, object]:
    """The mapping at a path; empty where something on the way is absent or null."""
    for step in path:
        tree = _or_empty(_mapping(tree, step).get(step))
    return _mapping(tree, ".".join(path))


def _or_empty(value: object) -> object:
    return {} if value is None else value


def _mapping(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise TypeError(f"at {where} stands {value!r}, which is no mapping")
    return value


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
