"""The command line, as far as it needs no cluster."""

from __future__ import annotations

import pytest
import yaml

from init_egress import cli
from init_egress.backends.policy import PolicyBackend
from init_egress.backends.registry import CLUSTER_POLICY, MUTATING_POLICY, NATIVE
from init_egress.config import Config
from init_egress.kube.application import Application


def rendered(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[object]:
    assert cli.main(["render", *arguments]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


@pytest.mark.parametrize(
    ("arguments", "backend", "config"),
    [
        (["--backend", "native"], NATIVE, {}),
        (
            ["--backend", "native", "--remedy", "proxy-group"],
            NATIVE,
            {"remedy": "proxy-group"},
        ),
        (["--backend", "kyverno"], CLUSTER_POLICY, {}),
        (
            ["--backend", "kyverno", "--kyverno-policy-kind", "MutatingPolicy"],
            MUTATING_POLICY,
            {},
        ),
        (
            ["--backend", "native", "--pod-selector", "team=ml", "--failure-policy", "fail"],
            NATIVE,
            {"pod-selector": "team=ml", "failure-policy": "fail"},
        ),
    ],
)
def test_it_renders_what_the_charm_applies(
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    backend: PolicyBackend,
    config: dict[str, str],
) -> None:
    owner = Application("istio-init-egress", cli.STANDALONE)
    settings = Config.from_options(config).settings()
    assert rendered(capsys, *arguments) == backend.render(settings, owner)


def test_namespaces_injected_by_default_are_bound_too(capsys: pytest.CaptureFixture[str]) -> None:
    plain = rendered(capsys, "--backend", "native")
    everywhere = rendered(capsys, "--backend", "native", "--inject-by-default")
    assert len(everywhere) > len(plain)


def test_a_wrong_option_is_named_with_a_correct_example(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = cli.main(
        ["render", "--backend", "native", "--exclude-outbound-ip-ranges", "10.0.0.1,*"]
    )
    captured = capsys.readouterr()
    assert code == cli.UNUSABLE
    assert captured.out == ""
    assert "bare address" in captured.err
    assert "'*' is no range" in captured.err
    assert "for example" in captured.err


def test_what_was_read_otherwise_is_noted_beside_the_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ranges = ["--exclude-outbound-ip-ranges", "10.0.0.1/8"]
    assert cli.main(["render", "--backend", "native", *ranges]) == 0
    captured = capsys.readouterr()
    assert "host bits are cleared" in captured.err
    assert "10.0.0.0/8" in captured.out


@pytest.mark.parametrize(
    "arguments",
    [[], ["render"], ["render", "--backend", "webhook"], ["audit", "--verdict", "no"], ["--no"]],
)
def test_a_command_line_that_cannot_be_used_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == cli.UNUSABLE
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["render", "--help"], ["audit", "--help"]])
def test_help_says_how_it_is_used(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == 0
    printed = capsys.readouterr().out
    assert "python -m init_egress" in printed
    assert "default" in printed or "COMMAND" in printed


def test_a_selector_that_is_none_is_refused_before_the_cluster_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["audit", "--selector", "a b"]) == cli.UNUSABLE
    assert "no label key" in capsys.readouterr().err
