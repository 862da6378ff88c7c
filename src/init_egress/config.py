"""The charm's configuration: typed, validated as strictly as Istio reads it, and canonical.

Istio takes a list of ranges apart at its commas and hands every element to Go's netip.ParsePrefix
without trimming it (pkg/kube/inject/validate.go, cni/pkg/plugin/sidecar_redirect.go): one space,
bare address or `*` makes the injector deny the Pod or the CNI plugin refuse its sandbox. So
nothing of that kind may ever reach a cluster.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, TypeVar

from init_egress.rule import selector
from init_egress.rule.names import is_dns_label
from init_egress.rule.policy import ExistingAnnotation, Policy, RemedyKind

_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}")

_MOST_REPLICAS = 9
RANGES_EXAMPLE = "10.0.0.0/8,192.168.0.0/16,fd00::/8"
PORTS_EXAMPLE = "443,5432"


class BackendChoice(str, Enum):
    """The value of the option `backend`; `auto` is resolved by what the cluster serves."""

    AUTO = "auto"
    NATIVE = "native"
    KYVERNO = "kyverno"
    WEBHOOK = "webhook"


class PolicyKind(str, Enum):
    """Which of Kyverno's policies is written."""

    AUTO = "auto"
    CLUSTER_POLICY = "ClusterPolicy"
    MUTATING_POLICY = "MutatingPolicy"


class FailurePolicy(str, Enum):
    """What the API server does with a Pod if the backend can't be asked."""

    IGNORE = "ignore"
    FAIL = "fail"


@dataclass(frozen=True)
class Problem:
    """One thing wrong with one option.

    Attributes:
        option: the option's name.
        reason: what is wrong, quoting the offending element.
        example: a correct value.
    """

    option: str
    reason: str
    example: str


class ConfigError(ValueError):
    """The configuration can't be used; `problems` says why, an element for each fault."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        options = {problem.option: problem.example for problem in problems}
        super().__init__("; ".join(self._of(option, eg) for option, eg in options.items()))

    def _of(self, option: str, example: str) -> str:
        reasons = ", ".join(p.reason for p in self.problems if p.option == option)
        return f"{option}: {reasons} (for example {option}={example})"


@dataclass(frozen=True)
class Settings:
    """The configuration, validated.

    Attributes:
        backend: the backend asked for; `auto` is resolved by what the cluster serves.
        policy: what the rule needs to know.
        kyverno_kind: the kind of Kyverno policy asked for.
        mesh_namespace: istiod's namespace if the operator names it, else empty.
        failure_policy: for the backend's objects.
        webhook_replicas: how many replicas the webhook's workload has.
        notes: what was read otherwise than it was written, one sentence each.
    """

    backend: BackendChoice = BackendChoice.AUTO
    policy: Policy = field(default_factory=Policy)
    kyverno_kind: PolicyKind = PolicyKind.AUTO
    mesh_namespace: str = ""
    failure_policy: FailurePolicy = FailurePolicy.IGNORE
    webhook_replicas: int = 2
    notes: tuple[str, ...] = ()

    def options(self) -> dict[str, str]:
        """The options that the rule goes by, canonical, as `Config` reads them."""
        policy = self.policy
        return {
            "remedy": policy.remedy.value,
            "exclude-outbound-ip-ranges": ",".join(policy.ranges),
            "exclude-outbound-ports": ",".join(policy.ports),
            "ignore-init-containers": ",".join(policy.ignored),
            "existing-annotation": policy.existing.value,
            "pod-selector": str(policy.pods),
        }


@dataclass(frozen=True)
class Config:
    """The charm's options as Juju has them, with the defaults of charmcraft.yaml."""

    backend: str = "auto"
    remedy: str = "exclude-ip-ranges"
    exclude_outbound_ip_ranges: str = "0.0.0.0/0,::/0"
    exclude_outbound_ports: str = ""
    ignore_init_containers: str = "volume-permissions,init-chown-data"
    existing_annotation: str = "merge"
    kyverno_policy_kind: str = "auto"
    namespace_selector: str = ""
    pod_selector: str = ""
    mesh_namespace: str = ""
    failure_policy: str = "ignore"
    webhook_replicas: int = 2

    @classmethod
    def from_options(cls, options: Mapping[str, str | int]) -> Config:
        """Read options by their names in charmcraft.yaml; those left out have their defaults.

        Raises:
            ConfigError: an option is unknown, or a number is none.
        """
        known = {field.name.replace("_", "-"): field for field in fields(cls)}
        problems = [
            Problem(name, f"no such option; there are {', '.join(known)}", "…")
            for name in options
            if name not in known
        ]
        values: dict[str, Any] = {}
        for name in known.keys() & options.keys():
            value, field = options[name], known[name]
            try:
                values[field.name] = int(value) if field.type == "int" else str(value)
            except ValueError:
                problems.append(Problem(name, f"{value!r} is no number", str(field.default)))
        if problems:
            raise ConfigError(tuple(problems))
        return cls(**values)

    def settings(self) -> Settings:
        """Validate every option.

        Raises:
            ConfigError: with every fault found, not only the first.
        """
        reader = _Reader()
        ranges = reader.elements(
            "exclude-outbound-ip-ranges",
            self.exclude_outbound_ip_ranges,
            reader.prefix,
            RANGES_EXAMPLE,
        )
        ports = reader.elements(
            "exclude-outbound-ports", self.exclude_outbound_ports, _port, PORTS_EXAMPLE
        )
        if not self.exclude_outbound_ip_ranges and not self.exclude_outbound_ports:
            reader.fault(
                "exclude-outbound-ip-ranges",
                "it and exclude-outbound-ports are both empty, so nothing would be excluded",
                RANGES_EXAMPLE,
            )
        policy = Policy(
            remedy=reader.choice("remedy", self.remedy, RemedyKind, RemedyKind.EXCLUDE_IP_RANGES),
            ranges=ranges,
            ports=ports,
            existing=reader.choice(
                "existing-annotation",
                self.existing_annotation,
                ExistingAnnotation,
                ExistingAnnotation.MERGE,
            ),
            ignored=reader.elements(
                "ignore-init-containers",
                self.ignore_init_containers,
                _container_name,
                "volume-permissions,init-chown-data",
            ),
            namespaces=reader.selector("namespace-selector", self.namespace_selector),
            pods=reader.selector("pod-selector", self.pod_selector),
        )
        settings = Settings(
            backend=reader.choice("backend", self.backend, BackendChoice, BackendChoice.AUTO),
            policy=policy,
            kyverno_kind=reader.choice(
                "kyverno-policy-kind", self.kyverno_policy_kind, PolicyKind, PolicyKind.AUTO
            ),
            mesh_namespace=reader.namespace("mesh-namespace", self.mesh_namespace),
            failure_policy=reader.choice(
                "failure-policy", self.failure_policy, FailurePolicy, FailurePolicy.IGNORE
            ),
            webhook_replicas=reader.count("webhook-replicas", self.webhook_replicas),
            notes=tuple(dict.fromkeys(reader.notes)),
        )
        if reader.problems:
            raise ConfigError(tuple(reader.problems))
        return settings


