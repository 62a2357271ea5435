"""Leader election by a Lease, as client-go's.

    election = LeaderElection(api, LeaseName("kube-system", "kube-scheduler"), identity, …)
    await election.run(lead)      waits for the lease, runs lead() while it lasts

- Whether another's lease is over is judged by the local time at which its record was last seen to
  change: clocks of others are never compared.
- A leader that has not renewed for `renew_deadline_s` has lost, whatever the cause. `run` returns
  then; what it led must be ended before another may lead, that is within
  `duration_s - renew_deadline_s`.
- A try that gets no answer is given up after half the renew deadline, so that one connection that
  is dead does not cost the lease.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import LEASES
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import micro_time_text
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

_JITTER: Final = 1.2
_TRY_LEAST_S: Final = 1.0


class LeaseName(NamedTuple):
    """The name of a Lease."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Terms:
    """Durations in seconds; the defaults are upstream's."""

    duration_s: int = 15
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        """Refuse terms under which two could lead."""
        if not self.duration_s > self.renew_deadline_s > self.retry_s * _JITTER:
            raise ValueError(
                "the lease duration must be longer than the renew deadline, and that than"
                f" {_JITTER} times the retry period: {self}"
            )

    @property
    def try_s(self) -> float:
        """The timeout of one attempt."""
        return max(self.renew_deadline_s / 2, _TRY_LEAST_S)


class LeaderElection:
    """One candidate for a lease."""

    def __init__(
        self,
        api: Api,
        lease: LeaseName,
        identity: str,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        terms: Terms | None = None,
        on_change: Callable[[str, Object], None] | None = None,
    ) -> None:
        """Hold no lease before `run`.

        on_change gets `IDENTITY became leader` or `IDENTITY stopped leading`, and the Lease.
        """
        self.identity: Final = identity
        self._api = api
        self._name = lease
        self._clock = clock
        self._random = random
        self._logger = logger
        self.terms: Final = terms or Terms()
        self._on_change = on_change
        self._observed: Object | None = None
        self._observed_at = 0.0
        self._renewed_at = 0.0
        self.is_leader = False

    @property
    def holder(self) -> str:
        """The identity of the last known holder; empty: none."""
        return _spec(self._observed).get("holderIdentity") or ""

    @property
    def seconds_since_renewal(self) -> float:
        """The time since the last renewal of a lease that is held here; 0: it is not held."""
        return self._clock.monotonic_s() - self._renewed_at if self.is_leader else 0.0

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, lead while it lasts, cancel that and return once it is lost.

        The end of `lead`, and a cancellation, give the lease back.
        """
        await self._acquire()
        self.is_leader = True
        self._report("became leader")
        leading = asyncio.ensure_future(lead())
        renewing = asyncio.ensure_future(self._renew())
        try:
            await asyncio.wait((leading, renewing), return_when=asyncio.FIRST_COMPLETED)
            is_lost = renewing.done()
        except asyncio.CancelledError:
            is_lost = False
            raise
        finally:
            self.is_leader = False
            for task in (leading, renewing):
                task.cancel()
            ended = await asyncio.gather(leading, renewing, return_exceptions=True)
            self._report("stopped leading")
            if not is_lost:
                await self._release()
        for error in ended:
            if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
                raise error

    async def _acquire(self) -> None:
        while not await self._try_once():  # noqa: ASYNC110 - a lease has to be polled
            await asyncio.sleep(self.terms.retry_s * (1 + (_JITTER - 1) * self._random()))

    async def _renew(self) -> None:
        """Return when the lease is lost."""
        while True:
            await asyncio.sleep(self.terms.retry_s)
            left_s = self._renewed_at + self.terms.renew_deadline_s - self._clock.monotonic_s()
            is_held = await self._try_once(left_s)
            now = self._clock.monotonic_s()
            if not is_held and now >= self._renewed_at + self.terms.renew_deadline_s:
                self._logger.error("lost the lease", lease=self._name.name)
                return
            if not is_held and self.holder not in ("", self.identity):
                self._logger.error("another holds the lease", lease=self._name.name, by=self.holder)
                return

    async def _try_once(self, left_s: float = math.inf) -> bool:
        """Take or renew the lease within so many seconds; False if that fails."""
        try:
            async with asyncio.timeout(min(self.terms.try_s, max(left_s, 0.0))):
                return await self._try()
        except (ApiError, UnreachableError, TimeoutError) as error:
            self._logger.debug("failed to take the lease", lease=self._name.name, error=str(error))
            return False

    async def _try(self) -> bool:
        now = self._clock.monotonic_s()
        observed = self._observed
        if observed is not None and self.holder == self.identity and not self._is_over(now):
            try:
                return await self._put(observed, now, is_mine=True)
            except ApiError:
                pass  # changed by another candidate: read it again
        try:
            lease = await self._api.get(LEASES, *self._name)
        except ApiError as error:
            if not error.is_not_found:
                raise
            meta = {"namespace": self._name.namespace, "name": self._name.name}
            record = self._record(_EMPTY, is_mine=False) | {"leaseTransitions": 0}
            lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
            made = await self._api.create(
                LEASES, self._name.namespace, {**lease, "metadata": meta, "spec": record}
            )
            self._observe(made, now)
            self._renewed_at = now
            return True
        if observed is None or _spec(lease) != _spec(observed):
            self._observe(lease, now)
        else:
            self._observed = lease
        holder = self.holder
        if holder not in ("", self.identity) and not self._is_over(now):
            return False
        return await self._put(lease, now, is_mine=holder == self.identity)

    async def _put(self, lease: Object, now: float, *, is_mine: bool) -> bool:
        spec = self._record(_spec(lease), is_mine=is_mine)
        put = await self._api.update(LEASES, {**lease, "spec": spec})
        self._observe(put, now)
        self._renewed_at = now
        return True

    def _record(self, old: Object, *, is_mine: bool) -> Object:
        now = micro_time_text(self._clock.now_s())
        kept: Object = {key: old[key] for key in ("strategy", "preferredHolder") if key in old}
        transitions = old.get("leaseTransitions") or 0
        return {
            **kept,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.terms.duration_s,
            "acquireTime": old.get("acquireTime", now) if is_mine else now,
            "renewTime": now,
            "leaseTransitions": transitions if is_mine else transitions + 1,
        }

    def _observe(self, lease: Object, now: float) -> None:
        self._observed = lease
        self._observed_at = now

    def _is_over(self, now: float) -> bool:
        duration_s = _spec(self._observed).get("leaseDurationSeconds") or self.terms.duration_s
        return self._observed_at + duration_s <= now

    async def _release(self) -> None:
        """Release the lease, so that others need not wait for its end."""
        try:
            lease = await self._api.get(LEASES, *self._name)
            spec = _spec(lease)
            if spec.get("holderIdentity") != self.identity:
                return
            now = micro_time_text(self._clock.now_s())
            released = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}
            released.update(acquireTime=now, renewTime=now)
            await self._api.update(LEASES, {**lease, "spec": released})
        except (ApiError, UnreachableError) as error:
            self._logger.warning("failed to release the lease", error=str(error))

    def _report(self, what: str) -> None:
        self._logger.info(what, lease=self._name.name, identity=self.identity)
        if self._on_change is not None and self._observed is not None:
            self._on_change(f"{self.identity} {what}", self._observed)


_EMPTY: Final[Object] = {}


def _spec(lease: Object | None) -> Object:
    return (lease or _EMPTY).get("spec") or _EMPTY
