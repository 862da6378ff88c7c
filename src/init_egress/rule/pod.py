"""The part of a Pod and of its Namespace that the rule reads.

The types name only the fields that the rule looks at; everything else in a Pod is skipped while it
is decoded, so one reader serves an AdmissionReview, a page of a list and a file.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class _Object(msgspec.Struct, frozen=True, rename="camel"):
    """A JSON object whose unknown fields are passed over."""


class SecurityContext(_Object, frozen=True):
    """`securityContext` of a Pod or a container: None means that the author left the field out."""

    run_as_user: int | None = None
    run_as_group: int | None = None


class EnvVar(_Object, frozen=True):
    """One variable of a container; `value` is empty where it comes from `valueFrom`."""

    name: str
    value: str = ""


class Container(_Object, frozen=True):
    """A container or an init container."""

    name: str
    args: tuple[str, ...] | None = None
    env: tuple[EnvVar, ...] | None = None
    security_context: SecurityContext | None = None


class PodSpec(_Object, frozen=True):
    """The containers of a Pod, in order."""

    init_containers: tuple[Container, ...] | None = None
    containers: tuple[Container, ...] | None = None
    security_context: SecurityContext | None = None


class ObjectMeta(_Object, frozen=True):
    """Name, labels and annotations. `name` is empty on a Pod that is created by `generateName`."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Pod(_Object, frozen=True):
    """A Pod as the API server has it: in an admission request or stored."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()

    @classmethod
    def from_dict(cls, obj: Mapping[str, object]) -> Pod:
        """Read a Pod from a decoded manifest.

        Raises:
            msgspec.ValidationError: a field has the wrong type; the message names its path.
        """
        return msgspec.convert(obj, cls)

    @property
    def labels(self) -> Mapping[str, str]:
        """The Pod's labels; empty where it has none."""
        return self.metadata.labels or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        """The Pod's annotations; empty where it has none."""
        return self.metadata.annotations or {}

    @property
    def init_containers(self) -> tuple[Container, ...]:
        """The init containers in the order in which they start."""
        return self.spec.init_containers or ()

    @property
    def containers(self) -> tuple[Container, ...]:
        """The containers that start after the init containers."""
        return self.spec.containers or ()


class Namespace(msgspec.Struct, frozen=True):
    """The namespace a Pod is created in: its name and its labels."""

    name: str
    labels: Mapping[str, str] = {}
