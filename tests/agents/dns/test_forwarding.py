"""Names of others: asked of real servers on the loopback, which answer well, badly and never."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import dns.flags
import pytest
from dns.message import Message, from_wire, make_query, make_response
from dns.rcode import FORMERR, NXDOMAIN, REFUSED, SERVFAIL, Rcode, to_text
from dns.rrset import from_text
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from kvstack.agents.dns.forwarding import forwarder as forwarding
from kvstack.agents.dns.forwarding.answer_cache import AnswerCache, CachedAnswer, Limits, lifetime_s
from kvstack.agents.dns.forwarding.exchange import Question, Resolver, _answer
from kvstack.agents.dns.forwarding.forwarder import Forwarder, Forwarding, NotResolvedError
from kvstack.agents.dns.forwarding.node_resolvers import NodeResolvers
from kvstack.agents.dns.metrics import dns_metrics
from kvstack.agents.dns.prepared import PreparedAnswer
from kvstack.agents.dns.query import labels_of, read, wire_name
from kvstack.agents.dns.server import DnsServer, DnsSettings
from kvstack.agents.dns.sockets import open_pair
from kvstack.component.clock import SystemClock
from kvstack.component.metrics.exposition import render
from kvstack.component.net.resolv_conf import for_pods
from tests.agents.dns.given import LOOPBACK, over_tcp, over_udp, serving
from tests.support.clocks import HandClock
from tests.support.list_log import ListLog
from tests.support.waiting import eventually

Answers = Callable[[Message], list[Message | bytes]]
"""What a server sends for a query: messages, or bytes as they are."""


class Elsewhere(asyncio.DatagramProtocol):
    """A resolver of others."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.asked: list[Message] = []
        self.wires: list[bytes] = []
        self.senders: set[int] = set()
        self.streams = 0
        self.resolver = Resolver("127.0.0.1", 0)
        self._transport: asyncio.DatagramTransport | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    @override
    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        assert self._transport is not None
        self.senders.add(addr[1])
        for each in self._of(data):
            self._transport.sendto(each, addr)

    async def stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.streams += 1
        length = int.from_bytes(await reader.readexactly(2), "big")
        for each in self._of(await reader.readexactly(length)):
            writer.write(len(each).to_bytes(2, "big") + each)
        writer.close()

    def _of(self, data: bytes) -> list[bytes]:
        query = from_wire(data)
        self.asked.append(query)
        self.wires.append(data)
        return [
            each if isinstance(each, bytes) else each.to_wire(max_size=65535)
            for each in self._answers(query)
        ]


@asynccontextmanager
async def elsewhere(answers: Answers) -> AsyncGenerator[Elsewhere]:
    loop = asyncio.get_running_loop()
    found = Elsewhere(answers)
    datagrams, streams = open_pair("127.0.0.1", 0)
    found.resolver = Resolver(*datagrams.getsockname())
    transport, _ = await loop.create_datagram_endpoint(lambda: found, sock=datagrams)
    server = await asyncio.start_server(found.stream, sock=streams)
    try:
        yield found
    finally:
        transport.close()
        server.close()
        await server.wait_closed()


def addresses(query: Message, count: int = 1, ttl_s: int = 300) -> Message:
    found = make_response(query, recursion_available=True)
    texts = [f"192.0.{n >> 8}.{n & 255}" for n in range(1, count + 1)]
    if not texts:
        return found
    found.answer.append(from_text(query.question[0].name, ttl_s, "IN", "A", *texts))
    return found


def code(query: Message, rcode: Any) -> Message:
    found = make_response(query)
    found.set_rcode(rcode)
    return found


def denied(query: Message) -> Message:
    found = code(query, NXDOMAIN)
    text = "ns.example. x.example. 1 2 3 4 60"
    found.authority.append(from_text("example.", 900, "IN", "SOA", text))
    return found


def settings_for(*resolvers: Resolver, **more: Any) -> DnsSettings:
    return DnsSettings(forwarding=Forwarding(lambda: resolvers, **more), clients=LOOPBACK)


