"""What Kubernetes takes as a name.

https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ and, for the patterns,
https://github.com/kubernetes/apimachinery/blob/master/pkg/util/validation/validation.go
"""

from __future__ import annotations

import re

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_KIND = re.compile(r"[A-Za-z]([A-Za-z0-9]*)?")
_LABEL_LIMIT = 63
_SUBDOMAIN_LIMIT = 253


def is_dns_label(text: str) -> bool:
    """Whether a text is a DNS-1123 label, as the name of a Namespace or a container is."""
    return len(text) <= _LABEL_LIMIT and bool(_DNS_LABEL.fullmatch(text))


def is_dns_subdomain(text: str) -> bool:
    """Whether a text is a DNS-1123 subdomain, as the names of most objects and API groups are."""
    return len(text) <= _SUBDOMAIN_LIMIT and bool(_DNS_SUBDOMAIN.fullmatch(text))


def is_kind(text: str) -> bool:
    """Whether a text is the name of a kind, such as `StatefulSet`.

    Of a custom resource's kind Kubernetes demands that it is a DNS label in lower case
    (ValidateCustomResourceDefinitionNames); no kind that is known has a hyphen.
    """
    return len(text) <= _LABEL_LIMIT and bool(_KIND.fullmatch(text))
