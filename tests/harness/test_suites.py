"""The table of suites, and what CI makes of a skip."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

_CONFIGURATION = """
[pytest]
testpaths = a b c
markers = nightly
"""
_TESTS = """
import pytest

def test_passes():
    pass

@pytest.mark.parametrize("number", [1, 2])
def test_needs_something(number):
    pytest.skip("no root")

@pytest.mark.xfail(reason="not yet")
def test_of_a_known_bug():
    assert False
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project of three suites, of which the last has no tests, outside CI."""
    monkeypatch.delenv("CI", raising=False)
    pytester.makeini(_CONFIGURATION)
    for suite in ("a", "b"):
        pytester.mkpydir(suite).joinpath("test_it.py").write_text(_TESTS)
    return pytester


def test_the_table_says_what_ran_and_what_was_skipped_and_why(project: pytest.Pytester) -> None:
    result = _run(project)

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "suite  passed  failed  skipped   time",
            "a           1       0        3   0:00",
            "       2 skipped: no root",
            "       1 skipped: expected to fail: not yet",
            "b           1       0        3   0:00",
            "c      no test was selected",
        ]
    )


def test_the_table_of_a_part_shows_that_part_only(project: pytest.Pytester) -> None:
    result = _run(project, "b")

    result.stdout.fnmatch_lines(["b           1       0        3   0:00"])
    result.stdout.no_fnmatch_line("a  *")


def test_the_table_counts_what_was_not_selected(project: pytest.Pytester) -> None:
    module = project.path / "b" / "test_other.py"
    module.write_text("import pytest\n@pytest.mark.nightly\ndef test_is_slow(): pass\n")
    result = _run(project, "-m", "not nightly")

    result.stdout.fnmatch_lines(["b  *", "       1 not selected: -m 'not nightly'"])
    result.assert_outcomes(passed=2, skipped=4, xfailed=2, deselected=1)


def test_a_skip_fails_in_ci_and_says_why(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    result = _run(project, "a")

    result.assert_outcomes(passed=1, failed=2, xfailed=1)
    result.stdout.fnmatch_lines(["*this one was skipped: no root"])


def test_a_skipped_module_fails_in_ci_too(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    module = project.path / "b" / "test_other.py"
    module.write_text("import pytest\npytest.importorskip('no_such_module')\n")
    result = _run(project, "b/test_other.py")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*could not import 'no_such_module'*"])


def test_a_test_that_belongs_to_no_suite_may_skip_in_ci(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    project.mkpydir("elsewhere").joinpath("test_it.py").write_text(_TESTS)
    result = _run(project, "elsewhere")

    result.assert_outcomes(passed=1, skipped=2, xfailed=1)
    result.stdout.no_fnmatch_line("suite  *")


def _run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest_inprocess("-p", "tests.suites", *arguments)