async def ask(port: int, name: str, kind: str = "A", **more: Any) -> Message:
    return from_wire(await over_udp(port, make_query(name, kind, **more).to_wire()))


def a_of(message: Message) -> list[str]:
    return sorted(item.to_text() for each in message.answer for item in each)


def with_others(
    answers: Answers, body: Callable[[DnsServer, int, Elsewhere], Any], **more: Any
) -> None:
    """Run a body with a server that asks one other."""

    async def run() -> None:
        async with (
            elsewhere(answers) as other,
            serving(settings_for(other.resolver, **more)) as (server, port),
        ):
            forwarder = server.forwarder
            assert forwarder is not None
            await eventually(lambda: server.is_synced and other.asked and not forwarder._probes)
            other.asked.clear()
            other.wires.clear()
            other.senders.clear()
            await body(server, port, other)

    asyncio.run(run())


def test_an_answer_is_asked_once_and_grows_old() -> None:
    async def body(server: DnsServer, port: int, other: Elsewhere) -> None:
        first = await ask(port, "WWW.example.com", use_edns=False)
        assert a_of(first) == ["192.0.0.1"]
        assert first.flags & dns.flags.RA
        assert not first.flags & dns.flags.AA
        assert first.question[0].name.to_text() == "WWW.example.com."
        assert first.edns == -1
        again = await ask(port, "www.example.com", use_edns=0)
        assert (a_of(again), again.edns, len(other.asked)) == (["192.0.0.1"], 0, 1)
        assert server.forwarder is not None
        assert server.forwarder.cache.hits["success"] == 1
        page = render(dns_metrics(server, "dns://:53")).decode()
        to = f'to="{other.resolver.host}:{other.resolver.port}"'
        name = "coredns_proxy_request_duration_seconds_count"
        assert f'{name}{{proxy_name="forward",rcode="NOERROR",{to}}} 1' in page
        assert (
            'coredns_plugin_enabled{name="forward",server="dns://:53",view="",zone="."} 1' in page
        )
        (sent,) = other.asked
        assert sent.flags == dns.flags.RD
        assert sent.edns == 0
        query = make_query("www.example.com", "A")
        prepared, _ = server.forwarder.cached(Question(wire_name("www.example.com"), 1)) or (
            None,
            0,
        )
        assert prepared is not None
        asked = read(query.to_wire())
        assert asked is not None
        old = from_wire(prepared.answer(asked, 512, is_recursing=True, age_s=100))
        assert old.answer[0].ttl == 200

    with_others(lambda query: [addresses(query)], body)


def test_denials_are_kept_too() -> None:
    async def body(_server: DnsServer, port: int, other: Elsewhere) -> None:
        for _ in range(3):
            assert (await ask(port, "nothing.example")).rcode() == NXDOMAIN
        assert len(other.asked) == 1

    with_others(lambda query: [denied(query)], body)


def test_many_who_ask_the_same_wait_for_one_answer() -> None:
    async def body(_server: DnsServer, port: int, other: Elsewhere) -> None:
        found = await asyncio.gather(*(ask(port, "same.example") for _ in range(40)))
        assert {tuple(a_of(each)) for each in found} == {("192.0.0.1",)}
        assert len(other.asked) == 1
        await asyncio.gather(*(ask(port, f"n{n}.example") for n in range(30)))
        assert len({each.id for each in other.asked}) > 25, "ids are drawn"
        assert len(other.senders) > 20, "ports are drawn"

    with_others(lambda query: [addresses(query)], body)


def test_what_is_no_answer_is_not_believed() -> None:
    def answers(query: Message) -> list[Message | bytes]:
        wrong_id = make_response(query)
        wrong_id.id = query.id ^ 1
        other = make_query("evil.example", "A", id=query.id)
        forged = addresses(other, 9)
        not_an_answer = query.to_wire()
        broken = addresses(query).to_wire()[:-3]
        return [b"", b"x", wrong_id, forged, not_an_answer, broken, addresses(query, 2)]

    async def body(_server: DnsServer, port: int, _other: Elsewhere) -> None:
        assert a_of(await ask(port, "good.example")) == ["192.0.0.1", "192.0.0.2"]

    with_others(answers, body)


