"""Answers queries: names of the cluster at once, others when a resolver has answered.

    found = responder.at_once(data, client)    bytes; None: nothing is answered; a Query: not yet
    found = await responder.later(query, client)

Names below the cluster's domain are answered here and nowhere else. The names of addresses are
answered here if the address is the cluster's. An ExternalName leads on, here or elsewhere; where
search paths are walked, so does the first name of a pod's path if it does not exist.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

import dns.exception
from dns.message import from_wire
from dns.rcode import NOERROR
from dns.rdatatype import AAAA, CNAME, PTR, A
from dns.rrset import RRset

from kvstack.agents.dns.cluster import UNKNOWN, Cluster, Record, Resolution
from kvstack.agents.dns.forwarding.exchange import Question
from kvstack.agents.dns.forwarding.forwarder import Forwarder, NotResolvedError
from kvstack.agents.dns.known_answers import KnownAnswers
from kvstack.agents.dns.messages import message
from kvstack.agents.dns.prepared import MESSAGE_BYTES_MAX, PreparedAnswer, limit_of, problem
from kvstack.agents.dns.query import (
    IN,
    NXDOMAIN,
    REFUSED,
    SERVFAIL,
    Query,
    labels_of,
    read,
    wire_name,
)
from kvstack.agents.dns.reverse import address_of, is_reverse
from kvstack.agents.dns.search_paths import SearchPaths, meant
from kvstack.agents.dns.services import Key

ALIASES_MAX: Final = 8
"""Names that lead from one to the next."""
COMPOSED_MAX: Final = 4096
"""Answers of several names that are kept."""
_IN_BYTES: Final = IN.to_bytes(2, "big")

AgedAnswer: TypeAlias = tuple[PreparedAnswer, int]
"""An answer of other resolvers, and its age in seconds."""


class _AliasedResolution(NamedTuple):
    """The resolution of a name of the cluster, with aliases that lead outside."""

    found: Resolution
    answers: tuple[Record, ...]
    target: str = ""
    is_direct: bool = True
    is_for_all: bool = True
    """Whether all clients get this answer."""


class Responder:
    """Answers queries."""

    def __init__(
        self, cluster: Cluster, forwarder: Forwarder | None, paths: SearchPaths | None = None
    ) -> None:
        """forwarder: for names of others; None: they are refused. paths: that are walked here."""
        self._cluster = cluster
        self._forwarder = forwarder
        self._paths = paths
        self._zone = labels_of(wire_name(cluster.options.domain))
        self._known = KnownAnswers(is_recursing=forwarder is not None)
        self._composed: dict[tuple[bytes, int, str], tuple[AgedAnswer | None, PreparedAnswer]] = {}
        self._turn = 0
        self.followed = 0
        """Queries whose client's search path was followed here, to a name that exists."""
        self.is_synced = False
        """Whether the cluster is synced; before, an unknown name may exist."""

    @property
    def is_recursing(self) -> bool:
        """Whether names outside of the cluster are resolved."""
        return self._forwarder is not None

    def changed(self, service: Key | None) -> None:
        """Forget answers that a change of a Service, or (None) of anything else, makes wrong."""
        self._known.forget(service)
        self._composed.clear()

    @property
    def follows_paths(self) -> bool:
        """Whether search paths of clients are followed here."""
        return self._paths is not None

    def at_once(
        self, data: bytes, client: str = "", *, is_tcp: bool = False
    ) -> bytes | Query | None:
        """Return the answer of a query; None: there is none; a Query: it must be waited for."""
        answer = self._known.answer(data, MESSAGE_BYTES_MAX if is_tcp else 0)
        if answer is not None:
            return answer
        query = read(data)
        if query is None:
            return None
        if query.problem:
            return self._problem(query, query.problem)
        limit = MESSAGE_BYTES_MAX if is_tcp else limit_of(query)
        labels = labels_of(query.name)
        count = len(self._zone)
        if labels[len(labels) - count :] == self._zone and len(labels) >= count:
            return self._of_cluster(query, labels[: len(labels) - count], client, limit)
        if is_reverse(labels):
            return self._of_address(query, labels, limit)
        return self._of_others(query, limit)

    async def later(self, query: Query, client: str, *, is_tcp: bool = False) -> bytes:
        """Return the answer of a query that has to be waited for."""
        limit = MESSAGE_BYTES_MAX if is_tcp else limit_of(query)
        labels = labels_of(query.name)
        count = len(self._zone)
        try:
            if labels[len(labels) - count :] == self._zone and len(labels) >= count:
                own = _texts(labels[: len(labels) - count])
                return await self._of_cluster_later(query, own, client, limit)
            prepared, age_s = await self._resolve(_question(query), client)
        except NotResolvedError as error:
            return self._problem(query, error.code)
        return prepared.answer(query, limit, is_recursing=True, age_s=age_s)

    def _problem(self, query: Query, code: int) -> bytes:
        return problem(query, code, is_recursing=self.is_recursing)

    async def _resolve(self, question: Question, client: str) -> tuple[PreparedAnswer, int]:
        if self._forwarder is None:
            raise NotResolvedError(REFUSED, "forwarding is disabled")
        return await self._forwarder.resolve(question, client)

    # Names of the cluster.

    def _of_cluster(
        self, query: Query, labels: Sequence[bytes], client: str, limit: int
    ) -> bytes | Query:
        if not self.is_synced:
            return self._problem(query, SERVFAIL)
        led = self._look(query, _texts(labels), client, self._known_of_others)
        if isinstance(led, Question):
            return query
        if led.target and self._resolves(query):
            answered = self._known_of_others(_question(query, led.target))
            if answered is None:
                return query
            return self._sent(self._composition(query, led, answered), query, limit)
        if not led.is_for_all or (led.target and self.is_recursing):
            return self._sent(self._composition(query, led), query, limit)
        prepared = self._prepared(query, led)
        self._known.keep(query, prepared, led.found.service if led.is_direct else None)
        return self._sent(prepared, query, limit)

    async def _of_cluster_later(
        self, query: Query, labels: Sequence[str], client: str, limit: int
    ) -> bytes:
        """Return the answer of a name that leads to others'; the alias alone if that fails."""
        resolved: dict[Question, AgedAnswer] = {}

        def cached(question: Question) -> AgedAnswer | None:
            return resolved.get(question) or self._known_of_others(question)

        led = self._led(UNKNOWN, query.kind)
        try:
            while isinstance(step := self._look(query, labels, client, cached), Question):
                resolved[step] = await self._resolve(step, client)
            led = step
            if led.target:
                question = _question(query, led.target)
                answered = cached(question) or await self._resolve(question, client)
                return self._sent(self._composition(query, led, answered), query, limit)
        except NotResolvedError:
            pass  # an alias is true whatever it leads to, and clients walk their paths themselves
        return self._sent(self._composition(query, led), query, limit)

    def _look(
        self,
        query: Query,
        labels: Sequence[str],
        client: str,
        cached: Callable[[Question], AgedAnswer | None],
    ) -> _AliasedResolution | Question:
        """Return what a name stands for; a Question: what has to be known of others first."""
        led = self._led(self._cluster.find(labels, query.kind), query.kind)
        base = meant(labels) if query.kind in (A, AAAA) else ()
        if self._paths is None or led.found.exists or not base:
            return led
        led = led._replace(is_for_all=False)
        namespace = labels[-2]
        is_of_service = self._cluster.has_service((namespace, base[-1]))
        if is_of_service or not self._paths.is_of(client, namespace):
            return led
        for name in self._paths.names(base):
            exists = self._exists(query, name, cached)
            if isinstance(exists, Question):
                return exists
            if exists is None:
                break
            if exists:
                return self._alias(name, query.kind)
        return led

    def _exists(
        self, query: Query, name: str, cached: Callable[[Question], AgedAnswer | None]
    ) -> bool | Question | None:
        """Return whether a name exists; None: unknown; a Question: to be asked first."""
        own = self._own(name)
        if own is not None:
            return self._cluster.find(own, query.kind).exists
        if not self._resolves(query):
            return None
        question = _question(query, name)
        answered = cached(question)
        if answered is None:
            return question
        return {NOERROR: True, NXDOMAIN: False}.get(answered[0].code)

    def _own(self, name: str) -> Sequence[str] | None:
        """Return the labels of a name of the zone before the zone's; None: it is another's."""
        zone = self._cluster.options.domain
        if name != zone and not name.endswith(f".{zone}"):
            return None
        own = name.removesuffix(zone).rstrip(".")
        return own.split(".") if own else ()

    def _alias(self, name: str, kind: int) -> _AliasedResolution:
        record = Record(CNAME, self._cluster.options.ttl_s, (name,))
        return self._led(Resolution((record,), target=name), kind)._replace(is_for_all=False)

    def _led(self, resolution: Resolution, kind: int) -> _AliasedResolution:
        """Return what a name stands for, its aliases within the cluster followed."""
        answers = resolution.answers
        seen = 0
        target = resolution.target
        while target and (own := self._own(target)) is not None and seen < ALIASES_MAX:
            seen += 1
            more = self._cluster.find(own, kind)
            answers += tuple(each._replace(owner=target) for each in more.answers)
            target = more.target
        is_direct = bool(resolution.answers) and not resolution.target
        return _AliasedResolution(
            resolution, answers, "" if seen >= ALIASES_MAX else target, is_direct
        )

    def _prepared(
        self, query: Query, led: _AliasedResolution, followed: Sequence[RRset] = ()
    ) -> PreparedAnswer:
        found = led.found
        soa = None if led.answers else self._cluster.soa()
        made = message(
            query.name,
            query.kind,
            led.answers,
            found.additional,
            soa=soa,
            exists=found.exists,
            followed=followed,
        )
        return PreparedAnswer(made)

    def _composition(
        self, query: Query, led: _AliasedResolution, others: AgedAnswer | None = None
    ) -> PreparedAnswer:
        """Return the answer of several names; others: what is said of the one outside."""
        if led.found.target and not led.is_for_all:
            self.followed += 1
        key = (query.name, query.kind, led.found.target)
        kept = self._composed.get(key)
        if kept is not None and kept[0] == others:
            return kept[1]
        followed = _records_of(others, led.target, query.kind) if others else ()
        prepared = self._prepared(query, led, followed)
        if len(self._composed) >= COMPOSED_MAX:
            self._composed.clear()
        self._composed[key] = others, prepared
        return prepared

    def _sent(self, prepared: PreparedAnswer, query: Query, limit: int) -> bytes:
        self._turn += 1
        return prepared.answer(query, limit, is_recursing=self.is_recursing, turn=self._turn)

    # Names of addresses, and of others.

    def _of_address(self, query: Query, labels: Sequence[bytes], limit: int) -> bytes | Query:
        address = address_of(labels)
        names: tuple[Record, ...] = ()
        if address and query.kind == PTR:
            if not self.is_synced:
                return self._problem(query, SERVFAIL)
            names = self._cluster.find_address(address)
        if not names:
            return self._of_others(query, limit)
        prepared = PreparedAnswer(message(query.name, query.kind, names))
        self._known.keep(query, prepared, None)
        return self._sent(prepared, query, limit)

    def _of_others(self, query: Query, limit: int) -> bytes | Query:
        forwarder = self._forwarder
        if forwarder is None or not query.is_recursive:
            return self._problem(query, REFUSED)
        question = _question(query)
        if forwarder.is_probe(question):
            return self._problem(query, NXDOMAIN)
        known = self._known_of_others(question)
        if known is None:
            return query
        prepared, age_s = known
        return prepared.answer(query, limit, is_recursing=True, age_s=age_s)

    def _resolves(self, query: Query) -> bool:
        """Whether names outside of the cluster are resolved for a query."""
        return self.is_recursing and query.is_recursive

    def _known_of_others(self, question: Question) -> AgedAnswer | None:
        return None if self._forwarder is None else self._forwarder.cached(question)


def _question(query: Query, name: str = "") -> Question:
    """Return what others are asked; name: instead of the query's."""
    wire = wire_name(name) if name else query.name
    return Question(wire, query.kind, query.wants_dnssec, query.checking_disabled)


def _records_of(answered: AgedAnswer, name: str, kind: int) -> Sequence[RRset]:
    """Return the records of an answer about a name, as old as they are."""
    prepared, age_s = answered
    asked = Query(b"\0\0", 0, wire_name(name) + kind.to_bytes(2, "big") + _IN_BYTES)
    try:
        wire = prepared.answer(asked, MESSAGE_BYTES_MAX, is_recursing=True, age_s=age_s)
        return list(from_wire(wire).answer)
    except (ValueError, dns.exception.DNSException):
        return ()  # an alias is true whatever it leads to


def _texts(labels: Sequence[bytes]) -> list[str]:
    return [each.decode("latin-1") for each in labels]
