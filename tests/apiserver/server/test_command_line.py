"""Flags are read as pflag reads them, with its texts; upstream's were asked for."""

import pytest

from kvstack.apiserver.server.settings.flags import BY_NAME, TABLE
from kvstack.component.flags.command_line import (
    CommandLine,
    UsageError,
    read_command_line,
    shown_value,
)


def read(*arguments: str) -> CommandLine:
    return read_command_line(arguments, "kube-apiserver", TABLE)


def test_ways_to_give_a_value() -> None:
    given = read("--secure-port=1", "--bind-address", "::1", "-v4", "--etcd_prefix=/a")
    assert given.values == {
        "secure-port": 1,
        "bind-address": "::1",
        "v": 4,
        "etcd-prefix": "/a",
    }
    assert read("-v", "5").values == read("-v=5").values == read("--v=5").values == {"v": 5}


def test_a_boolean_needs_no_value() -> None:
    assert read("--allow-privileged", "--anonymous-auth=false").values == {
        "allow-privileged": True,
        "anonymous-auth": False,
    }


def test_lists_and_maps_grow_and_others_are_replaced() -> None:
    given = read(
        "--etcd-servers=http://a,http://b",
        "--etcd-servers=http://c",
        "--runtime-config=a=true",
        "--runtime-config=b=false,a=false",
        "--service-account-issuer=x,y",
        "--service-account-issuer=z",
        "--secure-port=1",
        "--secure-port=2",
    )
    assert given["etcd-servers"] == ("http://a", "http://b", "http://c")
    assert given["runtime-config"] == {"a": "false", "b": "false"}
    assert given["service-account-issuer"] == ("x,y", "z")
    assert given["secure-port"] == 2


def test_a_flag_that_is_not_given_has_its_default() -> None:
    given = read()
    assert given["secure-port"] == 6443
    assert given["etcd-compaction-interval"] == 300_000_000_000
    assert given["anonymous-auth"] is True


def test_help_ends_the_reading() -> None:
    assert read("--help", "--nonsense").values == {"help": True}
    assert read("--version", "--nonsense").values == {"version": True}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--foo"], "unknown flag: --foo"),
        (["--foo=1"], "unknown flag: --foo"),
        (["-x"], "unknown shorthand flag: 'x' in -x"),
        (["---x"], "bad flag syntax: ---x"),
        (["--=x"], "bad flag syntax: --=x"),
        (["--etcd_servers"], "flag needs an argument: --etcd_servers"),
        (["extra"], '"kube-apiserver" does not take any arguments, got ["extra"]'),
        (["--", "-v", "x"], '"kube-apiserver" does not take any arguments, got ["-v" "x"]'),
        (
            ["--secure-port=abc"],
            'invalid argument "abc" for "--secure-port" flag: strconv.ParseInt: parsing "abc":'
            " invalid syntax",
        ),
        (
            ["--secure-port=9223372036854775808"],
            'invalid argument "9223372036854775808" for "--secure-port" flag: strconv.ParseInt:'
            ' parsing "9223372036854775808": value out of range',
        ),
        (
            ["--anonymous-auth=maybe"],
            'invalid argument "maybe" for "--anonymous-auth" flag: strconv.ParseBool: parsing'
            ' "maybe": invalid syntax',
        ),
        (
            ["-v=x"],
            'invalid argument "x" for "-v, --v" flag: strconv.ParseInt: parsing "x":'
            " invalid syntax",
        ),
        (
            ["--goaway-chance=x"],
            'invalid argument "x" for "--goaway-chance" flag: strconv.ParseFloat: parsing "x":'
            " invalid syntax",
        ),
        (
            ["--request-timeout=1"],
            'invalid argument "1" for "--request-timeout" flag: time: missing unit in duration "1"',
        ),
        (
            ["--bind-address=x"],
            'invalid argument "x" for "--bind-address" flag: failed to parse IP: "x"',
        ),
    ],
)
def test_what_cannot_be_read_is_reported_in_pflags_words(arguments: list[str], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(*arguments)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("--request-timeout=60s", "1m0s"),
        ("--etcd-servers=http://a,http://b", "[http://a,http://b]"),
        ("--anonymous-auth=0", "false"),
        ("--goaway-chance=0.01", "0.01"),
        ("--runtime-config=a=true,b=false", "a=true,b=false"),
        ("--secure-port=0x10", "16"),
        ("--etcd-prefix=/x", "/x"),
    ],
)
def test_values_are_shown_as_go_prints_them(argument: str, text: str) -> None:
    ((name, value),) = read(argument).values.items()
    assert shown_value(BY_NAME[name], value) == text
