"""The options: what is accepted, in what form it is kept, and what is said of what is not."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import replace
from enum import Enum

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from init_egress.config import (
    BackendChoice,
    Config,
    ConfigError,
    FailurePolicy,
    PolicyKind,
    Problem,
    Settings,
)
from init_egress.rule import selector
from init_egress.rule.policy import ExistingAnnotation, Policy, RemedyKind


def problems(**options: str) -> tuple[Problem, ...]:
    """What is wrong with these options, the others at their defaults."""
    with pytest.raises(ConfigError) as caught:
        Config.from_options({k.replace("_", "-"): v for k, v in options.items()}).settings()
    return caught.value.problems


def problem(**options: str) -> Problem:
    """The only thing wrong with these options."""
    found = problems(**options)
    assert len(found) == 1
    return found[0]


def ranges(text: str) -> tuple[str, ...]:
    return Config(exclude_outbound_ip_ranges=text).settings().policy.ranges


def test_the_defaults_are_valid() -> None:
    assert Config().settings() == Settings(
        backend=BackendChoice.AUTO,
        policy=Policy(
            remedy=RemedyKind.EXCLUDE_IP_RANGES,
            ranges=("0.0.0.0/0", "::/0"),
            ports=(),
            existing=ExistingAnnotation.MERGE,
            ignored=("volume-permissions", "init-chown-data"),
        ),
        kyverno_kind=PolicyKind.AUTO,
        mesh_namespace="",
        failure_policy=FailurePolicy.IGNORE,
        notes=(),
    )


# --- Ranges --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("10.0.0.0/8", ("10.0.0.0/8",), id="one"),
        pytest.param("0.0.0.0/0,::/0", ("0.0.0.0/0", "::/0"), id="both-families"),
        pytest.param("::/0,0.0.0.0/0", ("::/0", "0.0.0.0/0"), id="order-kept"),
        pytest.param("203.0.113.7/32", ("203.0.113.7/32",), id="one-address"),
        pytest.param("2001:db8::1/128", ("2001:db8::1/128",), id="one-address-v6"),
        pytest.param("FD00::/8", ("fd00::/8",), id="lower-case"),
        pytest.param("fd00:0:0:0:0:0:0:0/8", ("fd00::/8",), id="shortened"),
        pytest.param("2001:0db8::/32", ("2001:db8::/32",), id="zeros-in-v6"),
        pytest.param("10.0.0.0/8,10.0.0.0/8", ("10.0.0.0/8",), id="repeated"),
        pytest.param("FD00::/8,fd00::/8", ("fd00::/8",), id="repeated-in-other-letters"),
        pytest.param("10.0.0.0/8,10.1.0.0/16", ("10.0.0.0/8", "10.1.0.0/16"), id="overlapping"),
    ],
)
def test_ranges_are_kept_in_canonical_form(text: str, expected: tuple[str, ...]) -> None:
    found = Config(exclude_outbound_ip_ranges=text).settings()
    assert found.policy.ranges == expected
    assert found.notes == ()


@pytest.mark.parametrize(
    ("text", "kept"),
    [("10.1.2.3/8", "10.0.0.0/8"), ("fd00::1/64", "fd00::/64"), ("1.2.3.4/0", "0.0.0.0/0")],
)
def test_host_bits_are_cleared_and_a_note_says_so(text: str, kept: str) -> None:
    found = Config(exclude_outbound_ip_ranges=text).settings()
    assert found.policy.ranges == (kept,)
    assert len(found.notes) == 1
    assert text in found.notes[0]
    assert kept in found.notes[0]


def test_ranges_that_become_the_same_are_kept_once() -> None:
    assert ranges("10.1.2.3/8,10.0.0.0/8") == ("10.0.0.0/8",)


@pytest.mark.parametrize(
    ("element", "offending"),
    [
        pytest.param("010.0.0.0/8", "010.0.0.0", id="leading-zero"),
        pytest.param("10.0.0/8", "10.0.0", id="three-octets"),
        pytest.param("10.0.0.256/8", "10.0.0.256", id="octet-of-256"),
        pytest.param("167772160/8", "167772160", id="number"),
        pytest.param("0x0a000000/8", "0x0a000000", id="hexadecimal"),
        pytest.param("fd00:::/8", "fd00:::", id="three-colons"),
        pytest.param("[fd00::]/8", "[fd00::]", id="brackets"),
        pytest.param("example.com/8", "example.com", id="host-name"),
        pytest.param("/8", "'/8'", id="no-address"),
        pytest.param("10.0.0.0/33", "33", id="33-bits"),
        pytest.param("fd00::/129", "129", id="129-bits"),
        pytest.param("10.0.0.0/08", "08", id="zero-before-bits"),
        pytest.param("10.0.0.0/+8", "+8", id="sign-before-bits"),
        pytest.param("10.0.0.0/-8", "-8", id="negative-bits"),
        pytest.param("10.0.0.0/", "10.0.0.0/", id="no-bits"),
        pytest.param("10.0.0.0/8/8", "8/8", id="two-slashes"),
        pytest.param("10.0.0.0/255.0.0.0", "255.0.0.0", id="netmask"),
        pytest.param("10.0.0.0/0.255.255.255", "0.255.255.255", id="hostmask"),
        pytest.param("10.0.0.0/\u0668", "\u0668", id="digit-of-another-script"),
        pytest.param("fe80::1%eth0/64", "fe80::1%eth0/64", id="zone"),
        pytest.param("10.0.0.0-10.0.0.9", "10.0.0.0-10.0.0.9", id="from-to"),
        pytest.param("10.0.0.0/8;11.0.0.0/8", "8;11.0.0.0/8", id="semicolon"),
        pytest.param('"10.0.0.0/8"', '"10.0.0.0', id="quotes"),
    ],
)
def test_what_istio_would_refuse_as_a_range_is_refused_here(element: str, offending: str) -> None:
    found = problem(exclude_outbound_ip_ranges=f"fd00::/8,{element}")
    assert found.option == "exclude-outbound-ip-ranges"
    assert offending in found.reason
    assert "fd00::/8" not in found.reason


@pytest.mark.parametrize(
    ("element", "remedy"),
    [("10.1.2.3", "10.1.2.3/32"), ("2001:db8::1", "2001:db8::1/128"), ("*", "0.0.0.0/0,::/0")],
)
def test_a_bare_address_or_a_star_is_refused_with_what_to_write(element: str, remedy: str) -> None:
    found = problem(exclude_outbound_ip_ranges=element)
    assert element in found.reason
    assert remedy in found.reason
    assert ranges(remedy)


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.0/8, fd00::/8",
        " 10.0.0.0/8",
        "10.0.0.0/8 ",
        "10.0.0.0 /8",
        "10.0.0.0/8\n",
        "10.0.0.0/8\t,fd00::/8",
        "10.0.0.0/8,\u00a0fd00::/8",
    ],
)
def test_a_space_anywhere_in_the_ranges_is_refused(text: str) -> None:
    assert "space" in problem(exclude_outbound_ip_ranges=text).reason


@pytest.mark.parametrize(
    "option", ["exclude_outbound_ip_ranges", "exclude_outbound_ports", "ignore_init_containers"]
)
@pytest.mark.parametrize("text", [",{0}", "{0},", "{0},,{0}", "{0}, ,{0}"])
def test_an_empty_element_of_a_list_is_refused(option: str, text: str) -> None:
    valid = {"exclude_outbound_ports": "443", "ignore_init_containers": "chown"}
    found = problem(**{option: text.format(valid.get(option, "10.0.0.0/8"))})
    assert found.option == option.replace("_", "-")
    assert "empty" in found.reason


def test_only_a_space_as_ranges_is_no_empty_option() -> None:
    assert problem(exclude_outbound_ip_ranges=" ").option == "exclude-outbound-ip-ranges"


_address = st.ip_addresses().map(str)
_elements = st.one_of(
    st.builds("{}/{}".format, _address, st.integers(0, 130)),
    st.builds("{}/{}".format, st.ip_addresses(v=4), st.integers(0, 32)),
    st.builds("{}/{}".format, st.ip_addresses(v=6), st.integers(0, 128)),
    _address,
    st.text(st.sampled_from("0123456789abcdef.:/%* ,\t"), max_size=12),
)


def istio_accepts(value: str) -> bool:
    """Istio's check of a list of ranges, strictly: no trimming, `address/bits`, nothing else."""
    for element in value.split(","):
        found = re.fullmatch(r"([0-9a-f:.]+)/(0|[1-9][0-9]{0,2})", element, re.ASCII)
        if not found:
            return False
        try:
            address = ipaddress.ip_address(found[1])
        except ValueError:
            return False
        if int(found[2]) > address.max_prefixlen:
            return False
    return True


