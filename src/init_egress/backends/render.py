"""Templates in, manifests out.

A template is the YAML that an operator reads. It loops over lists and picks a text by a setting;
whatever has to be computed is computed in Python and given to it. jinja2 runs with
StrictUndefined: a missing name is an error, never an empty string on a cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from init_egress.kube.manifest import Manifest

TEMPLATES = Path(__file__).resolve().parents[3] / "templates"


@cache
def environment() -> Environment:
    """The templates, with the filters that write literals of CEL, JMESPath and Kyverno."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - YAML and CEL, not HTML
    )
    # A JSON string or list of strings is a CEL literal.
    environment.filters["cel"] = json.dumps
    environment.filters["jmes"] = lambda value: f"`{json.dumps(value)}`"
    environment.filters["kyverno"] = lambda expression: f"{{{{ {expression} }}}}"
    return environment


def render(templates: Iterable[str], context: Mapping[str, object]) -> list[Manifest]:
    """Render templates, one after another.

    Args:
        templates: their names, relative to `TEMPLATES`.
        context: what they name.

    Raises:
        jinja2.UndefinedError: a template names something that the context lacks.
    """
    text = "---\n".join(render_text(name, context) for name in templates)
    return [document for document in yaml.load_all(text, _Loader) if document]


def render_text(template: str, context: Mapping[str, object]) -> str:
    """Render one template to text; see `render`."""
    return environment().get_template(template).render(context)


def to_yaml(manifests: Iterable[Manifest]) -> str:
    """Write manifests the way `kubectl apply -f` reads them, expressions line by line."""
    return yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, width=100)


# In C where PyYAML was built with libyaml: ten times as fast, and each event renders.
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a literal block."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
