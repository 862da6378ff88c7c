"""The alert rules, evaluated by Prometheus' own tool on series that must and must not fire."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from cosl import JujuTopology

from init_egress.observability.relations import alert_rules
from init_egress.observability.scraping import Component, Target

TOPOLOGY = JujuTopology(
    model="kubeflow",
    model_uuid="20ce8299-3634-4bef-8bd8-5ace6c8816b4",
    application="egress",
    unit="egress/0",
    charm_name="istio-init-egress",
)
EVERYTHING = [Target(component, "10.0.0.1:8080") for component in Component]
# What the requirer injects into expressions, and labels everything with that it scrapes.
OURS = TOPOLOGY.alert_expression_dict
THEIRS = {**OURS, "juju_application": "another"}
PREFIX = "istio_init_egress_"
DAY = 24 * 60


@dataclass(frozen=True)
class Case:
    """Series, and whether an alert fires on them.

    Attributes:
        id: what is shown.
        alert: the alert's name, without the prefix that all share.
        fires: whether it fires.
        series: name and labels to values, in promtool's notation, one a minute; times begin at 0.
        at: minutes after which it is asked.
    """

    id: str
    alert: str
    fires: bool
    series: Mapping[str, str]
    at: int = 60


def up(component: str, values: str) -> dict[str, str]:
    return {f'up{{component="{component}"}}': values}


def expiry(days: float) -> dict[str, str]:
    at = int(days * 24 * 3600)
    return {f'{PREFIX}certificate_expiry_timestamp_seconds{{replica="a"}}': f"{at}x120"}


def reviews(verdict: str, values: str) -> dict[str, str]:
    refused = {f'{PREFIX}refused_requests_total{{code="{code}"}}': "0x120" for code in (400, 500)}
    errors = {
        f'{PREFIX}reviews_total{{verdict="{name}",dry_run="false"}}': "0x120"
        for name in ("error", "unreadable", "needs-remedy")
    }
    return {
        **refused,
        **errors,
        f'{PREFIX}reviews_total{{verdict="{verdict}",dry_run="false"}}': values,
    }


def latency(fast: str, all_: str) -> dict[str, str]:
    name = f"{PREFIX}review_duration_seconds_bucket"
    return {
        f'{name}{{le="0.001"}}': fast,
        f'{name}{{le="2.5"}}': all_,
        f'{name}{{le="+Inf"}}': all_,
    }


def effect(**values: str) -> dict[str, str]:
    return {
        f'{PREFIX}backend_effect{{backend="native",effect="{name}"}}': value
        for name, value in values.items()
    }


LOOKED = f"{PREFIX}charm_last_reconcile_timestamp_seconds"
STUCK = f"{PREFIX}audit_stuck_pods"

CASES = [
    Case("a-replica-answers", "NoReadyReplica", False, up("webhook-service", "1x120")),
    Case("no-replica-answers", "NoReadyReplica", True, up("webhook-service", "0x120")),
    Case("nothing-is-scraped", "NoReadyReplica", True, {}),
    Case("answers-again-in-time", "NoReadyReplica", False, up("webhook-service", "1x55 0x4 1x60")),
    Case("one-replica-is-down", "ReplicaDown", True, up("webhook-replica", "0x120")),
    Case("replicas-are-up", "ReplicaDown", False, up("webhook-replica", "1x120")),
    Case("the-service-is-no-replica", "ReplicaDown", False, up("webhook-service", "0x120")),
    Case("ends-in-twenty-days", "CertificateNearExpiry", True, expiry(20), at=90),
    Case("ends-in-three-months", "CertificateNearExpiry", False, expiry(90), at=90),
    Case("ended-already", "CertificateNearExpiry", True, expiry(0.01), at=90),
    Case("reviews-fail", "ReviewsFailing", True, reviews("error", "0+2x120")),
    Case("pods-cannot-be-read", "ReviewsFailing", True, reviews("unreadable", "0+1x120")),
    Case("reviews-change-pods", "ReviewsFailing", False, reviews("needs-remedy", "0+9x120")),
    Case("they-failed-long-ago", "ReviewsFailing", False, reviews("error", "0+2x20 40x100")),
    Case("reviews-are-slow", "ReviewsSlow", True, latency("0+90x120", "0+100x120")),
    Case("reviews-are-fast", "ReviewsSlow", False, latency("0+100x120", "0+100x120")),
    Case("there-are-no-reviews", "ReviewsSlow", False, latency("5x120", "5x120")),
    Case("no-effect", "BackendNotInEffect", True, effect(arrives="0x120", missing="1x120")),
    Case("cannot-act", "BackendNotInEffect", True, effect(arrives="0x120", failed="1x120")),
    Case("in-effect", "BackendNotInEffect", False, effect(arrives="1x120", missing="0x120")),
    Case("nothing-to-show", "BackendNotInEffect", False, effect(unverified="1x120")),
    Case("comes-into-effect", "BackendNotInEffect", False, effect(missing="1x10 0x110"), at=20),
    Case("pods-are-stuck", "PodsCutOff", True, {STUCK: "3x120"}),
    Case("no-pod-is-stuck", "PodsCutOff", False, {STUCK: "0x120"}),
    Case("they-were-stuck", "PodsCutOff", False, {STUCK: "3x20 0x100"}),
    Case("it-looks", "CharmSilent", False, {LOOKED: "0+300x500"}, at=300),
    Case("it-looked-last-at-start", "CharmSilent", True, {LOOKED: "0x500"}, at=300),
    Case("its-exporter-is-gone", "CharmSilent", True, {LOOKED: "0+60x60 _x400"}, at=300),
]


@pytest.fixture(scope="module")
def rules(promtool: Path) -> dict[str, Any]:
    """The rules as the requirer evaluates them: with the topology injected."""
    injected: Any = copy.deepcopy(alert_rules(EVERYTHING, TOPOLOGY))
    for group in injected["groups"]:
        for rule in group["rules"]:
            for label in OURS:
                assert rule["labels"][label] == OURS[label]
            rule["expr"] = with_labels(promtool, rule["expr"])
    return injected


@cache
def with_labels(promtool: Path, expression: str) -> str:
    for name, value in OURS.items():
        command = ["promql", "label-matchers", "set", expression, name, value]
        expression = run(promtool, "--experimental", *command).strip()
    return expression


def run(promtool: Path, *arguments: str | Path) -> str:
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def labelled(series: Mapping[str, str], labels: Mapping[str, str]) -> list[dict[str, str]]:
    """The series in promtool's notation, with more labels."""
    more = ",".join(f'{name}="{value}"' for name, value in labels.items())
    found = []
    for name, values in series.items():
        metric, _, rest = name.rstrip("}").partition("{")
        found.append({"series": f"{metric}{{{','.join(filter(None, (rest, more)))}}}"})
        found[-1]["values"] = values
    return found