@settings(deadline=None, database=None, max_examples=300)
@given(st.lists(_elements, min_size=1, max_size=3).map(",".join))
@example("::ffff:10.0.0.1/104")
@example("0.0.0.0/0,::/0")
def test_ranges_that_are_accepted_are_accepted_by_istio_and_canonical(text: str) -> None:
    try:
        kept = Config(exclude_outbound_ip_ranges=text, exclude_outbound_ports="443").settings()
    except ConfigError:
        return
    written = ",".join(kept.policy.ranges)
    if not text:
        assert written == ""
        return
    assert istio_accepts(written)
    again = Config(exclude_outbound_ip_ranges=written).settings()
    assert again.policy.ranges == kept.policy.ranges
    assert again.notes == ()
    was = {ipaddress.ip_interface(element).network for element in text.split(",")}
    assert {ipaddress.ip_network(element) for element in kept.policy.ranges} == was


# --- Ports ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("443", ("443",), id="one"),
        pytest.param("443,5432", ("443", "5432"), id="two"),
        pytest.param("5432,443", ("5432", "443"), id="order-kept"),
        pytest.param("1,65535", ("1", "65535"), id="limits"),
        pytest.param("443,443", ("443",), id="repeated"),
    ],
)
def test_ports_are_accepted(text: str, expected: tuple[str, ...]) -> None:
    assert Config(exclude_outbound_ports=text).settings().policy.ports == expected