_E = TypeVar("_E", bound=Enum)


class _Reader:
    """Reads options one after another and collects what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.notes: list[str] = []

    def fault(self, option: str, reason: str, example: str) -> None:
        self.problems.append(Problem(option, reason, example))

    def choice(self, option: str, text: str, kind: type[_E], default: _E) -> _E:
        try:
            return kind(text)
        except ValueError:
            known = ", ".join(member.value for member in kind)
            self.fault(option, f"{text!r} is none of {known}", default.value)
            return default

    def elements(
        self, option: str, text: str, parse: Callable[[str], str], example: str
    ) -> tuple[str, ...]:
        """The elements of a comma-separated option, each parsed, in order and without repeats."""
        found: dict[str, None] = {}
        for element in text.split(",") if text else ():
            try:
                found[_checked(element, parse)] = None
            except ValueError as error:
                self.fault(option, str(error), example)
        return tuple(found)

    def prefix(self, element: str) -> str:
        """A CIDR prefix with its host bits cleared; a note says so if there were any."""
        interface = _interface(element)
        if interface.ip != interface.network.network_address:
            self.notes.append(f"{element} was read as {interface.network}: host bits are cleared")
        return str(interface.network)

    def selector(self, option: str, text: str) -> selector.Selector:
        try:
            return selector.parse(text)
        except ValueError as error:
            self.fault(option, str(error), f"'{selector.EXAMPLE}'")
            return selector.EVERYTHING

    def count(self, option: str, number: int) -> int:
        if not 1 <= number <= _MOST_REPLICAS:
            self.fault(option, f"{number} is no number from 1 to {_MOST_REPLICAS}", "2")
        return number

    def namespace(self, option: str, text: str) -> str:
        if text and not is_dns_label(text):
            self.fault(option, f"{text!r} is no name of a namespace", "istio-system")
        return text


def _checked(element: str, parse: Callable[[str], str]) -> str:
    if not element.strip():
        raise ValueError("an element is empty (two commas, or one at an end)")
    if any(character.isspace() for character in element):
        raise ValueError(f"{element!r} holds a space; write the list without any")
    return parse(element)


def _interface(element: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    if element == "*":
        raise ValueError("'*' is no range; for every address write 0.0.0.0/0,::/0")
    address, slash, length = element.partition("/")
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        raise ValueError(f"{element!r}: {address!r} is no IP address") from None
    if "%" in address:
        raise ValueError(f"{element!r}: an address with a zone is no range")
    if not slash:
        raise ValueError(f"{element!r} is a bare address; write {element}/{parsed.max_prefixlen}")
    if not _NUMBER.fullmatch(length) or int(length) > parsed.max_prefixlen:
        raise ValueError(
            f"{element!r}: {length!r} is no prefix length from 0 to {parsed.max_prefixlen}"
        )
    return ipaddress.ip_interface(element)


def _port(element: str) -> str:
    if not _NUMBER.fullmatch(element) or not 1 <= int(element) <= 65535:
        raise ValueError(f"{element!r} is no port from 1 to 65535")
    return element


def _container_name(element: str) -> str:
    if not is_dns_label(element):
        raise ValueError(f"{element!r} is no name of a container")
    return element
