"""Texts into values, held to what Go's flag package reads and refuses."""

import pytest

from kvstore.config.flags import BY_NAME, FEATURE_GATES, FLAGS, OURS, FlagKind
from kvstore.config.values import (
    default_value,
    parse_bool,
    parse_duration,
    parse_feature_gates,
    parse_int,
    parse_uint,
    parse_urls,
    parse_value,
)


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_true(text: str) -> None:
    assert parse_bool(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_false(text: str) -> None:
    assert parse_bool(text) is False


@pytest.mark.parametrize("text", ["", "yes", "no", "on", "tRUE", " true", "2"])
def test_not_a_boolean(text: str) -> None:
    with pytest.raises(ValueError, match="not a boolean"):
        parse_bool(text)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("-0", 0),
        ("100ms", 100_000_000),
        ("5s", 5_000_000_000),
        ("1m30s", 90_000_000_000),
        ("2h0m0s", 7_200_000_000_000),
        ("1.5h", 5_400_000_000_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("10us", 10_000),
        ("10µs", 10_000),
        ("3ns", 3),
        ("-1m", -60_000_000_000),
        ("+1m", 60_000_000_000),
    ],
)
def test_durations(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize("text", ["", "5", "s", ".s", "5 s", "5S", "1d", "--1s", "+", "1s5"])
def test_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


def test_a_duration_has_a_limit() -> None:
    with pytest.raises(ValueError, match="292 years"):
        parse_duration("9999999999h")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("42", 42),
        ("-7", -7),
        ("+7", 7),
        ("0x10", 16),
        ("0o17", 15),
        ("017", 15),
        ("0b11", 3),
        ("1_000", 1000),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_numbers(text: str, number: int) -> None:
    assert parse_int(text) == number


@pytest.mark.parametrize("text", ["", " 1", "1 ", "1.0", "x", "08", "1e3"])
def test_not_a_number(text: str) -> None:
    with pytest.raises(ValueError, match="not a number"):
        parse_int(text)


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809"])
def test_signed_numbers_have_limits(text: str) -> None:
    with pytest.raises(ValueError, match="out of range"):
        parse_int(text)


def test_unsigned_numbers_have_limits() -> None:
    assert parse_uint("18446744073709551615") == 2**64 - 1
    with pytest.raises(ValueError, match="limit 18446744073709551615"):
        parse_uint("18446744073709551616")
    for text in ("-1", "+1"):
        with pytest.raises(ValueError, match="not a number from 0"):
            parse_uint(text)


def test_urls_come_sorted_and_once() -> None:
    assert parse_urls("http://b:2, http://a:1,http://b:2") == ("http://a:1", "http://b:2")
    assert parse_urls("") == ()
    assert parse_urls("http://[::1]:2379") == ("http://[::1]:2379",)
    assert parse_urls("unix://localhost:m1,unix:///run/kv") == (
        "unix:///run/kv",
        "unix://localhost:m1",
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("localhost:2379", "URL scheme must be"),
        ("ftp://a:1", "URL scheme must be"),
        ("http://a", "host:port"),
        ("http://a:1/", "must not contain a path"),
        ("http://a:1/x", "must not contain a path"),
        ("http://::1:2379", "host:port"),
        ("http://a:b", "port must be a number"),
        ("http://a:65536", "port must be a number"),
        ("http://a:1,", "URL scheme must be"),
        ("*", "URL scheme must be"),
    ],
)
def test_urls_that_cannot_be(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_urls(text)


def test_feature_gates() -> None:
    assert parse_feature_gates("") == FEATURE_GATES
    gates = parse_feature_gates("PriorityRequest=true, FastLeaseKeepAlive=0")
    changed = {name for name in gates if gates[name] != FEATURE_GATES[name]}
    assert changed == {"PriorityRequest", "FastLeaseKeepAlive"}
    gates = parse_feature_gates("CompactHashCheck=false,AllAlpha=true,AllBeta=false")
    assert gates["CompactHashCheck"] is False
    assert gates["LeaseCheckpoint"] is True
    assert gates["FastLeaseKeepAlive"] is False


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Nope=true", "unrecognized feature gate: Nope"),
        ("PriorityRequest", "missing bool value for PriorityRequest"),
        ("PriorityRequest=maybe", "invalid value of PriorityRequest=maybe"),
    ],
)
def test_feature_gates_that_cannot_be(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_feature_gates(text)


def test_the_table_has_every_flag_of_etcd_once() -> None:
    assert len(FLAGS) == len(BY_NAME)
    assert sum(flag.group != OURS for flag in FLAGS) == 113
    assert len({flag.environment_name for flag in FLAGS}) == len(FLAGS)
    assert all(flag.help and flag.help == flag.help.strip() for flag in FLAGS)
    assert all(bool(flag.choices) or flag.kind is not FlagKind.CHOICE for flag in FLAGS)


def test_every_default_is_a_value_of_its_kind() -> None:
    for flag in FLAGS:
        default_value(flag)


def test_the_star_is_for_flags_that_have_it_only() -> None:
    assert parse_value(BY_NAME["cors"], "*") == ("*",)
    with pytest.raises(ValueError, match="URL scheme"):
        parse_value(BY_NAME["listen-client-urls"], "*")


def test_a_list_of_choices_holds_each_to_them() -> None:
    flag = BY_NAME["v2-deprecation"]
    assert parse_value(flag, "gone,write-only") == ("gone", "write-only")
    with pytest.raises(ValueError, match="must be one of"):
        parse_value(flag, "gone,not-yet")


def test_our_own_flags_have_variables_of_our_own() -> None:
    assert BY_NAME["transport"].environment_name == "KVSTORE_TRANSPORT"