@pytest.mark.parametrize(
    "element",
    [
        "0",
        "65536",
        "-1",
        "+443",
        "0443",
        "443.0",
        "https",
        "*",
        "80-90",
        "1e3",
        "\u0664",
        "999999",
    ],
)
def test_what_is_no_port_is_refused(element: str) -> None:
    found = problem(exclude_outbound_ports=f"5432,{element}")
    assert found.option == "exclude-outbound-ports"
    assert repr(element) in found.reason
    assert "5432" not in found.reason


@pytest.mark.parametrize("text", ["443, 5432", " 443", "443 ", "44 3", "443\n"])
def test_a_space_anywhere_in_the_ports_is_refused(text: str) -> None:
    assert "space" in problem(exclude_outbound_ports=text).reason


def test_ranges_may_be_empty_if_ports_are_given() -> None:
    found = Config(exclude_outbound_ip_ranges="", exclude_outbound_ports="443").settings()
    assert found.policy.ranges == ()
    assert found.policy.ports == ("443",)


@pytest.mark.parametrize("remedy", list(RemedyKind), ids=lambda r: r.value)
def test_ranges_and_ports_both_empty_are_an_error(remedy: RemedyKind) -> None:
    found = problem(exclude_outbound_ip_ranges="", remedy=remedy.value)
    assert found.option == "exclude-outbound-ip-ranges"
    assert "exclude-outbound-ports" in found.reason
    assert "both empty" in found.reason


# --- Choices, names, selectors -------------------------------------------------------------------

CHOICES: dict[str, type[Enum]] = {
    "backend": BackendChoice,
    "remedy": RemedyKind,
    "existing_annotation": ExistingAnnotation,
    "kyverno_policy_kind": PolicyKind,
    "failure_policy": FailurePolicy,
}


@pytest.mark.parametrize(
    ("option", "choice"), [(option, choice) for option in CHOICES for choice in CHOICES[option]]
)
def test_a_known_choice_is_accepted(option: str, choice: Enum) -> None:
    found = Config.from_options({option.replace("_", "-"): choice.value}).settings()
    chosen = {
        "backend": found.backend,
        "remedy": found.policy.remedy,
        "existing_annotation": found.policy.existing,
        "kyverno_policy_kind": found.kyverno_kind,
        "failure_policy": found.failure_policy,
    }
    assert chosen[option] is choice


@pytest.mark.parametrize("option", CHOICES)
@pytest.mark.parametrize("value", ["", "none", "AUTO", " {0}", "{0} ", "{0}\n", "{0},{0}"])
def test_an_unknown_choice_is_refused_and_the_known_ones_are_named(
    option: str, value: str
) -> None:
    wrong = value.format(next(iter(CHOICES[option])).value)
    found = problem(**{option: wrong})
    assert found.option == option.replace("_", "-")
    assert repr(wrong) in found.reason
    assert all(known.value in found.reason for known in CHOICES[option])


@pytest.mark.parametrize("name", ["a", "istio-system", "kubeflow", "0-9", "n" * 63])
def test_a_name_of_a_namespace_is_accepted(name: str) -> None:
    assert Config(mesh_namespace=name).settings().mesh_namespace == name


@pytest.mark.parametrize(
    "name", ["-a", "a-", "A", "a.b", "a_b", "a b", " a", "a\n", "n" * 64, "é", "a/b", "a,b"]
)
def test_what_is_no_name_of_a_namespace_is_refused(name: str) -> None:
    found = problem(mesh_namespace=name)
    assert found.option == "mesh-namespace"
    assert repr(name) in found.reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("chown", ("chown",)),
        ("b,a", ("b", "a")),
        ("a,a", ("a",)),
        ("0", ("0",)),
        ("n" * 63, ("n" * 63,)),
    ],
)
def test_names_of_containers_are_accepted(text: str, expected: tuple[str, ...]) -> None:
    assert Config(ignore_init_containers=text).settings().policy.ignored == expected


