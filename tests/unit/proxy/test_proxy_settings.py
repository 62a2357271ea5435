"""Flags of the gRPC proxy: etcd's names, what they give, and what is refused with its words."""

import re
import subprocess

import pytest

from kvstack.component.errors import ConfigError
from kvstore.proxy.commands import main
from kvstore.proxy.flags.go_flags import GoCommand, GoGroup, Values
from kvstore.proxy.flags.grpc_flags import FLAGS
from kvstore.proxy.grpc_settings import listen_url
from tests.support.servers import ETCD


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--resolver-prefix=p"], "invalid resolver-ttl 0"),
        (["--resolver-ttl=5"], 'invalid resolver-prefix ""'),
        (
            ["--resolver-prefix=p", "--resolver-ttl=5", "--advertise-client-url="],
            'invalid advertise-client-url ""',
        ),
        (
            ["--auto-tls", "--self-signed-cert-validity=0"],
            "selfSignedCertValidity is invalid,it should be greater than 0",
        ),
        (
            ["--tls-min-version=TLS1.9"],
            'tls-min-version is invalid: unexpected TLS version "TLS1.9"',
        ),
        (
            ["--tls-min-version=TLS1.3", "--tls-max-version=TLS1.2"],
            "min version (TLS1.3) is greater than max version (TLS1.2)",
        ),
        (
            ["--tls-min-version=TLS1.3", "--listen-cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA"],
            "cipher suites cannot be configured when only TLS1.3 is enabled",
        ),
        (["--cert=c"], "KeyFile and CertFile must both be present[key: , cert: c]"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(
    flags: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["grpc-proxy", "start", *flags]) == 1
    assert capsys.readouterr().err == f"{text}\n"


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--debug=maybe"], 'invalid argument "maybe" for "--debug" flag: not a boolean'),
        (["--resolver-ttl=x"], 'invalid argument "x" for "--resolver-ttl" flag: not a number'),
        (["--no-such"], "unknown flag: --no-such"),
        (["--namespace"], "flag needs an argument: --namespace"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_usage(
    flags: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["grpc-proxy", "start", *flags]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"Error: {text}")
    assert "Usage: kvstore grpc-proxy start" in error


def read(*flags: str) -> Values:
    """Return what a command is given."""
    found: list[Values] = []

    def take(values: Values) -> int:
        found.append(values)
        return 0

    GoCommand("start", FLAGS, "", take).main(list(flags), standalone_mode=False)
    return found[0]


def run(*words: str) -> tuple[int, list[Values]]:
    """Run a group with the command start; return its code, and what the command was given."""
    found: list[Values] = []

    def take(values: Values) -> int:
        found.append(values)
        return 7

    group = GoGroup("gateway", "gateway related command", GoCommand("start", FLAGS, "", take))
    code = group.main(list(words), standalone_mode=False)
    return int(code or 0), found


@pytest.mark.parametrize(
    "words",
    [
        ("start", "--endpoints=a", "--debug", "--namespace=start"),
        ("--endpoints=a", "start", "--debug", "--namespace=start"),
        ("--endpoints", "a", "--namespace", "start", "start", "--debug", "start"),
        ("--debug", "start", "--endpoints=a", "--namespace=start"),
        ("--debug=true", "--endpoints", "a", "start", "word", "--namespace", "start"),
    ],
)
def test_flags_may_stand_before_the_command(words: tuple[str, ...]) -> None:
    code, (values,) = run(*words)
    assert code == 7
    assert (values["endpoints"], values["debug"], values["namespace"]) == (("a",), True, "start")


@pytest.mark.parametrize(
    "words", [(), ("word",), ("word", "start"), ("-h",), ("--help", "start"), ("--debug", "-h")]
)
def test_without_a_command_the_help_of_the_group_is_shown(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gateway", *words]) == 0
    out = capsys.readouterr().out
    assert "gateway related command" in out
    assert "start the gateway" in out


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("--endpoints",), "--endpoints"),
        (("--endpoints=x",), "--endpoints"),
        (("--endpoints", "start"), "--endpoints"),
        (("--nonsense", "start"), "--nonsense"),
        (("--nonsense=1", "start"), "--nonsense"),
        (("start", "--nonsense"), "--nonsense"),
    ],
)
def test_flags_without_a_command_and_unknown_ones_are_refused(
    words: tuple[str, ...], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gateway", *words]) == 1
    assert capsys.readouterr().err.startswith(
        f"Error: unknown flag: {name}\nUsage: kvstore gateway"
    )


def test_lists_are_joined_and_switches_take_no_separate_value() -> None:
    values = read("--endpoints=a,b", "--debug", "--endpoints", "c", "--auto-tls=false", "word")
    assert values["endpoints"] == ("a", "b", "c")
    assert values["debug"] is True
    assert values["auto-tls"] is False
    assert values["resolver-ttl"] == 0
    assert values["grpc-keepalive-interval"] == 7200 * 10**9
    assert read()["endpoints"] == ("127.0.0.1:2379",)


def test_every_flag_of_etcds_proxy_is_there() -> None:
    help_text = subprocess.run(
        [str(ETCD), "grpc-proxy", "start", "--help"], capture_output=True, text=True, check=True
    ).stdout
    theirs = set(re.findall(r"^ +(?:-h, )?--([a-z-]+)", help_text, re.MULTILINE)) - {"help"}
    assert len(theirs) > 20
    assert theirs <= {each.name for each in FLAGS}


def test_addresses_to_listen_on() -> None:
    assert listen_url("127.0.0.1:1", is_tls=False) == "http://127.0.0.1:1"
    assert listen_url(":1", is_tls=True) == "https://0.0.0.0:1"
    assert listen_url("[::1]:1", is_tls=False) == "http://[::1]:1"
    with pytest.raises(ConfigError, match="address nowhere: missing port in address"):
        listen_url("nowhere", is_tls=False)
