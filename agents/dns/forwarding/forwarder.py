"""Forwarding of questions: which resolver, the cache, and the limit of pending ones.

    forwarder = Forwarder(Forwarding(resolvers), clock, log)
    prepared, age_s = await forwarder.resolve(question, client)

The same question is pending once, however many clients wait for it, so that a loop through a
resolver ends at the pending question. A resolver that forwards back is detected by a name that only
this process knows (`probe`), and is not used again.
"""

import asyncio
import random
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from dns import flags, rcode
from dns.message import Message
from dns.name import Name
from dns.rdataclass import IN
from dns.rdatatype import RdataType
from dns.rrset import RRset

from kvstack.agents.dns.forwarding.answer_cache import AnswerCache, CachedAnswer, Limits, lifetime_s
from kvstack.agents.dns.forwarding.exchange import ExchangeError, Question, Resolver, ask
from kvstack.agents.dns.prepared import PreparedAnswer
from kvstack.agents.dns.query import REFUSED, SERVFAIL, labels_of, name_of
from kvstack.agents.dns.traffic import SECONDS
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger
from kvstack.component.metrics.histograms import Histogram

TIMEOUT_S: Final = 2.0
"""The timeout of one resolver."""
WHOLE_S: Final = 5.0
"""The timeout of a question: clients retry after as long."""
RESTS_S: Final = 2.0
"""So long a resolver that failed comes last."""
HINFO: Final = 13
TIMED_MAX: Final = 256
"""Pairs of a resolver and a code with durations of their own; resolvers may change."""

Resolvers = Callable[[], Sequence[Resolver]]


@dataclass(frozen=True, slots=True)
class Forwarding:
    """Settings and limits of forwarding."""

    resolvers: Resolvers
    """The current resolvers of all names without a stub domain."""
    stubs: tuple[tuple[tuple[bytes, ...], tuple[Resolver, ...]], ...] = ()
    """Domains, by their labels, and who is asked about them."""
    own: frozenset[Resolver] = frozenset()
    """The addresses of this process, which are never asked."""
    at_once_max: int = 500
    of_client_max: int = 100
    limits: Limits = field(default_factory=Limits)


class NotResolvedError(Exception):
    """A question has no answer; `code` is the response code for the client."""

    def __init__(self, code: int, text: str) -> None:
        """code: of the response."""
        super().__init__(text)
        self.code = code


