"""Writes the pages of docs/reference that say what charmcraft.yaml and the code say.

`make reference` runs it; tests/unit/test_reference.py holds the pages against what it would write.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import yaml
from prometheus_client.metrics_core import Metric

from init_egress.backends.registry import BACKENDS, POLICY_BACKENDS
from init_egress.exporter.server import SnapshotCollector
from init_egress.exporter.snapshot import FILE, AuditCounts, BackendEffect, Snapshot
from init_egress.rule import istio
from init_egress.rule.checks import CHECKS
from init_egress.rule.policy import RemedyKind
from init_egress.webhook.metrics import Metrics
from tools.documents import ROOT

FOLDER = ROOT / "docs" / "reference"
_NOTE = "<!-- Made by `make reference`; don't edit it by hand. -->"
_RULES = ROOT / "src" / "prometheus_alert_rules"
_CASES = ROOT / "tests" / "cases"
_COMMANDS = (
    ("init_egress",),
    ("init_egress", "render"),
    ("init_egress", "audit"),
    ("init_egress.webhook",),
    ("init_egress.exporter",),
)


def charm() -> dict[str, dict]:
    """What charmcraft.yaml says."""
    return yaml.safe_load((ROOT / "charmcraft.yaml").read_text())


def configuration() -> str:
    """The charm's options."""
    parts = [
        "An option that can't be used blocks the charm with the option, the part that is wrong and"
        " a correct example; what was in force stays in force. How to set them:"
        " [change the ranges](../how-to/change-ranges.md),"
        " [choose a backend](../how-to/choose-a-backend.md)."
    ]
    for name, option in charm()["config"]["options"].items():
        default = option["default"]
        shown = "empty" if default == "" else f"`{default}`"
        parts.append(f"## {name}\n\nType: {option['type']}. Default: {shown}.")
        parts.append(_paragraphs(option["description"]))
    return _page("Configuration", parts)


def actions() -> str:
    """The charm's actions."""
    parts = [
        "Run them on the leader: `juju run istio-init-egress/leader <action>`. What each is for:"
        " [repair existing Pods](../how-to/repair-existing-pods.md)."
    ]
    for name, action in charm()["actions"].items():
        parts += [f"## {name}", _flowing(action["description"])]
        params = action.get("params") or {}
        required = action.get("required", ())
        rows = [
            _row(
                f"`{key}`",
                _type(param),
                _default(key, param, required),
                _cell(param["description"]),
            )
            for key, param in params.items()
        ]
        table = ["| parameter | type | default | meaning |", "|---|---|---|---|", *rows]
        parts.append("\n".join(table) if rows else "It takes no parameters.")
    return _page("Actions", parts)


def relations() -> str:
    """The charm's endpoints and its resource."""
    described = charm()
    parts = [
        "All endpoints are optional, but the charm must be told where the mesh is, by one of the"
        " first two or by `mesh-namespace`."
    ]
    for role in ("requires", "provides", "peers"):
        for name, endpoint in (described.get(role) or {}).items():
            limit = "; one relation at most" if endpoint.get("limit") == 1 else ""
            parts.append(
                f"## {name}\n\n{role.capitalize()} the interface `{endpoint['interface']}`{limit}."
            )
            parts.append(_paragraphs(endpoint["description"]))
    for name, resource in described["resources"].items():
        parts.append(
            f"## Resource {name}\n\nType: {resource['type']}."
            f" Upstream: `{resource['upstream-source']}`."
        )
        parts.append(_flowing(resource["description"]))
    return _page("Relations and the resource", parts)


