"""The metrics page: CoreDNS' names, types and labels, and what the counts of this server are."""

import asyncio
import re
from fnmatch import fnmatch
from typing import Any

import pytest
from dns.message import from_wire, make_query
from dns.rcode import SERVFAIL
from typing_extensions import override

from kvstack.agents.client.built_in import ENDPOINT_SLICES, SERVICES
from kvstack.agents.dns.absent import ABSENT
from kvstack.agents.dns.faults import LOGGED_S, Faults
from kvstack.agents.dns.forwarding.answer_cache import AnswerCache, CachedAnswer
from kvstack.agents.dns.forwarding.exchange import Resolver
from kvstack.agents.dns.metrics import dns_metrics
from kvstack.agents.dns.programming import Programming
from kvstack.agents.dns.server import DnsServer
from kvstack.apimachinery.well_known import ENDPOINTS_TRIGGER_TIME_ANNOTATION
from kvstack.component.clock import SystemClock
from kvstack.component.metrics.exposition import render
from tests.agents.dns.coredns_metrics import METRICS, metrics_of
from tests.agents.dns.given import (
    GivenInformers,
    endpoint,
    over_tcp,
    over_udp,
    piece,
    service,
    serving,
)
from tests.agents.dns.test_forwarding import addresses, ask, settings_for, with_others
from tests.support.list_log import ListLog
from tests.support.network.ports import free_ports
from tests.support.waiting import eventually

WEB = "web.default.svc.cluster.local"
NOW_S = 1_700_000_000.5
SERVER = "dns://:53"


def page_of(server: DnsServer) -> str:
    return render(dns_metrics(server, SERVER)).decode()


def value(page: str, name: str) -> float:
    """Return the sum of the samples of a name."""
    found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", page, re.MULTILINE)
    assert found, name
    return sum(map(float, found))


def changed_slice(time: str) -> dict[str, Any]:
    found = piece("web", endpoint("10.244.0.9"), ports=[("http", 8080, "TCP")])
    found["metadata"]["resourceVersion"] = time
    found["metadata"]["annotations"] = {ENDPOINTS_TRIGGER_TIME_ANNOTATION: time}
    return found


def test_names_types_and_labels_are_those_of_coredns() -> None:
    async def body(server: DnsServer, port: int, _other: Any) -> None:
        await ask(port, WEB)
        await over_tcp(port, make_query(WEB, "A").to_wire())
        await ask(port, "www.example.com")
        changed = changed_slice("2023-11-14T22:13:20Z")
        server.programming.count(None, changed, NOW_S, is_headless=False)
        served = metrics_of(page_of(server))
        assert {name: METRICS.get(name) for name in served} == served
        # What is not served, and nothing else, is listed for users.
        listed = re.findall(r"`(coredns_[a-z0-9_*]+)`", "".join(each.what for each in ABSENT))
        missing = {name for name in METRICS if any(fnmatch(name, each) for each in listed)}
        assert missing == METRICS.keys() - served.keys() - {"coredns_autopath_success_total"}
        assert all(any(fnmatch(name, each) for name in METRICS) for each in listed)

    with_others(lambda query: [addresses(query)], body)


def test_bounds_of_histograms_are_those_of_coredns() -> None:
    programming = Programming()
    programming.count(None, changed_slice("2023-11-14T22:13:20Z"), NOW_S, is_headless=True)
    (seconds,) = programming.seconds.values()
    assert len(seconds.bounds) == 20
    assert (seconds.bounds[0], seconds.bounds[-1]) == (0.001, 524.288)


def test_changes_of_endpoints_are_timed_once() -> None:
    programming = Programming()
    first, second = changed_slice("2023-11-14T22:13:20Z"), changed_slice("2023-11-14T22:13:20.25Z")
    programming.count(None, first, NOW_S, is_headless=False)
    programming.count(first, {**first}, NOW_S, is_headless=False)  # another field has changed
    programming.count(first, second, NOW_S, is_headless=False)
    assert programming.seconds["cluster_ip"].total == pytest.approx(0.75)
    assert sum(programming.seconds["cluster_ip"].counts) == 2
    programming.count(None, changed_slice("2023-11-14T22:13:21Z"), NOW_S, is_headless=True)
    assert programming.seconds["headless_with_selector"].total == 0  # another clock goes ahead
    for bad in ("", "yesterday", "2023-99-14T22:13:20Z", "x" * 100_000):
        programming.count(None, changed_slice(bad), NOW_S, is_headless=True)
    programming.count(None, piece("web"), NOW_S, is_headless=True)
    assert sum(programming.seconds["headless_with_selector"].counts) == 1


