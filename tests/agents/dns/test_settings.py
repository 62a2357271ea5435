"""Flags of `kvstack dns`."""

from pathlib import Path

import pytest

from kvstack.agents.dns.command import COMMAND, main
from kvstack.agents.dns.flags import TABLE
from kvstack.agents.dns.forwarding.exchange import Resolver
from kvstack.agents.dns.forwarding.node_resolvers import SEARCHES_MAX, NodeResolvers
from kvstack.agents.dns.settings import Settings, read, resolver
from kvstack.component.clock import SystemClock
from kvstack.component.flags.command_line import read_command_line
from kvstack.component.flags.flag_reader import FlagReader


def read_flags(*arguments: str) -> tuple[Settings, list[str]]:
    wrong: list[str] = []
    reader = FlagReader(read_command_line(arguments, COMMAND, TABLE), wrong)
    return read(reader, SystemClock()), wrong


def test_what_is_not_given_stays_inside() -> None:
    found, wrong = read_flags()
    assert not wrong
    assert (found.addresses, found.port) == (("127.0.0.1",), 53)
    assert {each.partition(":")[0] for each in found.pages.values()} == {"127.0.0.1"}
    assert all(each.is_private or each.is_loopback or each.is_link_local or str(each) ==
               "100.64.0.0/10" for each in found.dns.clients)  # fmt: skip
    assert found.dns.forwarding is not None
    assert isinstance(found.dns.forwarding.resolvers, NodeResolvers)
    assert (found.dns.zone.domain, found.dns.zone.ttl_s) == ("cluster.local", 30)


def test_who_is_asked() -> None:
    found, wrong = read_flags(
        "--forward=192.0.2.1,192.0.2.2:5353", "--bind-addresses=10.0.0.1", "--port=5300",
        "--stub-domains=Corp.Example=192.0.2.3,corp.example.=192.0.2.4", "--forward-max=7",
    )  # fmt: skip
    assert not wrong
    forwarding = found.dns.forwarding
    assert forwarding is not None
    assert forwarding.resolvers() == (Resolver("192.0.2.1"), Resolver("192.0.2.2", 5353))
    assert forwarding.stubs == (
        ((b"corp", b"example"), (Resolver("192.0.2.3"), Resolver("192.0.2.4"))),
    )
    assert forwarding.own == {Resolver("10.0.0.1", 5300)}
    assert forwarding.at_once_max == 7
    assert read_flags("--forward=none")[0].dns.forwarding is None


def test_search_paths_are_walked_on_request(tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    file.write_text("nameserver 192.0.2.1\nsearch Corp.Example. " + "x.example " * 40)
    assert read_flags()[0].dns.searches_of_node is None
    searches = read_flags("--autopath", f"--resolv-conf={file}")[0].dns.searches_of_node
    assert searches is not None
    assert searches()[:2] == ("corp.example", "x.example")
    assert len(searches()) == SEARCHES_MAX


def test_pages_may_be_left_out() -> None:
    found, _ = read_flags(
        "--health-address=none", "--ready-address=", "--metrics-address=10.0.0.1:1"
    )
    assert found.pages == {"/metrics": "10.0.0.1:1"}


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("--bind-addresses=0.0.0.0", "name the addresses that clients ask"),
        ("--bind-addresses=", "--bind-addresses must name an address"),
        ("--bind-addresses=here", "'here': it is not an address"),
        ("--port=70000", "--port 70000: between 0 and 65535"),
        ("--ttl=3601", "--ttl 3601: between 0 and 3600"),
        ("--pods=some", "--pods some: one of disabled, insecure, verified"),
        ("--client-ranges=10.0.0.1/8", "--client-ranges 10.0.0.1/8 has host bits set"),
        ("--client-queries-per-second=0", "--client-queries-per-second 0: between 1 and"),
        ("--cluster-domain=a..b", "--cluster-domain: invalid name 'a..b'"),
        ("--cluster-domain=", "--cluster-domain must not be empty"),
        (f"--cluster-domain={'a' * 60}.{'b' * 60}", "at most 100 characters"),
        ("--forward=name", "--forward name: 'name' does not appear to be an IPv4"),
        ("--forward=192.0.2.1:0", "--forward 192.0.2.1:0: invalid port '0'"),
        (f"--forward={','.join(f'192.0.2.{n}' for n in range(1, 17))}", "16 addresses, at most 15"),
        ("--stub-domains=192.0.2.1", "--stub-domains 192.0.2.1: DOMAIN=ADDRESS is wanted"),
        ("--stub-domains=a.example=b", "--stub-domains a.example=b: 'b' does not appear"),
        ("--forward-max=0", "--forward-max 0: between 1 and 10000"),
        ("--health-address=8080", "--health-address 8080: HOST:PORT, or none"),
    ],
)
def test_what_is_wrong_is_named_with_its_limit(argument: str, text: str) -> None:
    _, wrong = read_flags(argument)
    assert len(wrong) == 1
    assert text in wrong[0]


def test_resolvers() -> None:
    assert resolver("[fd00::1]:5353") == Resolver("fd00::1", 5353)
    assert resolver("fd00::1") == Resolver("fd00::1", 53)


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--bind-addresses=0.0.0.0"]) == 1
    assert "name the addresses" in capsys.readouterr().err
    assert main(["--help"]) == 0
    assert "--stub-domains" in capsys.readouterr().out


def test_a_server_is_published_at_an_address_that_others_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kvstack.agents.dns.settings.address_towards", lambda *_: "192.0.2.9")
    auto = ("--master=https://192.0.2.1:6443", "--bind-addresses=127.0.0.1,auto")
    found, wrong = read_flags(*auto, "--cluster-dns=10.96.0.10", "--server-name=DNS1")
    assert not wrong
    assert found.addresses == ("127.0.0.1", "192.0.2.9")
    assert found.publishing == ("10.96.0.10", "dns1", "192.0.2.9")
    assert found.dns.forwarding is not None
    assert Resolver("192.0.2.9") in found.dns.forwarding.own
    monkeypatch.setattr("socket.gethostname", lambda: "host.example")
    found, wrong = read_flags(*auto, "--cluster-dns=10.96.0.10")
    assert found.publishing is not None
    assert found.publishing.name == "host.example"
    assert read_flags()[0].publishing is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--cluster-dns=10.96.0.10",), "--bind-addresses has no address of its family"),
        (("--cluster-dns=fd00::a", "--bind-addresses=192.0.2.9"), "no address of its family"),
        (("--cluster-dns=kube-dns", "--bind-addresses=192.0.2.9"), "--cluster-dns: 'kube-dns'"),
        (("--server-name=x",), "--server-name needs --cluster-dns"),
        (
            ("--cluster-dns=10.96.0.10", "--bind-addresses=192.0.2.9", "--server-name=a_b"),
            "--server-name a_b: ",
        ),
        (("--bind-addresses=auto", "--kubeconfig=/no/such"), "--bind-addresses auto: /no/such"),
        (
            ("--bind-addresses=auto", "--master=https://no.such.name.invalid:6443"),
            "--bind-addresses auto: https://no.such.name.invalid:6443 is not reached",
        ),
    ],
)
def test_a_server_that_cannot_be_published_says_why(arguments: tuple[str, ...], text: str) -> None:
    _, wrong = read_flags(*arguments)
    assert any(text in each for each in wrong), wrong