def verdicts() -> str:
    """The rule's verdicts, with the cases in which each was reported."""
    parts = [
        "One rule decides about every Pod, in every backend, in the audit and in the actions. It"
        " looks at the Pod as Istio injected it; the first verdict that fits holds."
        " [The rule](../explanation/the-rule.md) says why it is so,"
        " [troubleshooting](../how-to/troubleshooting.md#by-verdict) what to do about each."
    ]
    cases = [yaml.safe_load(path.read_text()) for path in sorted(_CASES.glob("*.yaml"))]
    for number, check in enumerate(CHECKS, 1):
        parts.append(f"## {check.verdict.value}\n\n{number}. {check.documentation}")
        if check.fields:
            parts.append("Reads " + ", ".join(f"`{field}`" for field in check.fields) + ".")
        shown = [
            f"* [{case['id']}](../../tests/cases/{case['id']}.yaml): {_cell(case['about'])}"
            for case in cases
            if case["expect"]["verdict"] == check.verdict.value
        ]
        if shown:
            parts.append("Cases:\n\n" + "\n".join(shown))
    labels = (
        (f'{istio.SKIP_LABEL}: "true"', "on a Pod or a Namespace: the charm leaves it alone"),
        (
            istio.PROBE_LABEL,
            "on the charm's own dry-run Pods only: the one backend that may act on it",
        ),
    )
    rows = [f"| `{name}` | {meaning} |" for name, meaning in labels]
    annotations = (
        (istio.EXCLUDE_RANGES, "read and written under `exclude-ip-ranges`"),
        (istio.EXCLUDE_PORTS, "likewise, if `exclude-outbound-ports` is set"),
        *(
            (key, "read only")
            for key in (
                istio.STATUS,
                istio.INTERCEPTION_MODE,
                istio.INCLUDE_RANGES,
                istio.INCLUDE_PORTS,
            )
        ),
    )
    rows += [f"| `{name}` | {meaning} |" for name, meaning in annotations]
    parts.append("## Labels and annotations\n\n| key | meaning |\n|---|---|\n" + "\n".join(rows))
    return _page("Verdicts", parts)


def metrics() -> str:
    """The metrics of the exporter and of the webhook's workload, and the alerts."""
    parts = [
        "Both are served without TLS at `/metrics`, beside the process's own."
        " [Watch what the charm does](../how-to/observe.md) says what is there with which"
        " backend.",
        "## Of the exporter, with any backend",
        _families(_exported()),
        "## Of each replica of the webhook",
        _families(Metrics({}, {}, dict).collect()),
    ]
    alerts = [
        _row(
            alert["alert"],
            alert["labels"]["severity"],
            alert.get("for", "0m"),
            _cell(alert["annotations"]["summary"]),
        )
        for path in sorted(_RULES.glob("*.rule*"))
        for group in yaml.safe_load(path.read_text())["groups"]
        for alert in group["rules"]
        if "alert" in alert
    ]
    parts.append(
        "## Alerts\n\n| alert | severity | after | meaning |\n|---|---|---|---|\n"
        + "\n".join(alerts)
    )
    return _page("Metrics and alerts", parts)


def command_line() -> str:
    """What --help says of each command."""
    parts = [
        "The first is for clusters [without Juju](../how-to/without-juju.md). The last two are the"
        " webhook's workload and the exporter, which the charm starts itself."
    ]
    for module, *rest in _COMMANDS:
        command = " ".join(["python -m", module, *rest])
        parts.append(f"## {command}\n\n```text\n{_help([module, *rest])}\n```")
    return _page("Command line", parts)