@pytest.mark.parametrize("name", ["-a", "a-", "A", "a.b", "a_b", "*", "init-*", "n" * 64, "é"])
def test_what_is_no_name_of_a_container_is_refused(name: str) -> None:
    found = problem(ignore_init_containers=f"chown,{name}")
    assert found.option == "ignore-init-containers"
    assert repr(name) in found.reason


@pytest.mark.parametrize("text", ["a, b", " a", "a ", "a\n"])
def test_a_space_among_names_of_containers_is_refused(text: str) -> None:
    assert "space" in problem(ignore_init_containers=text).reason


def test_selectors_are_read() -> None:
    found = Config(namespace_selector="team=ml", pod_selector="!legacy").settings().policy
    assert found.namespaces == selector.parse("team=ml")
    assert found.pods == selector.parse("!legacy")


@pytest.mark.parametrize("option", ["namespace_selector", "pod_selector"])
def test_what_is_no_selector_is_refused(option: str) -> None:
    found = problem(**{option: "team=ml,tier in a"})
    assert found.option == option.replace("_", "-")
    assert "tier in a" in found.reason


# --- What is said --------------------------------------------------------------------------------

WRONG = {
    "backend": "magic",
    "remedy": "prayer",
    "exclude_outbound_ip_ranges": "10.0.0.0/33",
    "exclude_outbound_ports": "https",
    "ignore_init_containers": "A",
    "existing_annotation": "drop",
    "kyverno_policy_kind": "Policy",
    "namespace_selector": "a b",
    "pod_selector": "c d",
    "mesh_namespace": "E",
    "failure_policy": "maybe",
    "webhook_replicas": "10",
}


def test_every_option_has_a_wrong_value_here() -> None:
    assert set(WRONG) == set(Config.__dataclass_fields__)


def test_all_faults_are_reported_at_once() -> None:
    found = problems(**WRONG)
    assert {p.option for p in found} == {option.replace("_", "-") for option in WRONG}
    assert len(found) == len(WRONG)


def test_all_faults_of_one_option_are_reported_at_once() -> None:
    found = problems(exclude_outbound_ip_ranges="10.0.0.0/33,fd00::/8,*,1.2.3.4")
    assert ["/33" in found[0].reason, "*" in found[1].reason, "1.2.3.4" in found[2].reason] == [
        True
    ] * 3


@pytest.mark.parametrize("option", WRONG)
def test_the_message_names_the_option_the_element_and_a_correct_example(option: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_options({option.replace("_", "-"): WRONG[option]}).settings()
    message, name = str(caught.value), option.replace("_", "-")
    assert message.startswith(f"{name}: ")
    assert WRONG[option].partition("/")[0] in message
    assert f"for example {name}=" in message
    assert "\n" not in message


@pytest.mark.parametrize("option", WRONG)
def test_the_example_is_valid(option: str) -> None:
    text = problem(**{option: WRONG[option]}).example.strip("'")
    assert Config.from_options({option.replace("_", "-"): text}).settings()


def test_an_example_stands_once_however_many_faults_its_option_has() -> None:
    with pytest.raises(ConfigError) as caught:
        Config(exclude_outbound_ip_ranges="*,1.2.3.4", exclude_outbound_ports="x").settings()
    assert str(caught.value).count("for example exclude-outbound-ip-ranges=") == 1
    assert str(caught.value).count("for example exclude-outbound-ports=") == 1


def test_an_unknown_option_is_named_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"colour: no such option; there are backend, remedy"):
        Config.from_options({"colour": "blue"})


def test_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"webhook-replicas: 'two' is no number"):
        Config.from_options({"webhook-replicas": "two"})


def test_the_rule_options_read_again_are_the_same_policy() -> None:
    found = Config(
        exclude_outbound_ports="443",
        pod_selector="a=b,!c,d in (e,f)",
        remedy="proxy-group",
        existing_annotation="keep",
    ).settings()
    assert Config.from_options(found.options()).settings().policy == found.policy


HOSTILE = (
    '"',
    "'",
    "\\",
    "\n",
    "`",
    "{{",
    "}}",
    "{%",
    ": ",
    " #",
    "]",
    ")",
    '" || true || "',
    "'\n- op: remove",
    "\n---\nkind: Pod",
    "$(HOME)",
)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(
    "option",
    [
        "exclude_outbound_ip_ranges",
        "exclude_outbound_ports",
        "ignore_init_containers",
        "mesh_namespace",
        "existing_annotation",
        "remedy",
        "failure_policy",
        "kyverno_policy_kind",
        "backend",
    ],
)
def test_no_sign_that_means_something_in_yaml_or_cel_gets_past_the_settings(
    option: str, text: str
) -> None:
    for value in (text, f"a{text}b", f"443{text}", f"10.0.0.0/8{text}"):
        with pytest.raises(ValueError, match=option.replace("_", "-")):
            replace(Config(), **{option: value}).settings()
