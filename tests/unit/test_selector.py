"""Label selectors: kubectl's grammar, what matches, and how they are written to a manifest."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from init_egress.rule.selector import EVERYTHING, EXAMPLE, Operator, Requirement, Selector, parse

IN, NOT_IN = Operator.IN, Operator.NOT_IN
EXISTS, DOES_NOT_EXIST = Operator.EXISTS, Operator.DOES_NOT_EXIST


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("team=ml", Requirement("team", IN, ("ml",)), id="equal"),
        pytest.param("team==ml", Requirement("team", IN, ("ml",)), id="equal-twice"),
        pytest.param("team = ml", Requirement("team", IN, ("ml",)), id="equal-with-spaces"),
        pytest.param("team=", Requirement("team", IN, ("",)), id="equal-empty"),
        pytest.param("team!=ml", Requirement("team", NOT_IN, ("ml",)), id="not-equal"),
        pytest.param("team != ml", Requirement("team", NOT_IN, ("ml",)), id="not-equal-spaces"),
        pytest.param("team!=", Requirement("team", NOT_IN, ("",)), id="not-equal-empty"),
        pytest.param("team in (ml)", Requirement("team", IN, ("ml",)), id="in-one"),
        pytest.param("team in (ml,web)", Requirement("team", IN, ("ml", "web")), id="in-two"),
        pytest.param("team in( ml , web )", Requirement("team", IN, ("ml", "web")), id="in-space"),
        pytest.param("team in (ml,)", Requirement("team", IN, ("ml", "")), id="in-empty-too"),
        pytest.param("team notin (ml)", Requirement("team", NOT_IN, ("ml",)), id="notin"),
        pytest.param("team\tnotin\t(a,b)", Requirement("team", NOT_IN, ("a", "b")), id="tabs"),
        pytest.param("team", Requirement("team", EXISTS), id="exists"),
        pytest.param(" team ", Requirement("team", EXISTS), id="exists-with-spaces"),
        pytest.param("!team", Requirement("team", DOES_NOT_EXIST), id="does-not-exist"),
        pytest.param("! team", Requirement("team", DOES_NOT_EXIST), id="does-not-exist-space"),
        pytest.param("in", Requirement("in", EXISTS), id="a-key-named-in"),
        pytest.param("notin in (in)", Requirement("notin", IN, ("in",)), id="keywords-as-names"),
        pytest.param(
            "serving.kserve.io/inferenceservice",
            Requirement("serving.kserve.io/inferenceservice", EXISTS),
            id="key-with-prefix",
        ),
        pytest.param("A.b_c-D=X.y_z-0", Requirement("A.b_c-D", IN, ("X.y_z-0",)), id="any-sign"),
        pytest.param(f"{'k' * 63}={'v' * 63}", Requirement("k" * 63, IN, ("v" * 63,)), id="63"),
    ],
)
def test_a_condition_in_kubectls_syntax_is_read(text: str, expected: Requirement) -> None:
    assert parse(text) == Selector((expected,))


@pytest.mark.parametrize("text", ["", " ", "\t\n"])
def test_no_condition_selects_everything(text: str) -> None:
    assert parse(text) == EVERYTHING
    assert EVERYTHING.matches({})
    assert EVERYTHING.matches({"any": "thing"})
    assert EVERYTHING.expressions() == []


def test_conditions_are_separated_by_commas_outside_parentheses() -> None:
    found = parse("team=ml,tier in (train,serve) , !legacy,stage notin (dev,test),canary")
    assert [(r.key, r.operator) for r in found.requirements] == [
        ("team", IN),
        ("tier", IN),
        ("legacy", DOES_NOT_EXIST),
        ("stage", NOT_IN),
        ("canary", EXISTS),
    ]
    assert found.requirements[1].values == ("train", "serve")


def test_the_example_is_a_selector() -> None:
    assert len(parse(EXAMPLE).requirements) == 3


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        pytest.param("-team=ml", "'-team'", id="key-starts-with-dash"),
        pytest.param("team-=ml", "'team-'", id="key-ends-with-dash"),
        pytest.param("a b", "'a b'", id="key-with-space"),
        pytest.param("Pre.fix/name", "'Pre.fix/name'", id="prefix-upper-case"),
        pytest.param("/name", "'/name'", id="prefix-empty"),
        pytest.param("a/b/c", "'a/b/c'", id="two-slashes"),
        pytest.param("prefix/", "'prefix/'", id="name-empty"),
        pytest.param("téam=ml", "'téam'", id="key-not-ascii"),
        pytest.param("k" * 64, f"'{'k' * 64}'", id="key-of-64"),
        pytest.param(f"{'p' * 254}/k", f"'{'p' * 254}/k'", id="prefix-of-254"),
        pytest.param("team=m l", "'team=m l'", id="value-with-space"),
        pytest.param("team=-ml", "'-ml'", id="value-starts-with-dash"),
        pytest.param(f"team={'v' * 64}", f"'{'v' * 64}'", id="value-of-64"),
        pytest.param("team=ml=web", "'ml=web'", id="two-equals"),
        pytest.param("team===ml", "'=ml'", id="three-equals"),
        pytest.param("team=!ml", "'!ml'", id="equals-not"),
        pytest.param('team="ml"', "'\"ml\"'", id="quotes"),
        pytest.param("tier in (a b)", "'a b'", id="values-without-comma"),
        pytest.param("tier in (a,b/c)", "'b/c'", id="one-value-of-two"),
        pytest.param("tier in a", "'tier in a'", id="no-parentheses"),
        pytest.param("tier in (a", "'tier in (a'", id="not-closed"),
        pytest.param("tier IN (a)", "'tier IN (a)'", id="operator-upper-case"),
        pytest.param("tier in (a) b", "'tier in (a) b'", id="more-behind"),
        pytest.param("tier in ((a))", "'tier in ((a))'", id="parentheses-twice"),
        pytest.param("size>1", "'size>1'", id="greater"),
        pytest.param("size<1", "'size<1'", id="less"),
        pytest.param("!", "''", id="not-nothing"),
        pytest.param("!team=ml", "'team=ml'", id="not-equal-the-wrong-way"),
        pytest.param("=ml", "'=ml'", id="no-key"),
        pytest.param("team,=ml", "'=ml'", id="second-condition"),
    ],
)
def test_what_is_no_selector_is_refused_and_the_wrong_part_quoted(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=r"label|condition") as caught:
        parse(text)
    assert wrong in str(caught.value)


@pytest.mark.parametrize("text", [",", "team,", ",team", "team,,tier", "team, ,tier"])
def test_an_empty_condition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="condition is empty"):
        parse(text)


def test_only_the_wrong_condition_is_quoted() -> None:
    with pytest.raises(ValueError, match="no label") as caught:
        parse("team=ml,tier in (a b)")
    assert "team" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        pytest.param("team=ml", {"team": "ml"}, True, id="in-same"),
        pytest.param("team=ml", {"team": "web"}, False, id="in-other"),
        pytest.param("team=ml", {}, False, id="in-absent"),
        pytest.param("team=", {}, False, id="in-empty-absent"),
        pytest.param("team=", {"team": ""}, True, id="in-empty-empty"),
        pytest.param("team in (ml,web)", {"team": "web"}, True, id="in-second"),
        pytest.param("team!=ml", {"team": "ml"}, False, id="notin-same"),
        pytest.param("team!=ml", {"team": "web"}, True, id="notin-other"),
        pytest.param("team!=ml", {}, True, id="notin-absent"),
        pytest.param("team notin (ml,web)", {"team": "web"}, False, id="notin-second"),
        pytest.param("team", {"team": ""}, True, id="exists-empty"),
        pytest.param("team", {"Team": "ml"}, False, id="exists-case"),
        pytest.param("!team", {}, True, id="does-not-exist-absent"),
        pytest.param("!team", {"team": ""}, False, id="does-not-exist-empty"),
        pytest.param("team,!legacy", {"team": "ml"}, True, id="all-hold"),
        pytest.param("team,!legacy", {"team": "ml", "legacy": ""}, False, id="one-does-not"),
    ],
)
def test_labels_match_as_in_kubernetes(text: str, labels: dict[str, str], expected: bool) -> None:
    assert parse(text).matches(labels) is expected


def test_a_selector_is_written_as_match_expressions() -> None:
    assert parse("team=ml,tier!=web,stage in (dev,),canary,!legacy").expressions() == [
        {"key": "team", "operator": "In", "values": ["ml"]},
        {"key": "tier", "operator": "NotIn", "values": ["web"]},
        {"key": "stage", "operator": "In", "values": ["dev", ""]},
        {"key": "canary", "operator": "Exists"},
        {"key": "legacy", "operator": "DoesNotExist"},
    ]


_name = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,8}[A-Za-z0-9])?", fullmatch=True)
_key = _name | st.builds("{}/{}".format, st.sampled_from(["a", "example.com", "x-0.y"]), _name)
_values = st.lists(_name | st.just(""), min_size=1, max_size=3).map(tuple)
_requirement = st.builds(Requirement, _key, st.sampled_from([IN, NOT_IN]), _values) | st.builds(
    Requirement, _key, st.sampled_from([EXISTS, DOES_NOT_EXIST])
)
_selector = st.lists(_requirement, max_size=3).map(tuple).map(Selector)


@settings(deadline=None, database=None)
@given(_selector)
def test_what_is_written_is_read_again_as_the_same_selector(selector: Selector) -> None:
    assert parse(str(selector)) == selector


@settings(deadline=None, database=None, max_examples=300)
@given(st.text(st.sampled_from("ab-./=!,()<> in\tnot\"'é"), max_size=20))
def test_any_text_is_a_selector_or_a_value_error(text: str) -> None:
    try:
        found = parse(text)
    except ValueError:
        return
    assert parse(str(found)) == found