class Forwarder:
    """Asks others; belongs to one loop."""

    def __init__(self, settings: Forwarding, clock: Clock, logger: Logger) -> None:
        self._settings = settings
        self._clock = clock
        self._logger = logger
        self._rng = random.SystemRandom()
        self.cache: Final = AnswerCache[Question]()
        self._asking: dict[Question, asyncio.Task[CachedAnswer]] = {}
        self._waiting: Counter[str] = Counter()
        self._failed_s: dict[Resolver, float] = {}
        self._looping: set[Resolver] = set()
        self._probes: dict[bytes, Resolver] = {}
        self.refused = 0
        """Questions that were too many."""
        self.failed = 0
        self.without_health = 0
        """Questions for which all resolvers had failed shortly before."""
        self.seconds: Final[dict[tuple[Resolver, int], Histogram]] = {}
        """How long resolvers took for their answers, by code."""

    def cached(self, question: Question) -> tuple[PreparedAnswer, int] | None:
        """Return an answer that was given before, and its age in seconds."""
        now_s = self._clock.monotonic_s()
        kept = self.cache.get(question, now_s)
        return None if kept is None else (kept.prepared, int(now_s - kept.since_s))

    async def resolve(self, question: Question, client: str) -> tuple[PreparedAnswer, int]:
        """Return an answer and its age in seconds; raises NotResolvedError."""
        found = self.cached(question)
        if found is not None:
            return found
        if self._waiting[client] >= self._settings.of_client_max:
            self.refused += 1
            limit = self._settings.of_client_max
            raise NotResolvedError(REFUSED, f"{client} waits for {limit} answers already")
        task = self._asking.get(question)
        if task is None:
            if len(self._asking) >= self._settings.at_once_max:
                self.refused += 1
                text = f"{self._settings.at_once_max} questions wait for their answers already"
                raise NotResolvedError(REFUSED, text)
            task = asyncio.get_running_loop().create_task(self._ask(question))
            self._asking[question] = task
            task.add_done_callback(lambda done: self._on_answer(question, done))
        self._waiting[client] += 1
        try:
            kept = await asyncio.shield(task)
        finally:
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client]
        return kept.prepared, 0

    def _on_answer(self, question: Question, task: asyncio.Task[CachedAnswer]) -> None:
        del self._asking[question]
        if not task.cancelled() and (error := task.exception()) is not None:
            name = b".".join(labels_of(question.name)).decode("latin-1")
            self._logger.debug("failed to resolve a name", name=name, reason=str(error))

    async def close(self) -> None:
        """Stop asking."""
        tasks = list(self._asking.values())
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, question: Question) -> CachedAnswer:
        """Ask one resolver after the other until one answers."""
        answer, problem = None, "no resolver is configured"
        try:
            async with asyncio.timeout(WHOLE_S):
                for resolver in self._in_order(question):
                    began_s = self._clock.monotonic_s()
                    try:
                        answer = await ask(resolver, question, TIMEOUT_S)
                    except ExchangeError as error:
                        self._failed_s[resolver] = self._clock.monotonic_s()
                        problem = f"{resolver.host}: {error}"
                        continue
                    self._time(resolver, answer.rcode(), began_s)
                    if answer.rcode() in (rcode.NOERROR, rcode.NXDOMAIN):
                        self._failed_s.pop(resolver, None)
                        break
        except TimeoutError:
            pass  # `problem` says what the last one did
        if answer is None:
            self.failed += 1
            raise NotResolvedError(SERVFAIL, problem)
        return self._keep(question, answer)

    def _time(self, resolver: Resolver, code: int, began_s: float) -> None:
        key = resolver, code
        if key not in self.seconds:
            if len(self.seconds) >= TIMED_MAX:
                self.seconds.pop(next(iter(self.seconds)))
            self.seconds[key] = Histogram(SECONDS)
        self.seconds[key].add(self._clock.monotonic_s() - began_s)

    def _in_order(self, question: Question) -> list[Resolver]:
        """Return whom to ask: at random, those that failed lately last; each twice."""
        now_s = self._clock.monotonic_s()
        resolvers = [
            each
            for each in self._responsible(labels_of(question.name))
            if each not in self._settings.own and each not in self._looping
        ]
        resting = {
            each for each in resolvers if now_s - self._failed_s.get(each, -RESTS_S) < RESTS_S
        }
        if resolvers and len(resting) == len(resolvers):
            self.without_health += 1
        self._rng.shuffle(resolvers)
        resolvers.sort(key=resting.__contains__)
        return resolvers * 2

    def _responsible(self, labels: tuple[bytes, ...]) -> Sequence[Resolver]:
        best: tuple[int, Sequence[Resolver]] | None = None
        for domain, resolvers in self._settings.stubs:
            count = len(domain)
            is_below = labels[len(labels) - count :] == domain if count <= len(labels) else False
            if is_below and (best is None or count > best[0]):
                best = count, resolvers
        return self._settings.resolvers() if best is None else best[1]

    def _keep(self, question: Question, answer: Message) -> CachedAnswer:
        code = answer.rcode()
        message = Message(id=0)
        message.flags = flags.QR | (answer.flags & (flags.AA | flags.AD))
        kind = RdataType.make(question.kind)
        message.question.append(RRset(Name((*labels_of(question.name), b"")), IN, kind))
        message.answer, message.authority = answer.answer, answer.authority
        message.additional = answer.additional
        message.set_rcode(rcode.Rcode.make(code) if code <= 0xF else rcode.SERVFAIL)
        now_s = self._clock.monotonic_s()
        lifetime = lifetime_s(answer, self._settings.limits)
        found = CachedAnswer(PreparedAnswer(message), now_s, now_s + lifetime)
        self.cache.put(question, found)
        return found

    # Resolvers that lead back.

    async def probe(self) -> None:
        """Find out whether a resolver asks this process, which would go on for ever."""
        resolvers = {*self._settings.resolvers(), *(e for _, some in self._settings.stubs
                                                    for e in some)}  # fmt: skip
        await asyncio.gather(*(self._probe(each) for each in resolvers - self._settings.own))

    async def _probe(self, resolver: Resolver) -> None:
        name = name_of(tuple(secrets.token_hex(10).encode() for _ in range(2)))
        self._probes[name] = resolver
        try:
            await ask(resolver, Question(name, HINFO), TIMEOUT_S)
        except ExchangeError:
            pass  # it will be tried again when there is something to ask
        finally:
            del self._probes[name]

    def is_probe(self, question: Question) -> bool:
        """Whether a question is this process's own probe: its resolver is left out."""
        resolver = self._probes.get(question.name) if question.kind == HINFO else None
        if resolver is None:
            return False
        if resolver not in self._looping:
            self._looping.add(resolver)
            self._logger.error(
                "a resolver forwards to this server: it is no longer used",
                resolver=f"{resolver.host}:{resolver.port}",
            )
        return True
