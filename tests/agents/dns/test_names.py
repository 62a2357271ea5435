"""What names of a cluster stand for: the schema, a row a question."""

import pytest
from dns.message import Message, from_wire, make_query
from dns.rcode import NOERROR, NXDOMAIN, to_text

from kvstack.agents.dns.cluster import DISABLED, VERIFIED, Options
from kvstack.agents.dns.responder import Responder
from tests.agents.dns.given import (
    NOW_S,
    answer_to,
    cluster,
    endpoint,
    piece,
    responder,
    service,
)  # fmt: skip

ZONE = "cluster.local"
SVC = f"default.svc.{ZONE}"
SOA = f"{ZONE}. 30 IN SOA ns.dns.{ZONE}. hostmaster.{ZONE}. {NOW_S} 7200 1800 86400 30"


def lines(records: object) -> list[str]:
    return sorted(line for each in records for line in each.to_text().splitlines())  # type: ignore[attr-defined]


def answers_of(message: Message) -> list[str]:
    """Return what the answers say: `A 10.96.0.7`."""
    return sorted(line.split(" ", 3)[3] for line in lines(message.answer))


ANSWERS = [
    (f"web.{SVC}", "A", ["A 10.96.0.7"]),
    (f"WEB.Default.svc.{ZONE}", "A", ["A 10.96.0.7"]),
    (f"both.{SVC}", "A", ["A 10.96.0.8"]),
    (f"both.{SVC}", "AAAA", ["AAAA fd00:10::8"]),
    (f"_http._tcp.web.{SVC}", "SRV", [f"SRV 0 100 80 web.{SVC}."]),
    (f"http.tcp.web.{SVC}", "SRV", [f"SRV 0 100 80 web.{SVC}."]),
    (f"_dns._udp.web.{SVC}", "SRV", [f"SRV 0 100 53 web.{SVC}."]),
    (f"_http._tcp.both.{SVC}", "SRV", [f"SRV 0 50 80 both.{SVC}."]),
    (f"web.{SVC}", "SRV", [f"SRV 0 50 53 web.{SVC}.", f"SRV 0 50 80 web.{SVC}."]),
    (f"_http._tcp.web.{SVC}", "A", ["A 10.96.0.7"]),
    (f"peers.{SVC}", "A", ["A 10.244.0.4", "A 10.244.0.5"]),
    (f"peers.{SVC}", "AAAA", ["AAAA fd00::", "AAAA fd00::4"]),
    (f"peers-0.peers.{SVC}", "A", ["A 10.244.0.4"]),
    (f"peers-0.peers.{SVC}", "AAAA", ["AAAA fd00::4"]),
    (f"10-244-0-5.peers.{SVC}", "A", ["A 10.244.0.5"]),
    (f"fd00--0.peers.{SVC}", "AAAA", ["AAAA fd00::"]),
    (f"10-244-0-2.web.{SVC}", "A", ["A 10.244.0.2"]),
    (
        f"_raft._tcp.peers.{SVC}", "SRV",
        [f"SRV 0 25 12380 10-244-0-5.peers.{SVC}.", f"SRV 0 25 12380 fd00--0.peers.{SVC}.",
         f"SRV 0 25 12380 peers-0.peers.{SVC}."],
    ),
    (f"portless.{SVC}", "A", ["A 10.244.0.11"]),
    (f"alias.{SVC}", "A", ["A 10.96.0.7", f"CNAME web.{SVC}."]),
    (f"alias.{SVC}", "CNAME", [f"CNAME web.{SVC}."]),
    (f"abroad.{SVC}", "A", ["CNAME foo.example.com."]),
    (f"1-2-3-4.default.pod.{ZONE}", "A", ["A 1.2.3.4"]),
    (f"fd00--5.default.pod.{ZONE}", "AAAA", ["AAAA fd00::5"]),
    (f"dns-version.{ZONE}", "TXT", ['TXT "1.1.0"']),
    (ZONE, "NS", [f"NS kube-dns.kube-system.svc.{ZONE}."]),
    ("7.0.96.10.in-addr.arpa", "PTR", [f"PTR web.{SVC}."]),
    ("2.0.244.10.in-addr.arpa", "PTR", [f"PTR 10-244-0-2.web.{SVC}."]),
    ("4.0.244.10.in-addr.arpa", "PTR", [f"PTR peers-0.peers.{SVC}."]),
    (f"4{'.0' * 27}.0.0.d.f.ip6.arpa", "PTR", [f"PTR peers-0.peers.{SVC}."]),
]  # fmt: skip
NO_DATA = [
    (f"web.{SVC}", "AAAA"), (f"web.{SVC}", "MX"), (f"web.{SVC}", "HTTPS"), (f"web.{SVC}", "TXT"),
    (f"nothing.{SVC}", "TXT"), (f"alias.{SVC}", "SRV"), (f"portless.{SVC}", "SRV"),
    (f"peers-0.peers.{SVC}", "PTR"), (ZONE, "A"), (f"svc.{ZONE}", "A"), (f"pod.{ZONE}", "A"),
    (SVC, "A"), (f"default.pod.{ZONE}", "A"), (f"dns-version.{ZONE}", "A"),
    (f"1-2-3-4.default.pod.{ZONE}", "AAAA"),
]  # fmt: skip
UNKNOWN = [
    (f"nothing.{SVC}", "A"), (f"nothing.{SVC}", "AAAA"), (f"web.nowhere.svc.{ZONE}", "A"),
    (f"nowhere.svc.{ZONE}", "A"), (f"other.{ZONE}", "A"), (f"empty.{SVC}", "A"),
    (f"empty.{SVC}", "SRV"), (f"peers-2.peers.{SVC}", "A"), (f"a.b.c.web.{SVC}", "A"),
    (f"_no._tcp.web.{SVC}", "SRV"), (f"_http._udp.web.{SVC}", "SRV"), (f"number.{SVC}", "A"),
    (f"_http._tcp.alias.{SVC}", "SRV"), (f"host.alias.{SVC}", "A"),
    (f"1-2-3.default.pod.{ZONE}", "A"), (f"1-2-3-4.nowhere.pod.{ZONE}", "A"),
    (f"x.1-2-3-4.default.pod.{ZONE}", "A"), (f"*.{SVC}", "A"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "expected"), ANSWERS)
