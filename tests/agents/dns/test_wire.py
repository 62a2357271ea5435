"""Bytes of queries and answers: quick answers equal slow ones, and nothing hostile is believed."""

import struct
from collections import Counter

import pytest
from dns.exception import DNSException
from dns.message import Message, from_wire, make_query
from dns.rcode import to_text
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstack.agents.dns.known_answers import OTHERS_MAX, KnownAnswers
from kvstack.agents.dns.prepared import MESSAGE_BYTES_MAX, SIZE_MAX, limit_of
from kvstack.agents.dns.query import read, wire_name
from kvstack.agents.dns.responder import Responder
from kvstack.agents.dns.traffic import KINDS_MAX, UDP, Traffic
from tests.agents.dns.given import NOW_S, answer_to, cluster, endpoint, piece, responder

SVC = "default.svc.cluster.local"
NAMES = (
    f"web.{SVC}", f"both.{SVC}", f"peers.{SVC}", f"peers-0.peers.{SVC}", f"_raft._tcp.peers.{SVC}",
    f"nothing.{SVC}", f"alias.{SVC}", "cluster.local", "7.0.96.10.in-addr.arpa", "example.com",
)  # fmt: skip
KINDS = ("A", "AAAA", "SRV", "PTR", "SOA", "TXT", "TYPE65", "TYPE97")


def sections(wire: bytes) -> tuple[object, ...]:
    """Return what an answer says, whatever the order of its records."""
    found = from_wire(wire)
    said = [
        Counter(line for each in some for line in each.to_text().splitlines())
        for some in (found.answer, found.authority, found.additional)
    ]
    options = (found.edns, found.payload, found.ednsflags)
    return found.id, found.flags, found.question, *said, options


@st.composite
def queries(draw: st.DrawFn) -> bytes:
    name = draw(st.sampled_from(NAMES))
    spelled = "".join(draw(st.sampled_from((each, each.upper()))) for each in name)
    edns = draw(st.sampled_from((None, 0, 0, 1)))
    query = make_query(
        spelled, draw(st.sampled_from(KINDS)), draw(st.sampled_from(("IN", "IN", "CH"))),
        want_dnssec=edns == 0 and draw(st.booleans()), use_edns=edns,
        payload=draw(st.sampled_from((0, 512, 600, 1232, 65535))),
    )  # fmt: skip
    query.flags = draw(st.sampled_from((0, 0x100, 0x120, 0x110, 0x800, 0x8000)))
    return query.to_wire()