def test_long_answers_come_over_tcp_and_are_cut_for_datagrams() -> None:
    def answers(query: Message) -> list[Message | bytes]:
        name = query.question[0].name.to_text()
        if name not in cut_before:
            cut_before.add(name)
            cut = make_response(query)
            cut.flags |= dns.flags.TC
            return [cut]
        return [addresses(query, 300)]

    cut_before: set[str] = set()

    async def body(_server: DnsServer, port: int, other: Elsewhere) -> None:
        found = await ask(port, "long.example", use_edns=0, payload=1232)
        assert found.flags & dns.flags.TC
        (whole,) = await over_tcp(port, make_query("long.example", "A").to_wire())
        assert len(a_of(from_wire(whole))) == 300
        assert [len(each.question) for each in other.asked] == [1, 1], "UDP, then TCP"

    with_others(answers, body)


def test_one_that_knows_no_options_is_asked_without() -> None:
    def answers(query: Message) -> list[Message | bytes]:
        return [code(query, FORMERR) if query.edns == 0 else addresses(query)]

    async def body(_server: DnsServer, port: int, _other: Elsewhere) -> None:
        assert a_of(await ask(port, "old.example")) == ["192.0.0.1"]

    with_others(answers, body)


def test_the_next_one_is_asked_where_one_fails() -> None:
    async def body() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
            closed.bind(("127.0.0.1", 0))
            dead = Resolver("127.0.0.1", closed.getsockname()[1])
        async with (
            elsewhere(lambda query: [code(query, SERVFAIL)]) as bad,
            elsewhere(lambda query: [addresses(query)]) as good,
            serving(settings_for(dead, bad.resolver, good.resolver)) as (_, port),
        ):
            for number in range(8):
                assert a_of(await ask(port, f"n{number}.example")) == ["192.0.0.1"]

    asyncio.run(body())


def test_a_failure_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "TIMEOUT_S", 0.1)

    async def body() -> None:
        async with (
            elsewhere(lambda _query: []) as silent,
            serving(settings_for(silent.resolver)) as (_, port),
        ):
            assert (await ask(port, "x.example")).rcode() == SERVFAIL
        async with serving(settings_for()) as (_, port):
            assert (await ask(port, "x.example")).rcode() == SERVFAIL
            assert (await ask(port, "web.nowhere.svc.cluster.local")).rcode() != SERVFAIL

    asyncio.run(body())


def test_who_waits_for_too_many_is_refused() -> None:
    async def body(server: DnsServer, port: int, _other: Elsewhere) -> None:
        held = [asyncio.create_task(ask(port, f"n{n}.example")) for n in range(3)]
        forwarder = server.forwarder
        assert forwarder is not None
        await eventually(lambda: len(forwarder._asking) >= 3)
        with pytest.raises(NotResolvedError, match=r"127\.0\.0\.1 waits for 3 answers already"):
            await forwarder.resolve(Question(wire_name("n9.example"), 1), "127.0.0.1")
        assert (await ask(port, "n10.example")).rcode() == REFUSED
        other_client = asyncio.create_task(
            forwarder.resolve(Question(wire_name("n11.example"), 1), "10.0.0.1")
        )
        await asyncio.sleep(0)
        with pytest.raises(NotResolvedError, match="4 questions wait"):
            await forwarder.resolve(Question(wire_name("n12.example"), 1), "10.0.0.2")
        assert forwarder.refused == 3
        for each in (*held, other_client):
            each.cancel()
        await asyncio.gather(*held, other_client, return_exceptions=True)

    def silent(query: Message) -> list[Message | bytes]:
        return [] if "example" in query.question[0].name.to_text() else [code(query, NXDOMAIN)]

    with_others(silent, body, of_client_max=3, at_once_max=4)


def test_clients_that_want_no_recursion_get_none() -> None:
    async def body(_server: DnsServer, port: int, other: Elsewhere) -> None:
        assert (await ask(port, "x.example", flags=0)).rcode() == REFUSED
        assert not other.asked

    with_others(lambda query: [addresses(query)], body)