def backends() -> str:
    """What each backend can carry out."""
    found = BACKENDS.values()
    rows = [
        ("`backend=`", [f"`{backend.choice.value}`" for backend in found]),
        (
            "`kyverno-policy-kind=`",
            [f"`{b.policy_kind.value}`" if b.policy_kind else "" for b in found],
        ),
        ("needs", [backend.requires for backend in found]),
        (
            "remedies",
            [
                "<br>".join(f"`{r.value}`" for r in RemedyKind if r in b.capabilities.remedies)
                for b in found
            ],
        ),
        (
            "options of its own",
            [", ".join(f"`{o}`" for o in sorted(b.capabilities.own_options)) for b in found],
        ),
        (
            "acts on init containers that a later webhook adds",
            [_yes(backend.capabilities.sees_later_webhooks) for backend in found],
        ),
        (
            "runs Pods: image, certificate, logs, metrics",
            [_yes(backend.capabilities.runs_workload) for backend in found],
        ),
        (
            "`failure-policy=fail` waits until the remedy is seen to arrive",
            [_yes(backend.capabilities.proves_before_fail) for backend in found],
        ),
        (
            "`python -m init_egress render`",
            [_yes(backend in POLICY_BACKENDS) for backend in found],
        ),
    ]
    table = [
        _row("", *(f"`{backend.kind.value}`" for backend in found)),
        _row(*["---"] * (len(found) + 1)),
        *(_row(title, *cells) for title, cells in rows),
    ]
    return _page(
        "Backends",
        [
            "What each backend can carry out, in the order in which `backend=auto` prefers them."
            " [How they compare](../explanation/backends-compared.md) says what they cost.",
            "\n".join(table),
        ],
    )


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


PAGES: Mapping[str, Callable[[], str]] = {
    "configuration.md": configuration,
    "actions.md": actions,
    "relations.md": relations,
    "verdicts.md": verdicts,
    "backends.md": backends,
    "metrics.md": metrics,
    "command-line.md": command_line,
}
"""What writes each page."""


def main() -> int:
    """Write the pages; returns the exit code."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, write in PAGES.items():
        (FOLDER / name).write_text(write())
    return 0


def _exported() -> list[Metric]:
    """All that the exporter can show."""
    seen = Snapshot("native", BackendEffect.ARRIVES, 0, AuditCounts(0, {}))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        path.write_text(seen.encode())
        return list(SnapshotCollector(path).collect())


def _families(families: Iterable[Metric]) -> str:
    rows = [
        _row(f"`{_sample(family)}`", family.type, _cell(family.documentation))
        for family in families
    ]
    return "\n".join(["| metric | type | meaning |", "|---|---|---|", *rows])


def _page(title: str, parts: Iterable[str]) -> str:
    return "\n\n".join([f"# {title}", _NOTE, *parts]) + "\n"


def _help(command: list[str]) -> str:
    # The width of the terminal, and its colours, are not to show.
    environment = {
        **os.environ,
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "PYTHONPATH": str(ROOT / "src"),
    }
    done = subprocess.run(  # noqa: S603 - the modules are those above
        [sys.executable, "-m", *command, "--help"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    # Where a machine has no IPv6 the webhook listens on every address of IPv4.
    return done.stdout.strip().replace("(default: 0.0.0.0)", "(default: ::)")


def _paragraphs(text: str) -> str:
    """A description in Markdown: values of the option make a list, a command of Juju's a block."""
    said, values, commands = [""], [""], [""]
    kind = said
    for line in text.strip().splitlines():
        head, colon, rest = line.partition(": ")
        if line.startswith("juju "):
            kind = commands
            kind.append(line)
        elif colon and " " not in head:
            kind = values
            kind.append(f"* `{head}`: {rest}")
        else:
            kind[-1] += f"{' ' if kind[-1] else ''}{line}"
    parts = ["\n".join(filter(None, said)), "\n".join(values[1:])]
    parts += [f"```shell\n{command}\n```" for command in commands[1:]]
    return "\n\n".join(filter(None, parts))


def _flowing(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _flowing(text).replace("|", "\\|")


def _type(param: Mapping[str, object]) -> str:
    choices = param.get("enum")
    if isinstance(choices, list):
        return "one of " + ", ".join(f"`{choice}`" for choice in choices)
    return str(param["type"])


def _default(key: str, param: Mapping[str, object], required: Iterable[str]) -> str:
    if key in required:
        return "required"
    default = param.get("default")
    return (
        ""
        if default is None
        else f"`{str(default).lower() if isinstance(default, bool) else default}`"
    )


def _sample(family: Metric) -> str:
    """The name as it is queried: counters and infos get a suffix when they are written."""
    return family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