@given(st.lists(queries(), min_size=1, max_size=8), st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_is_answered_from_bytes_is_what_is_answered_anew(
    wires: list[bytes],
    is_tcp: bool,  # noqa: FBT001
) -> None:
    warm = responder()
    for wire in wires * 2:
        quick, slow = (each.at_once(wire, is_tcp=is_tcp) for each in (warm, responder()))
        assert (quick is None) is (slow is None)
        if isinstance(quick, bytes) and isinstance(slow, bytes):
            if not from_wire(slow).flags & 0x200:
                assert sections(quick) == sections(slow)
            assert len(quick) == len(slow)


def test_the_second_answer_comes_from_bytes() -> None:
    own = responder()
    wire = make_query(f"web.{SVC}", "A").to_wire()
    assert own._known.answer(wire) is None
    first = own.at_once(wire)
    assert own._known.answer(wire) == first
    assert own._known.answer(wire.replace(b"web", b"wEb")) is not None


def test_a_type_is_not_mistaken_for_a_letter() -> None:
    own = responder()
    answer_to(own, f"web.{SVC}", "TYPE97")
    found = answer_to(own, f"web.{SVC}", "TYPE65")
    assert found.question[0].rdtype == 65


@given(st.binary(max_size=600))
@settings(max_examples=300, deadline=None)
def test_any_bytes_get_an_answer_that_can_be_read_or_none(data: bytes) -> None:
    found = responder().at_once(data)
    if found is None:
        assert len(data) < 12 or data[2] & 0x80
    else:
        assert isinstance(found, bytes)
        assert found[:2] == data[:2]
        assert found[2] & 0x80
        from_wire(found)


@given(queries(), st.data())
@settings(max_examples=300, deadline=None)
def test_a_query_that_was_damaged_on_the_way(wire: bytes, data: st.DataObject) -> None:
    damaged = bytearray(wire)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    kept = bytes(damaged[: data.draw(st.integers(0, len(wire)))])
    own = responder()
    own.at_once(wire)  # so that quick answers are there to be wrong
    for each in (bytes(damaged), kept):
        found = own.at_once(each)
        if isinstance(found, bytes):
            assert found[:2] == each[:2]
            try:
                from_wire(found)
            except DNSException as error:  # what was asked comes back as it was
                raise AssertionError(each) from error


def header(flags: int = 0x100, *counts: int) -> bytes:
    return struct.pack("!HHHHHH", 7, flags, *(counts or (1, 0, 0, 0)))


QUESTION = wire_name(f"web.{SVC}") + b"\0\1\0\1"
OPT = b"\0\0\x29\x04\xd0\0\0\0\0\0\0"
HOSTILE = {
    "a name that points to itself": (header() + b"\xc0\x0c\0\1\0\1", "FORMERR"),
    "a name that points behind": (header() + b"\1a\xc0\x20\0\1\0\1", "FORMERR"),
    "a label of 64": (header() + b"\x40" + b"a" * 64 + b"\0\0\1\0\1", "FORMERR"),
    "a name of 256 bytes": (header() + (b"\x3f" + b"a" * 63) * 4 + b"\0\0\1\0\1", "FORMERR"),
    "a name without end": (header() + b"\3abc", "FORMERR"),
    "no type": (header() + b"\3abc\0", "FORMERR"),
    "nothing": (header(), "FORMERR"),
    "two questions": (header(0x100, 2, 0, 0, 0) + QUESTION * 2, "FORMERR"),
    "no question": (header(0x100, 0, 0, 0, 0), "FORMERR"),
    "an answer inside": (header(0x100, 1, 1, 0, 0) + QUESTION, "FORMERR"),
    "what comes after the end": (header() + QUESTION + b"x", "FORMERR"),
    "OPT that is not there": (header(0x100, 1, 0, 0, 1) + QUESTION, "FORMERR"),
    "OPT twice": (header(0x100, 1, 0, 0, 2) + QUESTION + OPT * 2, "FORMERR"),
    "OPT with a name": (header(0x100, 1, 0, 0, 1) + QUESTION + b"\1a" + OPT, "FORMERR"),
    "OPT that is longer than it is": (
        header(0x100, 1, 0, 0, 1) + QUESTION + OPT[:-2] + b"\xff\xff", "FORMERR",
    ),
    "very many records": (header(0x100, 1, 0, 0, 0xFFFF) + QUESTION, "FORMERR"),
    "another operation": (header(0x100 | 5 << 11) + QUESTION, "NOTIMP"),
    "a transfer": (header() + QUESTION[:-4] + b"\0\xfc\0\1", "REFUSED"),
    "a part of a transfer": (header() + QUESTION[:-4] + b"\0\xfb\0\1", "REFUSED"),
    "another class": (header() + QUESTION[:-2] + b"\0\3", "REFUSED"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_query(name: str) -> None:
    wire, code = HOSTILE[name]
    own = responder()
    answer_to(own, f"web.{SVC}")
    found = own.at_once(wire)
    assert isinstance(found, bytes)
    assert to_text(from_wire(found).rcode()) == code
    assert len(found) <= len(wire) + 11, "nothing grows on the way"


def test_answers_and_less_than_a_header_are_not_answered() -> None:
    assert responder().at_once(header(0x8100) + QUESTION) is None
    assert responder().at_once(header()[:11]) is None


def test_another_version_of_edns_is_answered_with_the_known_one() -> None:
    found = answer_to(responder(), f"web.{SVC}", use_edns=1)
    assert (to_text(found.rcode()), found.edns, found.answer) == ("BADVERS", 0, [])


def test_the_options_of_an_answer_are_those_that_were_asked_for() -> None:
    own = responder()
    for _ in range(2):
        assert answer_to(own, f"web.{SVC}", use_edns=False).edns == -1
        assert answer_to(own, f"web.{SVC}", use_edns=0).payload == SIZE_MAX
        assert not answer_to(own, f"web.{SVC}", use_edns=0).ednsflags & 0x8000
        assert answer_to(own, f"web.{SVC}", use_edns=0, want_dnssec=True).ednsflags & 0x8000


def many(count: int) -> Responder:
    """Return one that knows a Service with so many endpoints more."""
    known = cluster()
    told = [endpoint(f"10.1.{n >> 8}.{n & 255}", hostname=f"h{n}") for n in range(count)]
    known.put_slice(piece("peers", *told, ports=[("raft", 1, "TCP")], name="many"), NOW_S)
    found = Responder(known, None)
    found.is_synced = True
    return found


@pytest.mark.parametrize(("size", "limit"), [(0, 512), (100, 512), (900, 900), (65_535, 1232)])
def test_an_answer_fits_what_its_client_takes_and_no_more_than_passes_networks(
    size: int, limit: int
) -> None:
    own = many(200)
    for _ in range(2):
        query = make_query(f"peers.{SVC}", "A", use_edns=0 if size else False, payload=size)
        answer = own.at_once(query.to_wire())
        assert isinstance(answer, bytes)
        assert limit - 16 <= len(answer) <= limit
        found = from_wire(answer)
        assert found.flags & 0x200
        assert len(found.answer[0]) > 20


def test_what_only_helps_is_left_out_first() -> None:
    own = many(5)
    query = make_query(f"_raft._tcp.peers.{SVC}", "SRV", use_edns=0, payload=1232)
    whole = own.at_once(query.to_wire(), is_tcp=True)
    assert isinstance(whole, bytes)
    query = make_query(f"_raft._tcp.peers.{SVC}", "SRV", use_edns=0, payload=len(whole) - 1)
    cut = own.at_once(query.to_wire())
    assert isinstance(cut, bytes)
    found = from_wire(cut)
    assert not found.flags & 0x200
    assert not found.additional
    assert found.answer == from_wire(whole).answer


def test_addresses_take_turns() -> None:
    own = responder()
    firsts = Counter(first(answer_to(own, f"peers.{SVC}")) for _ in range(40))
    assert set(firsts.values()) <= set(range(15, 26))
    assert len(firsts) == 2


def first(message: Message) -> str:
    return str(message.answer[0].to_text().splitlines()[0].rsplit(" ", 1)[1])


def test_what_is_remembered_has_a_limit() -> None:
    own = responder()
    for number in range(OTHERS_MAX + 10):
        own.at_once(make_query(f"n{number}.{SVC}", "A").to_wire())
    assert 0 < len(own._known) <= OTHERS_MAX


def test_types_are_counted_up_to_a_number() -> None:
    traffic, own = Traffic(), responder()
    for kind in range(1, KINDS_MAX + 50):
        wire = make_query(f"web.{SVC}", f"TYPE{kind}").to_wire()
        answer = own.at_once(wire)
        assert isinstance(answer, bytes)
        traffic.count(UDP, "1", wire, answer)
    assert len(traffic.queries) == KINDS_MAX + 1
    assert sum(traffic.queries.values()) == KINDS_MAX + 49


def test_only_answers_about_a_changed_service_are_forgotten() -> None:
    own = responder()
    for name in (f"web.{SVC}", f"both.{SVC}"):
        answer_to(own, name)
    own.changed(("default", "web"))
    known: KnownAnswers = own._known
    assert known.answer(make_query(f"web.{SVC}", "A").to_wire()) is None
    assert known.answer(make_query(f"both.{SVC}", "A").to_wire()) is not None


def test_limits_of_datagrams() -> None:
    for size, limit in ((0, 512), (100, 512), (4096, 1232), (1000, 1000)):
        query = make_query("a.", "A", use_edns=0 if size else False, payload=size)
        found = read(query.to_wire())
        assert found is not None
        assert limit_of(found) == limit < MESSAGE_BYTES_MAX


@pytest.mark.parametrize("text", ["a..b", f"{'a' * 64}.b", ".".join(["a" * 60] * 5), "ä.b"])
def test_texts_that_are_no_names(text: str) -> None:
    with pytest.raises(ValueError, match=r"name|ascii"):
        wire_name(text)