def test_an_alias_is_followed_to_others() -> None:
    async def body(_server: DnsServer, port: int, other: Elsewhere) -> None:
        found = await ask(port, "abroad.default.svc.cluster.local")
        assert a_of(found) == ["192.0.0.1", "foo.example.com."]
        assert found.flags & dns.flags.AA
        only = await ask(port, "abroad.default.svc.cluster.local", "CNAME")
        assert a_of(only) == ["foo.example.com."]
        assert [each.question[0].name.to_text() for each in other.asked] == ["foo.example.com."]
        # Names of the cluster are asked of nobody.
        await ask(port, "nothing.default.svc.cluster.local")
        assert len(other.asked) == 1
        # Addresses of the cluster neither; those of others are.
        assert a_of(await ask(port, "7.0.96.10.in-addr.arpa", "PTR")) == [
            "web.default.svc.cluster.local."
        ]
        await ask(port, "9.9.9.9.in-addr.arpa", "PTR")
        assert len(other.asked) == 2

    with_others(lambda query: [addresses(query)], body)


def test_an_alias_is_reported_though_its_target_is_not_resolved() -> None:
    async def body(_server: DnsServer, port: int, _other: Elsewhere) -> None:
        found = await ask(port, "abroad.default.svc.cluster.local")
        assert (a_of(found), to_text(found.rcode())) == (["foo.example.com."], "NOERROR")

    with_others(lambda query: [code(query, REFUSED)], body)


def test_stub_domains() -> None:
    async def body() -> None:
        async with (
            elsewhere(lambda query: [addresses(query, 1)]) as all_others,
            elsewhere(lambda query: [addresses(query, 2)]) as corp,
            elsewhere(lambda query: [addresses(query, 3)]) as eu,
        ):
            stubs = tuple(
                (labels_of(wire_name(name)), (each.resolver,))
                for name, each in (("corp.example", corp), ("eu.corp.example", eu))
            )
            async with serving(settings_for(all_others.resolver, stubs=stubs)) as (_, port):
                for name, count in (("example", 1), ("notcorp.example", 1), ("corp.example", 2),
                                    ("a.Corp.example", 2), ("a.eu.corp.example", 3)):  # fmt: skip
                    assert len(a_of(await ask(port, name))) == count, name

    asyncio.run(body())


def test_a_resolver_that_asks_this_server_is_asked_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forwarding, "TIMEOUT_S", 0.2)

    async def body() -> None:
        resolvers: list[Resolver] = []
        settings = DnsSettings(forwarding=Forwarding(lambda: resolvers), clients=LOOPBACK)
        async with serving(settings) as (server, port):
            forwarder = server.forwarder
            assert forwarder is not None
            resolvers.append(Resolver("127.0.0.1", port))
            found = await ask(port, "loops.example")  # its own question waits for itself
            assert found.rcode() == SERVFAIL
            assert len(server.traffic.queries) == 1
            await forwarder.probe()
            assert forwarder._looping == set(resolvers)
            (line,) = forwarder._logger.of("error")  # type: ignore[attr-defined]
            assert line[1] == {"resolver": f"127.0.0.1:{port}"}
            before = sum(server.traffic.queries.values())
            assert (await ask(port, "other.example")).rcode() == SERVFAIL
            assert sum(server.traffic.queries.values()) == before + 1

    asyncio.run(body())


def test_its_own_address_is_asked_nothing() -> None:
    own = Resolver("127.0.0.1", 53)
    made = Forwarder(Forwarding(lambda: (own,), own=frozenset((own,))), SystemClock(), ListLog())
    assert made._in_order(Question(wire_name("a.example"), 1)) == []


def query_of(name: str) -> Message:
    return make_query(name, "A")


