"""The command line, for clusters without Juju: render a policy for kubectl, audit existing Pods.

The options are the charm's, by the same names and with the same validation. As with kubectl, what
was asked for goes to standard output, everything else to standard error; exit code 0 is success,
1 a failure, 2 a command line that can't be used.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

import msgspec
from lightkube import KubeConfig
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError as KubeconfigError

from init_egress.backends.registry import POLICY_BACKENDS
from init_egress.backends.render import to_yaml
from init_egress.config import Config, ConfigError, PolicyKind, Settings
from init_egress.existing import audit
from init_egress.existing.advice import Kubectl
from init_egress.kube.application import Application
from init_egress.kube.client import ApiClient
from init_egress.kube.errors import ClusterError, Forbidden, Unreachable
from init_egress.kube.scope import Scope
from init_egress.mesh.facts import mesh_facts
from init_egress.mesh.injection import Injection
from init_egress.rule.policy import ExistingAnnotation, RemedyKind
from init_egress.rule.verdict import Verdict

FAILED = 1
UNUSABLE = 2
IN_NEED = 3
"""With --exit-code: some Pod needs the remedy."""

STANDALONE = "standalone"
"""Stands where a charm's objects have the name of their model."""

_CHOICES = {
    "remedy": [remedy.value for remedy in RemedyKind],
    "existing-annotation": [existing.value for existing in ExistingAnnotation],
    "failure-policy": ["ignore", "fail"],
}
_HELP = {
    "remedy": "what gives init containers their network back",
    "exclude-outbound-ip-ranges": "ranges that are not redirected, as CIDR prefixes",
    "exclude-outbound-ports": "ports that are not redirected",
    "ignore-init-containers": "init containers that need no network",
    "existing-annotation": "what becomes of an exclude annotation that is there already",
    "namespace-selector": "only namespaces with these labels",
    "pod-selector": "only Pods with these labels",
    "failure-policy": "what becomes of a Pod if the policy can't be evaluated",
}


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says; returns the exit code.

    Args:
        arguments: the command line without the program's name.
    """
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (ConfigError, ValueError) as error:
        _say(f"error: {error}")
        return UNUSABLE
    except Forbidden as error:
        _say(f"error: {error}\nyour user needs the right to list Pods and Namespaces")
        return FAILED
    except ClusterError as error:
        _say(f"error: {error}")
        return FAILED
    except BrokenPipeError:  # the reader, `head` for one, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return 130


def _render(options: argparse.Namespace) -> int:
    settings = _settings(options)
    policy_kinds = (None, PolicyKind(options.kyverno_policy_kind))
    backend = next(
        backend
        for backend in POLICY_BACKENDS
        if backend.choice.value == options.backend and backend.policy_kind in policy_kinds
    )
    application = Application(options.name, STANDALONE)
    injection = Injection(by_default=options.inject_by_default)
    print(to_yaml(backend.render(settings, application, injection)), end="")
    return 0


def _audit(options: argparse.Namespace) -> int:
    settings = _settings(options)
    scope = Scope(options.namespace, options.selector)
    config = _kubeconfig(options.kubeconfig, options.context)
    api = ApiClient.connect(config)
    facts = _facts(api, options.namespace, options.mesh_namespace)
    found = audit.audit(
        api,
        settings.policy,
        scope,
        Kubectl(),
        verdict=Verdict(options.verdict) if options.verdict else None,
        progress=_say,
    )
    if options.output == "json":
        encoded = msgspec.json.encode(audit.document(found, facts))
        print(msgspec.json.format(encoded, indent=2).decode())
    else:
        print(audit.table(found, facts))
    if options.exit_code and found.verdicts.get(Verdict.NEEDS_REMEDY):
        return IN_NEED
    return 0


def _facts(api: ApiClient, namespace: str, mesh_namespace: str) -> list[str]:
    """What holds for the mesh; that it can't be read keeps nobody from an audit of Pods."""
    try:
        return mesh_facts(api, api, namespace, mesh_namespace)
    except ClusterError as error:
        return [f"the mesh is not known: {error}"]


def _kubeconfig(path: Path | None, context: str | None) -> SingleConfig:
    """The cluster that kubectl would talk to.

    Raises:
        Unreachable: there is no such file or context.
    """
    try:
        found = KubeConfig.from_file(path) if path else KubeConfig.from_env()
        config = found.get(context)
    except KubeconfigError as error:
        raise Unreachable(f"can't connect to the cluster: {error}") from error
    if config is None:
        raise Unreachable("can't connect to the cluster: the kubeconfig has no current context")
    return config