def test_an_answer(name: str, kind: str, expected: list[str]) -> None:
    found = answer_to(responder(), name, kind)
    assert answers_of(found) == expected
    assert found.rcode() == NOERROR
    assert found.flags & 0x0400, "authoritative"
    assert not found.authority
    assert {each.ttl for each in found.answer} == {28_800 if kind == "TXT" else 30}


@pytest.mark.parametrize(("name", "kind"), NO_DATA)
def test_a_name_that_has_no_such_record(name: str, kind: str) -> None:
    found = answer_to(responder(), name, kind)
    assert (to_text(found.rcode()), found.answer, lines(found.authority)) == ("NOERROR", [], [SOA])


@pytest.mark.parametrize(("name", "kind"), UNKNOWN)
def test_a_name_that_does_not_exist(name: str, kind: str) -> None:
    found = answer_to(responder(), name, kind)
    assert (found.rcode(), found.answer, lines(found.authority)) == (NXDOMAIN, [], [SOA])


def test_the_soa_itself_and_its_times() -> None:
    found = answer_to(responder(Options(ttl_s=3600)), ZONE, "SOA")
    (record,) = lines(found.answer)
    assert record == SOA.replace(" 30 IN", " 300 IN").replace("86400 30", "86400 3600")


def test_additional_addresses_are_those_of_the_targets() -> None:
    assert lines(answer_to(responder(), f"_raft._tcp.peers.{SVC}", "SRV").additional) == [
        f"10-244-0-5.peers.{SVC}. 30 IN A 10.244.0.5",
        f"fd00--0.peers.{SVC}. 30 IN AAAA fd00::",
        f"peers-0.peers.{SVC}. 30 IN A 10.244.0.4",
        f"peers-0.peers.{SVC}. 30 IN AAAA fd00::4",
    ]
    assert lines(answer_to(responder(), ZONE, "NS").additional) == [
        f"kube-dns.kube-system.svc.{ZONE}. 30 IN A 10.96.0.10"
    ]


def test_the_owner_is_written_as_it_was_asked() -> None:
    found = answer_to(responder(), f"wEb.{SVC}", "A")
    assert found.answer[0].name.to_text().startswith("wEb.")


