"""Search paths that the server walks: it answers what the client's own walk would end with."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from dns.message import Message, from_wire, make_query, make_response
from dns.rcode import NOERROR, NXDOMAIN, SERVFAIL
from dns.rdatatype import CNAME, A, RdataType
from dns.rrset import from_text
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstack.agents.client.built_in import PODS, SERVICES
from kvstack.agents.dns.forwarding.answer_cache import CachedAnswer
from kvstack.agents.dns.forwarding.exchange import Question
from kvstack.agents.dns.forwarding.forwarder import Forwarder, Forwarding, NotResolvedError
from kvstack.agents.dns.prepared import PreparedAnswer
from kvstack.agents.dns.query import Query, labels_of, wire_name
from kvstack.agents.dns.responder import Responder
from kvstack.agents.dns.search_paths import NDOTS, SearchPaths, meant
from kvstack.agents.dns.server import DnsServer, DnsSettings
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.dns.given import (
    LOOPBACK,
    GivenInformers,
    cluster,
    meta,
    over_udp,
    service,
    serving,
)
from tests.agents.dns.test_forwarding import Elsewhere, a_of, elsewhere
from tests.support.waiting import eventually

CLIENT, STRANGER = "10.244.0.77", "10.244.0.78"
OF_NODE = ("corp.example",)
DOMAIN = "cluster.local"


def pod(ip: str = CLIENT, *, namespace: str = "default", uid: str = "", phase: str = "Running",
        host_ip: str = "10.0.0.1", **spec: Any) -> Object:  # fmt: skip
    status = {"phase": phase, "podIPs": [{"ip": ip}], "hostIPs": [{"ip": host_ip}]}
    own = {**meta("a-pod", namespace), **({"uid": uid} if uid else {})}
    return {"metadata": own, "spec": {"dnsPolicy": "ClusterFirst", **spec}, "status": status}


def paths(*pods: Object) -> SearchPaths:
    found = SearchPaths(DOMAIN, lambda: OF_NODE)
    for each in pods:
        found.put(each)
    return found


class Others:
    """What others say: an address, that there is nothing, or nothing at all."""

    def __init__(self, said: Mapping[str, str | int]) -> None:
        """said: of names: an address, or a code."""
        self._said = said
        self._kept: dict[Question, PreparedAnswer] = {}
        self.asked: list[str] = []

    def is_probe(self, question: Question) -> bool:
        assert question
        return False

    def cached(self, question: Question) -> tuple[PreparedAnswer, int] | None:
        kept = self._kept.get(question)
        return None if kept is None else (kept, 0)

    async def resolve(self, question: Question, client: str) -> tuple[PreparedAnswer, int]:
        assert client
        name = b".".join(labels_of(question.name)).decode()
        self.asked.append(name)
        said = self._said.get(name, NXDOMAIN)
        if said == SERVFAIL:
            raise NotResolvedError(SERVFAIL, "nobody knows")
        answer = make_response(make_query(name, RdataType(question.kind)))
        if isinstance(said, str) and question.kind == A:
            answer.answer.append(from_text(f"{name}.", 60, "IN", "A", said))
        if said == NXDOMAIN:
            answer.set_rcode(NXDOMAIN)
        found = self._kept[question] = PreparedAnswer(answer)
        return found, 0


def responder(others: Others | None, walked: SearchPaths | None) -> Responder:
    found = Responder(cluster(), cast("Forwarder | None", others), walked)
    found.is_synced = True
    return found


def ask(own: Responder, name: str, kind: str = "A", client: str = CLIENT) -> Message:
    """Return an answer, waited for if need be."""

    async def run() -> bytes:
        found = own.at_once(make_query(name, kind).to_wire(), client)
        if isinstance(found, Query):
            return await own.later(found, client)
        assert found is not None
        return found

    return from_wire(asyncio.run(run()))


def walk(own: Responder, base: str) -> Message:
    """Walk a path as a client does: on, where a name does not exist; return the last answer."""
    for domain in ("default.svc.cluster.local", "svc.cluster.local", DOMAIN, *OF_NODE):
        answer = ask(own, f"{base}.{domain}")
        if answer.rcode() != NXDOMAIN:
            return answer
    return ask(own, base)


def addresses_of(answer: Message) -> list[str]:
    return sorted(it.to_text() for each in answer.answer if each.rdtype != CNAME for it in each)


NAMES = (
    "web",
    "peers",
    "default",
    "kube-system",
    "kube-dns",
    "svc",
    "github",
    "com",
    "abroad",
    "x",
)
SAID = st.sampled_from(("192.0.2.1", "192.0.2.2", NOERROR, NXDOMAIN))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=NDOTS + 1).map(".".join),
    SAID,
    SAID,
)
def test_one_query_ends_where_the_walk_of_a_client_ends(
    base: str, alone: str | int, corp: str | int
) -> None:
    said = {base: alone, f"{base}.corp.example": corp, "foo.example.com": "192.0.2.9"}
    by_client = walk(responder(Others(said), None), base)
    by_server = ask(responder(Others(said), paths(pod())), f"{base}.default.svc.cluster.local")
    if by_server.rcode() != NXDOMAIN:
        assert addresses_of(by_server) == addresses_of(by_client)
        assert by_server.rcode() == by_client.rcode()
    # Where the first answer is that there is nothing, the client walks on itself, with that result:
    with_both = walk(responder(Others(said), paths(pod())), base)
    assert addresses_of(with_both) == addresses_of(by_client)


def test_names_of_others_are_one_query_and_an_alias() -> None:
    others = Others({"github.com": "192.0.2.1"})
    own = responder(others, paths(pod()))
    name = "GitHub.com.default.svc.cluster.local."
    for _ in range(2):
        answer = ask(own, name)
        alias, address = answer.answer
        assert alias.to_text() == f"{name} 30 IN CNAME github.com."
        assert address.to_text() == "github.com. 60 IN A 192.0.2.1"
    assert others.asked == ["github.com.corp.example", "github.com"]
    other_type = ask(own, name, "AAAA")
    assert other_type.rcode() == NOERROR, "else a client would believe that there is no address"
    assert addresses_of(other_type) == []


def test_names_of_other_namespaces_are_one_query() -> None:
    own = responder(None, paths(pod()))
    answer = ask(own, "kube-dns.kube-system.default.svc.cluster.local")
    assert [each.to_text() for each in answer.answer] == [
        "kube-dns.kube-system.default.svc.cluster.local. 30 IN CNAME "
        "kube-dns.kube-system.svc.cluster.local.",
        "kube-dns.kube-system.svc.cluster.local. 30 IN A 10.96.0.10",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "nothing.default.svc.cluster.local",  # a Service that there is not (yet)
        "nobody.peers.default.svc.cluster.local",  # an endpoint that there is not
        "github.com.kube-system.svc.cluster.local",  # of another namespace
        "a.b.c.d.e.com.default.svc.cluster.local",  # asked for as it is before
        "github.com.default.pod.cluster.local",
        "git\\.hub.com.default.svc.cluster.local",
        "*.com.default.svc.cluster.local",
    ],
)
def test_what_is_no_search_is_answered_as_it_is(name: str) -> None:
    others = Others(dict.fromkeys(("github.com", "nothing", "nobody.peers"), "192.0.2.1"))
    own = responder(others, paths(pod()))
    assert ask(own, name).rcode() == NXDOMAIN
    assert not others.asked


def test_others_get_their_own_answer() -> None:
    others = Others({"github.com": "192.0.2.1"})
    own = responder(others, paths(pod()))
    name = "github.com.default.svc.cluster.local"
    for _ in range(2):
        assert ask(own, name, client=STRANGER).rcode() == NXDOMAIN
        assert addresses_of(ask(own, name)) == ["192.0.2.1"]
    assert ask(own, name, "TXT").rcode() == NOERROR, "searches are for addresses"


@pytest.mark.parametrize("failing", ["github.com", "github.com.corp.example"])
def test_where_others_fail_the_client_walks_itself(failing: str) -> None:
    others = Others({"github.com": "192.0.2.1", failing: SERVFAIL})
    own = responder(others, paths(pod()))
    assert ask(own, "github.com.default.svc.cluster.local").rcode() == NXDOMAIN


def test_a_service_that_comes_is_seen() -> None:
    others = Others({"web.other": "192.0.2.1"})
    own = responder(others, paths(pod()))
    name = "web.other.default.svc.cluster.local"
    assert addresses_of(ask(own, name)) == ["192.0.2.1"]
    own._cluster.put_namespace("other")
    key = own._cluster.put_service(service("web", ["10.96.0.99"], namespace="other"), 0)
    own.changed(key)
    assert addresses_of(ask(own, name)) == ["10.96.0.99"]


def test_who_does_not_want_others_to_be_asked() -> None:
    others = Others({"github.com": "192.0.2.1"})
    own = responder(others, paths(pod()))
    query = make_query("github.com.default.svc.cluster.local", "A", flags=0)
    answer = own.at_once(query.to_wire(), CLIENT)
    assert isinstance(answer, bytes)
    assert from_wire(answer).rcode() == NXDOMAIN


def test_an_alias_that_was_asked_for_alone_is_not_all_that_others_get() -> None:
    own = responder(Others({"foo.example.com": "192.0.2.1"}), None)
    name = "abroad.default.svc.cluster.local"
    alone = own.at_once(make_query(name, "A", flags=0).to_wire(), CLIENT)
    assert isinstance(alone, bytes)
    assert addresses_of(from_wire(alone)) == []
    assert addresses_of(ask(own, name)) == ["192.0.2.1"]


@pytest.mark.parametrize(
    "other",
    [
        pod(hostNetwork=True),
        pod(host_ip=CLIENT),
        pod(phase="Succeeded"),
        pod(dnsPolicy="Default"),
        pod(dnsPolicy="None", dnsConfig={"nameservers": ["10.96.0.10"]}),
        pod(dnsConfig={"options": [{"name": "ndots", "value": "2"}]}),
        pod(namespace="other"),
    ],
)
def test_pods_with_another_path_walk_it_themselves(other: Object) -> None:
    assert not paths(other).is_of(CLIENT, "default")


def test_an_address_is_its_last_pods() -> None:
    old, new = pod(uid="1"), pod(namespace="other", uid="2")
    found = paths(old, new)
    assert found.is_of(CLIENT, "other")
    found.drop(old)
    assert found.is_of(CLIENT, "other")
    found.drop(new)
    assert not found.is_of(CLIENT, "other")


def test_addresses_are_compared_in_their_shortest_form() -> None:
    assert paths(pod("fd00:0::1")).is_of("fd00::1", "default")


def test_names_that_are_too_long_are_left_out() -> None:
    found = SearchPaths(DOMAIN, lambda: (".".join(["a" * 60] * 4), "bad..name", "ok.example"))
    base: Sequence[str] = ("git", "x" * 20)
    text = ".".join(base)
    ends = ("svc.cluster.local", DOMAIN, "ok.example")
    assert found.names(base) == [*(f"{text}.{each}" for each in ends), text]
    assert meant((*base, "default", "svc")) == base


def test_a_server_follows_pods() -> None:
    def answers(query: Message) -> list[Message | bytes]:
        found = make_response(query)
        name = query.question[0].name.to_text()
        if name == "github.com.":
            found.answer.append(from_text(name, 60, "IN", "A", "192.0.2.1"))
        else:
            found.set_rcode(NXDOMAIN)
        return [found]

    async def run() -> None:
        informers = GivenInformers()
        informers.give_all()
        async with elsewhere(answers) as other:
            forwarding = Forwarding(lambda: (other.resolver,))
            wanted = DnsSettings(
                forwarding=forwarding, clients=LOOPBACK, searches_of_node=lambda: OF_NODE
            )
            async with serving(wanted, informers) as (server, port):
                await eventually(lambda: server.is_synced)
                await _walks(informers, server, port, other)

    asyncio.run(run())


async def _walks(informers: GivenInformers, server: DnsServer, port: int, other: Elsewhere) -> None:
    wire = make_query("github.com.default.svc.cluster.local", "A").to_wire()
    assert from_wire(await over_udp(port, wire)).rcode() == NXDOMAIN
    informers.give(PODS, [pod("127.0.0.1")])
    assert a_of(from_wire(await over_udp(port, wire))) == ["192.0.2.1", "github.com."]
    asked = [each.question[0].name.to_text() for each in other.asked if "corp" in str(each)]
    assert asked == ["github.com.corp.example."]
    informers.give(SERVICES, [service("com")])
    assert from_wire(await over_udp(port, wire)).rcode() == NXDOMAIN
    informers.give(SERVICES, [])
    assert a_of(from_wire(await over_udp(port, wire))) == ["192.0.2.1", "github.com."]
    informers.give(PODS, [])
    assert from_wire(await over_udp(port, wire)).rcode() == NXDOMAIN
    assert server.forwarder is not None
    question = Question(wire_name("github.com"), 1)
    kept = server.forwarder.cache.get(question, 0)
    assert isinstance(kept, CachedAnswer)