def _settings(options: argparse.Namespace) -> Settings:
    """The charm's settings from the options given.

    Raises:
        ConfigError: with every fault found.
    """
    given = {
        name: value
        for name in _HELP
        if (value := getattr(options, name.replace("-", "_"), None)) is not None
    }
    settings = Config.from_options(given).settings()
    for note in settings.notes:
        _say(f"note: {note}")
    return settings


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m init_egress",
        description="Gives init containers of an Istio mesh their network back, without Juju.",
        epilog="Exit codes: 0 success, 1 failure, 2 a command line that can't be used.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    _add_render(verbs.add_parser)
    _add_audit(verbs.add_parser)
    return parser


def _add_render(add: Callable[..., argparse.ArgumentParser]) -> None:
    render = add(
        "render",
        help="print a policy as YAML, for kubectl apply",
        description="Print the objects of a backend as YAML. No cluster is asked.",
        epilog="example: python -m init_egress render --backend native | kubectl apply -f -",
    )
    render.set_defaults(run=_render)
    render.add_argument(
        "--backend",
        choices=list(dict.fromkeys(backend.choice.value for backend in POLICY_BACKENDS)),
        required=True,
        help="native: MutatingAdmissionPolicy (Kubernetes 1.36+); kyverno: a policy of Kyverno's",
    )
    render.add_argument(
        "--kyverno-policy-kind",
        choices=[kind.value for kind in PolicyKind if kind is not PolicyKind.AUTO],
        default=PolicyKind.CLUSTER_POLICY.value,
        help="with --backend kyverno (default: %(default)s)",
    )
    render.add_argument(
        "--inject-by-default",
        action="store_true",
        help="the mesh injects namespaces without a label (enableNamespacesByDefault)",
    )
    render.add_argument(
        "--name", default="istio-init-egress", help="of the objects (default: %(default)s)"
    )
    _add_options(render, *_HELP)


def _add_audit(add: Callable[..., argparse.ArgumentParser]) -> None:
    audit_parser = add(
        "audit",
        help="say of every existing Pod whether its init containers have a network",
        description="Judge existing Pods by the rule. Nothing on the cluster is changed.",
        epilog="example: python -m init_egress audit -n team --verdict needs-remedy -o json",
    )
    audit_parser.set_defaults(run=_audit)
    audit_parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="as of kubectl")
    audit_parser.add_argument("--context", metavar="NAME", help="as of kubectl")
    audit_parser.add_argument(
        "-n", "--namespace", default="", help="only Pods of this namespace (default: all)"
    )
    audit_parser.add_argument(
        "-A",
        "--all-namespaces",
        action="store_const",
        const="",
        dest="namespace",
        help="Pods of all namespaces, which is the default",
    )
    audit_parser.add_argument(
        "-l", "--selector", default="", help="only Pods with these labels, such as app=x,tier!=y"
    )
    audit_parser.add_argument(
        "--verdict",
        choices=[verdict.value for verdict in Verdict],
        metavar="VERDICT",
        help="list only Pods of which the rule says this: %(choices)s",
    )
    audit_parser.add_argument(
        "-o", "--output", choices=["table", "json"], default="table", help="default: %(default)s"
    )
    audit_parser.add_argument(
        "--exit-code", action="store_true", help=f"exit with {IN_NEED} if a Pod needs the remedy"
    )
    audit_parser.add_argument(
        "--mesh-namespace",
        default="istio-system",
        metavar="NAME",
        help="where istiod is (default: %(default)s)",
    )
    _add_options(audit_parser, *(name for name in _HELP if name != "failure-policy"))


def _add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the charm's options; one that isn't given has the charm's default."""
    defaults = {field.name.replace("_", "-"): field.default for field in fields(Config)}
    group = parser.add_argument_group("what the charm's options say")
    for name in names:
        shown = f" (default: {defaults[name]})" if defaults[name] else ""
        group.add_argument(
            f"--{name}",
            choices=_CHOICES.get(name),
            metavar=None if name in _CHOICES else "LIST",
            help=f"{_HELP[name]}{shown}",
        )