def test_an_alias_that_leads_to_itself_ends() -> None:
    found = answer_to(responder(), f"circle.{SVC}", "A")
    assert found.rcode() == NOERROR
    assert answers_of(found) == [f"CNAME circle.{SVC}."]


@pytest.mark.parametrize(
    ("mode", "name", "code"),
    [
        (VERIFIED, "10-244-0-5", NOERROR),
        (VERIFIED, "10-244-0-6", NXDOMAIN),
        (DISABLED, "10-244-0-5", NXDOMAIN),
    ],
)
def test_modes_of_names_of_pods(mode: str, name: str, code: int) -> None:
    found = answer_to(responder(Options(pods=mode)), f"{name}.default.pod.{ZONE}", "A")
    assert found.rcode() == code


def test_endpoints_by_names_of_pods() -> None:
    own = responder(Options(names_by_pods=True))
    assert answers_of(answer_to(own, f"a-pod.peers.{SVC}", "A")) == ["A 10.244.0.5"]
    assert answer_to(own, f"10-244-0-5.peers.{SVC}", "A").rcode() == NXDOMAIN


def test_no_name_is_denied_before_all_are_known() -> None:
    own = responder()
    own.is_synced = False
    assert to_text(answer_to(own, f"nothing.{SVC}").rcode()) == "SERVFAIL"
    assert to_text(answer_to(own, "7.0.96.10.in-addr.arpa", "PTR").rcode()) == "SERVFAIL"


def test_names_of_others_are_refused_where_nobody_is_asked() -> None:
    for name, kind in (("example.com", "A"), ("9.9.9.9.in-addr.arpa", "PTR"), (".", "NS")):
        assert to_text(answer_to(responder(), name, kind).rcode()) == "REFUSED"


def test_what_changes_is_answered_anew() -> None:
    known = cluster()
    own = Responder(known, None)
    own.is_synced = True
    name = f"late.{SVC}"
    assert answer_to(own, name).rcode() == NXDOMAIN
    own.changed(known.put_service(service("late", ["10.96.1.1"]), NOW_S + 1))
    assert answers_of(answer_to(own, name)) == ["A 10.96.1.1"]
    own.changed(known.put_service(service("late", ["None"]), NOW_S + 2))
    assert answer_to(own, name).rcode() == NXDOMAIN
    made = piece("late", endpoint("10.244.3.3", hostname="x"))
    own.changed(known.put_slice(made, NOW_S + 3))
    assert answers_of(answer_to(own, name)) == ["A 10.244.3.3"]
    assert answers_of(answer_to(own, "3.3.244.10.in-addr.arpa", "PTR")) == [f"PTR x.{name}."]
    own.changed(known.drop_slice(made, NOW_S + 4))
    assert answer_to(own, name).rcode() == NXDOMAIN
    assert to_text(answer_to(own, "3.3.244.10.in-addr.arpa", "PTR").rcode()) == "REFUSED"
    own.changed(("default", "late"))
    known.drop_service(("default", "late"), NOW_S + 5)
    own.changed(("default", "late"))
    (soa,) = lines(answer_to(own, name).authority)
    assert str(NOW_S + 5) in soa


def test_an_address_in_two_slices_stays_known_until_both_are_gone() -> None:
    known = cluster()
    one = piece("web", endpoint("10.244.9.9"), name="one")
    two = piece("web", endpoint("10.244.9.9"), name="two")
    for each in (one, two):
        known.put_slice(each, NOW_S)
    known.drop_slice(one, NOW_S)
    assert known.find_address("10.244.9.9")
    known.drop_slice(two, NOW_S)
    assert not known.find_address("10.244.9.9")
    assert "10.244.9.9" not in known._behind


def test_a_service_with_thousands_of_endpoints_is_answered_within_a_message() -> None:
    known = cluster()
    many = [endpoint(f"10.{n >> 8 & 255}.{n & 255}.1", hostname=f"h{n}") for n in range(3000)]
    known.put_slice(piece("peers", *many, ports=[("raft", 1, "TCP")], name="many"), NOW_S)
    own = Responder(known, None)
    own.is_synced = True
    for kind in ("A", "SRV"):
        answer = own.at_once(make_query(f"peers.{SVC}", kind).to_wire(), is_tcp=True)
        assert isinstance(answer, bytes)
        assert len(answer) <= 65_535
        assert 0 < len(from_wire(answer).answer[0]) <= 1000