def firing(alert: str, at: int, fires: bool) -> dict[str, Any]:
    """A question to promtool: how many alerts fire at a minute."""
    name = f'alertname="IstioInitEgress{alert}"'
    return {
        "expr": f'count(ALERTS{{{name},alertstate="firing"}})',
        "eval_time": f"{at}m",
        "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
    }


def evaluate(
    promtool: Path, folder: Path, rules: Mapping[str, Any], tests: Sequence[Mapping[str, Any]]
) -> None:
    (folder / "our.rules").write_text(yaml.safe_dump(rules))
    document = {
        "rule_files": ["our.rules"],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", **test} for test in tests],
    }
    (folder / "test.yaml").write_text(yaml.safe_dump(document))
    run(promtool, "test", "rules", folder / "test.yaml")


def test_prometheus_takes_the_rules_as_they_are_written_to_the_relation(
    promtool: Path, tmp_path: Path
) -> None:
    (tmp_path / "our.rules").write_text(yaml.safe_dump(alert_rules(EVERYTHING, TOPOLOGY)))
    run(promtool, "check", "rules", "--lint=all", "--lint-fatal", tmp_path / "our.rules")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_an_alert_fires_when_it_must_and_only_then(
    case: Case, rules: dict[str, Any], promtool: Path, tmp_path: Path
) -> None:
    series = labelled(case.series, OURS)
    question = firing(case.alert, case.at, case.fires)
    evaluate(promtool, tmp_path, rules, [{"input_series": series, "promql_expr_test": [question]}])


def test_what_happens_to_another_application_is_none_of_ours(
    rules: dict[str, Any], promtool: Path, tmp_path: Path
) -> None:
    tests = [
        {
            "input_series": labelled(case.series, THEIRS),
            "promql_expr_test": [firing(case.alert, case.at, fires=False)],
        }
        for case in CASES
        # What is absent is absent, whatever others have.
        if case.fires and case.alert not in ("NoReadyReplica", "CharmSilent")
    ]
    assert tests
    evaluate(promtool, tmp_path, rules, tests)


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    groups: Any = alert_rules(EVERYTHING, TOPOLOGY)["groups"]
    names = {rule["alert"].removeprefix("IstioInitEgress") for g in groups for rule in g["rules"]}
    assert {case.alert for case in CASES if case.fires} == names
    assert {case.alert for case in CASES if not case.fires} == names


def test_an_alert_says_which_replica_and_what_helps(
    rules: dict[str, Any], promtool: Path, tmp_path: Path
) -> None:
    labels = {**TOPOLOGY.label_matcher_dict, "replica": "a", "severity": "warning"}
    expected = {
        "exp_labels": labels,
        "exp_annotations": {
            "summary": "The webhook's certificate expires soon and was not renewed.",
            "description": "The certificate that a serves expires in 19d 22h 30m 0s. After that"
            " the API server cannot call it, and Pods are created without the remedy. Run juju run"
            " egress/leader rotate-certificates.",
        },
    }
    question = {
        "eval_time": "90m",
        "alertname": "IstioInitEgressCertificateNearExpiry",
        "exp_alerts": [expected],
    }
    series = labelled(expiry(20), OURS)
    evaluate(promtool, tmp_path, rules, [{"input_series": series, "alert_rule_test": [question]}])
