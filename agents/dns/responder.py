"""From a query to its answer: names of the cluster at once, names of others once they are known.

    found = responder.at_once(data)            bytes; None: nothing is answered; a Query: not yet
    found = await responder.later(query, client)

Names below the cluster's domain are answered here and nowhere else. The names of addresses are
answered here if the address is the cluster's. An ExternalName leads on, here or elsewhere.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import dns.exception
from dns.message import from_wire
from dns.rdatatype import PTR
from dns.rrset import RRset

from kvstack.agents.dns.cluster import Cluster, Record, Resolution
from kvstack.agents.dns.exchange import Question
from kvstack.agents.dns.forwarder import Forwarder, NotResolvedError
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
from kvstack.agents.dns.services import Key

ALIASES_MAX: Final = 8
"""Names that lead from one to the next."""
_IN_BYTES: Final = IN.to_bytes(2, "big")


class _AliasedResolution(NamedTuple):
    """What a name of the cluster stands for, and where it leads to outside."""

    found: Resolution
    answers: tuple[Record, ...]
    target: str = ""
    is_direct: bool = True


class Responder:
    """Answers queries."""

    def __init__(self, cluster: Cluster, forwarder: Forwarder | None) -> None:
        """forwarder: for names of others; None: they are refused."""
        self._cluster = cluster
        self._forwarder = forwarder
        self._zone = labels_of(wire_name(cluster.options.domain))
        self._known = KnownAnswers(is_recursing=forwarder is not None)
        self._turn = 0
        self.is_synced = False
        """Whether the cluster is known; before, a name that is not known may yet exist."""

    @property
    def is_recursing(self) -> bool:
        """Whether names of others are resolved."""
        return self._forwarder is not None

    def changed(self, service: Key | None) -> None:
        """Forget answers that a change of a Service, or (None) of anything else, makes wrong."""
        self._known.forget(service)

    def at_once(self, data: bytes, *, is_tcp: bool = False) -> bytes | Query | None:
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
            return self._of_cluster(query, labels[: len(labels) - count], limit)
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
                led = self._led(_texts(labels[: len(labels) - count]), query.kind)
                return await self._led_on(query, led, client, limit)
            prepared, age_s = await self._resolve(_question(query), client)
        except NotResolvedError as error:
            return self._problem(query, error.code)
        return prepared.answer(query, limit, is_recursing=True, age_s=age_s)

    def _problem(self, query: Query, code: int) -> bytes:
        return problem(query, code, is_recursing=self.is_recursing)

    async def _resolve(self, question: Question, client: str) -> tuple[PreparedAnswer, int]:
        if self._forwarder is None:
            raise NotResolvedError(REFUSED, "nobody is asked")
        return await self._forwarder.resolve(question, client)

    # Names of the cluster.

    def _of_cluster(self, query: Query, labels: Sequence[bytes], limit: int) -> bytes | Query:
        if not self.is_synced:
            return self._problem(query, SERVFAIL)
        led = self._led(_texts(labels), query.kind)
        if led.target and self.is_recursing and query.is_recursive:
            return query
        prepared = self._prepared(query, led)
        self._known.keep(query, prepared, led.found.service if led.is_direct else None)
        return self._sent(prepared, query, limit)

    def _led(self, labels: Sequence[str], kind: int) -> _AliasedResolution:
        """Return what a name stands for, its aliases within the cluster followed."""
        resolution = self._cluster.find(labels, kind)
        answers = resolution.answers
        seen = 0
        zone = self._cluster.options.domain
        target = resolution.target
        while target and (target == zone or target.endswith(f".{zone}")) and seen < ALIASES_MAX:
            seen += 1
            own = target.removesuffix(zone).rstrip(".")
            more = self._cluster.find(own.split(".") if own else (), kind)
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

    async def _led_on(
        self, query: Query, led: _AliasedResolution, client: str, limit: int
    ) -> bytes:
        """Return the answer of an alias of what is elsewhere; the alias alone if that fails."""
        followed: list[RRset] = []
        try:
            question = _question(query)._replace(name=wire_name(led.target))
            prepared, age_s = await self._resolve(question, client)
            asked = question.name + query.kind.to_bytes(2, "big") + _IN_BYTES
            whole = prepared.answer(
                Query(b"\0\0", 0, asked), MESSAGE_BYTES_MAX, is_recursing=True, age_s=age_s
            )
            followed = list(from_wire(whole).answer)
        except (NotResolvedError, ValueError, dns.exception.DNSException):
            pass  # the alias is true whatever it leads to
        return self._sent(self._prepared(query, led, followed), query, limit)

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
        known = forwarder.known(question)
        if known is None:
            return query
        prepared, age_s = known
        return prepared.answer(query, limit, is_recursing=True, age_s=age_s)


def _question(query: Query) -> Question:
    return Question(query.name, query.kind, query.wants_dnssec, query.checking_disabled)


def _texts(labels: Sequence[bytes]) -> list[str]:
    return [each.decode("latin-1") for each in labels]