def test_how_long_answers_are_kept() -> None:
    limits = Limits(found_s=1000, missing_s=50)
    query = query_of("a.example")
    assert lifetime_s(addresses(query, ttl_s=300), limits) == 300
    assert lifetime_s(addresses(query, ttl_s=3000), limits) == 1000
    assert lifetime_s(addresses(query, ttl_s=0), limits) == 5
    assert lifetime_s(denied(query), limits) == 50
    assert lifetime_s(denied(query), Limits()) == 60
    assert lifetime_s(make_response(query), limits) == 5
    assert lifetime_s(code(query, SERVFAIL), limits) == 5


def test_the_cache_has_limits() -> None:
    cache = AnswerCache[str](entries_max=3, bytes_max=200)
    small, large = (
        PreparedAnswer(addresses(query_of("a."))),
        PreparedAnswer(addresses(query_of("a."), 12)),
    )
    for number in range(5):
        cache.put(f"n{number}", CachedAnswer(small, 0, 10))
    assert cache.sizes == {"success": 3, "denial": 0}
    assert cache.get("n0", 1) is None
    assert cache.get("n4", 1) is not None
    assert cache.get("n4", 10) is None
    cache.put("large", CachedAnswer(large, 0, 10))
    assert cache.sizes["success"] == 1
    cache.put("larger", CachedAnswer(PreparedAnswer(addresses(query_of("a."), 20)), 0, 10))
    assert cache.sizes["success"] == 0
    denial = PreparedAnswer(denied(query_of("a.")))
    cache.put("large", CachedAnswer(large, 0, 10))
    cache.put("large", CachedAnswer(denial, 0, 10))
    assert cache.sizes == {"success": 0, "denial": 1}


def test_the_resolvers_of_the_node_follow_its_file(tmp_path: Path) -> None:
    file, clock = tmp_path / "resolv.conf", HandClock(0.0)
    resolvers = NodeResolvers(clock, str(file))
    assert resolvers() == ()
    file.write_text("nameserver 192.0.2.1\nnameserver a-name\nnameserver fd00::1\n")
    assert resolvers() == ()
    clock.now = 5
    assert resolvers() == (Resolver("192.0.2.1"), Resolver("fd00::1"))
    file.unlink()
    clock.now = 10
    assert resolvers() == ()
    file.write_text("".join(f"nameserver 192.0.2.{n}\n" for n in range(1, 40)))
    clock.now = 15
    assert len(resolvers()) == 15


def test_servers_behind_the_machines_own_are_asked(tmp_path: Path) -> None:
    file, behind = tmp_path / "resolv.conf", tmp_path / "behind"
    file.write_text("nameserver 127.0.0.53\nsearch Example.org. .\n")
    assert for_pods(str(file), str(behind)).servers == ["127.0.0.53"]
    assert for_pods(str(file), str(behind)).searches == ["Example.org", "."]
    behind.write_text("nameserver 192.0.2.9\n")
    assert for_pods(str(file), str(behind)).servers == ["192.0.2.9"]


@given(st.integers(0, 3), st.data())
@settings(max_examples=300, deadline=None)
def test_an_answer_that_was_damaged_is_kept_well_or_not_at_all(
    which: int, data: st.DataObject
) -> None:
    query = make_query("a.example", "A", use_edns=0)
    made = (addresses(query, 3), denied(query), code(query, REFUSED), addresses(query, 0))[which]
    damaged = bytearray(made.to_wire())
    for _ in range(data.draw(st.integers(0, 6))):
        damaged[data.draw(st.integers(2, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    question = Question(wire_name("a.example"), 1)
    found = _answer(bytes(damaged), query.id, question)
    if found is not None:
        own = Forwarder(Forwarding(lambda: ()), SystemClock(), ListLog())
        kept = own._keep(question, found)
        asked = read(query.to_wire())
        assert asked is not None
        from_wire(kept.prepared.answer(asked, 1232, is_recursing=True, age_s=3))


def test_a_code_without_a_name_passes_through() -> None:
    query = make_query("a.example", "A")
    own = Forwarder(Forwarding(lambda: ()), SystemClock(), ListLog())
    kept = own._keep(Question(wire_name("a.example"), 1), code(query, Rcode.make(13)))
    assert kept.prepared.code == 13