def test_slices_of_a_running_cluster_are_timed_and_those_before_are_not() -> None:
    async def body() -> None:
        informers = GivenInformers()
        informers.give_all()
        old = changed_slice("2023-11-14T22:13:20Z")
        informers.give(ENDPOINT_SLICES, [old])
        async with serving(informers=informers) as (server, _):
            await eventually(lambda: server.is_synced)
            assert server.programming.seconds == {}
            peers = piece("peers", endpoint("10.244.0.4"), ports=[("raft", 1, "TCP")])
            alias = piece("abroad", endpoint("10.244.0.4"))
            for each in (peers, alias):
                each["metadata"]["annotations"] = {
                    ENDPOINTS_TRIGGER_TIME_ANNOTATION: "2023-11-14T22:13:20Z"
                }
            informers.give(ENDPOINT_SLICES, [changed_slice("2024-11-14T22:13:20Z"), peers, alias])
            counts = {kind: sum(each.counts) for kind, each in server.programming.seconds.items()}
            assert counts == {"cluster_ip": 1, "headless_with_selector": 1}
            informers.give(SERVICES, [service("web")])

    asyncio.run(body())


def test_a_query_at_which_the_program_fails_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(server: DnsServer, port: int, _other: Any) -> None:
        responder = server.responder
        bad = make_query(f"bad.{WEB}", "A").to_wire()
        at_once, later = responder.at_once, responder.later

        def fails(data: bytes, *words: Any, **more: Any) -> Any:
            if b"\3bad" in data:
                raise ZeroDivisionError("one of ours")
            return at_once(data, *words, **more)

        async def fails_later(query: Any, *words: Any, **more: Any) -> bytes:
            if b"worse" in query.name:
                raise ZeroDivisionError("another one of ours")
            return await later(query, *words, **more)

        monkeypatch.setattr(responder, "at_once", fails)
        monkeypatch.setattr(responder, "later", fails_later)
        for wire in (bad, make_query("worse.example", "A").to_wire()):
            query = from_wire(wire)
            for answer in (await over_udp(port, wire), (await over_tcp(port, wire))[0]):
                failure = from_wire(answer)
                assert failure.rcode() == SERVFAIL
                assert (failure.id, failure.question) == (query.id, query.question)
        assert (await ask(port, WEB)).answer
        assert value(page_of(server), "coredns_panics_total") == 4

    with_others(lambda query: [addresses(query)], body)


def test_faults_are_logged_once_a_minute() -> None:
    class GivenClock(SystemClock):
        seconds = 0.0

        @override
        def monotonic_s(self) -> float:
            return self.seconds

    clock, log = GivenClock(), ListLog()
    faults = Faults(clock, log)
    wire = make_query(WEB, "A").to_wire()
    for _ in range(10):
        assert faults.answer(wire, ValueError("x"), is_recursing=False) is not None
    assert len(log.of("error")) == 1
    assert "ValueError: x" in str(log.of("error"))
    clock.seconds = LOGGED_S
    assert faults.answer(bytes(4096), ValueError("x"), is_recursing=False) is not None
    assert faults.answer(b"x", ValueError("x"), is_recursing=False) is None
    assert len(log.of("error")) == 2
    assert faults.count == 12
    assert len(str(log.of("error")[1][1]["query"])) == 512


def test_questions_without_any_resolver_that_works_are_counted() -> None:
    async def body() -> None:
        (port,) = free_ports(1)
        settings = settings_for(Resolver("127.0.0.1", port))
        async with serving(settings) as (server, own):
            await eventually(lambda: server.is_synced)
            forwarder = server.forwarder
            assert forwarder is not None
            await eventually(lambda: not forwarder._probes)
            assert (await ask(own, "one.example")).rcode() == SERVFAIL
            before = forwarder.without_health
            assert (await ask(own, "two.example")).rcode() == SERVFAIL
            assert forwarder.without_health == before + 1
            page = page_of(server)
            assert value(page, "coredns_forward_healthcheck_broken_total") == before + 1

    asyncio.run(body())


def test_answers_that_make_room_are_counted_by_type() -> None:
    cache = AnswerCache[int](entries_max=2)

    class Prepared:
        body = b""

        def __init__(self, count: int) -> None:
            self.code, self.counts = 0, (count, 0, 0)

    for number in range(5):
        cache.put(number, CachedAnswer(Prepared(1), 0, 9))  # type: ignore[arg-type]
    for number in range(10, 13):
        cache.put(number, CachedAnswer(Prepared(0), 0, 9))  # type: ignore[arg-type]
    cache.get(12, 10)  # too old: it made no room
    assert cache.evictions == {"success": 3, "denial": 1}
