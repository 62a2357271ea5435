"""What runs on a node: follows the API, and has the table say what policies mean.

    enforcer = Enforcer(sources, own_pods, table, NftWriter(table.name), clock, logger)
    enforcer.start()
    await enforcer.hold(pod)     returns once its policies are in place; raises NotEnforcedError
    await enforcer.close(leaves_rules=False)

Nothing is written before all policies, namespaces and pods are known; the table of an earlier
process stays until then. Changes that come together are written together. After a failure all is
written, again and again, more slowly each time. What takes long is done in steps, so that others
of this process have their turn.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from kvstack.agents.client.back_off import FailureBackOff
from kvstack.agents.client.informer import Handler, Informer
from kvstack.agents.client.object_store import key_of
from kvstack.agents.network_policy.cluster import Cluster
from kvstack.agents.network_policy.nftables.program import Writer
from kvstack.agents.network_policy.nftables.table import Table
from kvstack.agents.network_policy.own_pods import OwnPods, uid_of
from kvstack.agents.network_policy.pods import PodFacts, facts_of
from kvstack.agents.network_policy.policies import Policy, policy_of
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import EVERYTHING
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger
from kvstack.component.net.nft import NftError

HOLD_S: Final = 5.0
"""So long a pod is held back before its node says why."""
_GAP_MIN_S, _GAP_MAX_S = 0.05, 5.0
"""From the end of one round to the beginning of the next: twice as long as it took."""
_SLICE_S: Final = 0.005
_SWEEP_S: Final = 1.0
"""How often sandboxes are looked at: their ends are reported by nobody."""
_LOOK_S: Final = 60.0
"""How often it is looked whether the table is still there."""
_ROUND: Final = "round"


class NotEnforcedError(Exception):
    """The policies of a pod are not in place."""


class Sources(NamedTuple):
    """Where objects come from."""

    policies: Informer
    namespaces: Informer
    pods: Informer
    """Of all nodes."""


class Enforcer:
    """Enforces the policies of the pods of one node."""

    def __init__(
        self,
        sources: Sources,
        own: OwnPods,
        table: Table,
        writer: Writer,
        clock: Clock,
        logger: Logger,
        hold_s: float = HOLD_S,
    ) -> None:
        """Enforce nothing yet."""
        self._sources = sources
        self._own = own
        self._table = table
        self._writer = writer
        self._clock = clock
        self._logger = logger
        self._hold_s = hold_s
        self._cluster = Cluster()
        self._touched: dict[Informer, dict[str, None]] = {each: {} for each in sources}
        self._handlers: list[tuple[Informer, Handler]] = []
        self._wakes = asyncio.Event()
        self._rounds = asyncio.Condition()
        self._written: dict[str, tuple[str, ...]] = {}  # uid → addresses
        self._needs_all = True
        self._closing = asyncio.Event()
        self._problem = "they are not known yet"
        self._back_off = FailureBackOff(clock, 1.0, 30.0)
        self._looked_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self.rounds = 0
        """How often something was written."""

    def start(self) -> None:
        """Begin to follow."""
        for informer in self._sources:
            self._follow(informer)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="network policies")

    async def close(self, *, leaves_rules: bool) -> None:
        """End; leaves_rules: processes of pods go on, and are isolated as they are now."""
        for informer, handler in self._handlers:
            informer.forget(handler)
        self._handlers.clear()
        if self._task is None:
            return
        self._closing.set()
        self._wakes.set()
        if not all(each.is_synced for each in self._sources):
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        if not leaves_rules:
            with contextlib.suppress(NftError):  # the next start writes it anew
                await asyncio.to_thread(self._writer.apply, self._table.delete)

    async def hold(self, pod: Object) -> None:
        """Return once what policies say of a pod that has its address is in place.

        It is not waited for in a namespace without policies. Raises NotEnforcedError.
        """
        uid = self._own.put(pod)
        if not uid or not self._own.addresses(uid):
            return
        self._own.sweep()  # its address may have been another's
        self._touched[self._sources.pods][key_of(pod)] = None
        self._wakes.set()
        meta = pod["metadata"]
        try:
            async with asyncio.timeout(self._hold_s):
                for each in self._sources:
                    await each.synced()
                if self._sources.policies.store.in_namespace(meta["namespace"]):
                    async with self._rounds:
                        await self._rounds.wait_for(lambda: self._is_written(uid))
        except TimeoutError as error:
            is_known = self._sources.policies.is_synced
            if is_known and not self._is_selected(meta["namespace"], meta.get("labels") or {}):
                return
            text = f"NetworkPolicies cannot be enforced: {self._problem}"
            raise NotEnforcedError(text) from error

    def _is_written(self, uid: str) -> bool:
        addresses = tuple(self._own.addresses(uid))
        return not addresses or self._written.get(uid) == addresses

    def _is_selected(self, namespace: str, labels: dict[str, str]) -> bool:
        policies = self._sources.policies.store.in_namespace(namespace)
        return any(self._read(each).pods.matches(labels) for each in policies)

    def _read(self, obj: Object) -> Policy:
        """Return what a policy says; one that cannot be read closes its own namespace."""
        try:
            return policy_of(obj)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            return Policy(obj["metadata"]["namespace"], EVERYTHING, (), (), repr(error))

    def _follow(self, informer: Informer) -> None:
        touched, is_pods = self._touched[informer], informer is self._sources.pods

        def hear(old: Object | None, new: Object | None) -> None:
            touched[key_of(new or old or {})] = None
            if is_pods and new is not None:
                self._own.put(new)
            self._wakes.set()

        self._handlers.append((informer, hear))
        informer.on_change(hear)

    async def _run(self) -> None:
        for each in self._sources:
            await each.synced()
        while not self._closing.is_set():
            self._wakes.clear()
            began_s = self._clock.monotonic_s()
            try:
                await self._round()
            except Exception as error:  # noqa: BLE001 - selected pods are held back, rules stay
                self._fail(repr(error))
                self._forget()
            took_s = self._clock.monotonic_s() - began_s
            await self._pause(min(max(_GAP_MIN_S, 2 * took_s), _GAP_MAX_S))

    async def _pause(self, gap_s: float) -> None:
        """Wait until there is something to do."""
        if self._needs_all:
            gap_s = max(gap_s, self._back_off.next_s(_ROUND))
        await _is_set(self._closing, gap_s)
        while not (self._wakes.is_set() or self._needs_all or self._closing.is_set()):
            if not await _is_set(self._wakes, _SWEEP_S):
                self._own.sweep()
                if self._own.changed:
                    return
                await self._tidy()

    async def _round(self) -> None:
        """Take what has changed, and write what follows."""
        self._own.sweep()
        own = list(self._own.changed)
        self._own.changed.clear()
        since_s = self._clock.monotonic_s()
        for _ in self._steps(own):
            if self._clock.monotonic_s() - since_s > _SLICE_S:
                await asyncio.sleep(0)
                since_s = self._clock.monotonic_s()
        held = {uid: tuple(self._own.addresses(uid)) for uid in self._cluster.own_uids()}
        try:
            # In a thread as a whole: it may be long, and nobody else changes the cluster.
            if self._needs_all or self._cluster.has_changes:
                self.rounds += await asyncio.to_thread(self._write)
        except NftError as error:
            self._fail(str(error))
            return
        if self._needs_all:
            self._needs_all = False
            self._back_off.forget(_ROUND)
            self._logger.info("NetworkPolicies are enforced", table=self._table.name)
        self._problem = "they are not in place yet"
        self._written = held
        async with self._rounds:
            self._rounds.notify_all()

    def _write(self) -> bool:
        """Write what is to be written; return whether that is anything; NftError."""
        if self._needs_all:
            self._writer.apply(self._table.whole(self._cluster))
            return True
        text = self._table.change(self._cluster.take_changes())
        if text:
            self._writer.apply(text)
        return bool(text)

    def _fail(self, problem: str) -> None:
        self._needs_all = True
        self._problem = problem
        self._written = {}
        self._logger.error("NetworkPolicies are not enforced as they should", reason=problem)

    def _forget(self) -> None:
        """Begin anew with what is known: a round was broken off, nobody knows where."""
        self._cluster = Cluster()
        for informer, touched in self._touched.items():
            touched.update(dict.fromkeys(informer.store.all_keys()))
        self._own.touch_all()

    def _steps(self, own: list[str]) -> Iterator[None]:
        sources, cluster = self._sources, self._cluster
        for name in _take_all(self._touched[sources.namespaces]):
            obj = sources.namespaces.store.get(name)
            labels = None if obj is None else obj["metadata"].get("labels") or {}
            yield from cluster.set_namespace(name, labels)
            yield
        for key in _take_all(self._touched[sources.pods]):
            yield from cluster.set_pod(key, self._facts(sources.pods.store.get(key)))
            yield
        for key in _take_all(self._touched[sources.policies]):
            obj = sources.policies.store.get(key)
            policy = None if obj is None else self._read(obj)
            if policy is not None and policy.problem:
                self._logger.error("a NetworkPolicy allows less than it says", policy=key,
                                   reason=policy.problem)  # fmt: skip
            yield from cluster.set_policy(key, policy)
            yield
        for uid in own:
            yield from cluster.set_own(uid, self._own.look(uid, is_in_api=self._is_in_api))
            yield

    def _facts(self, pod: Object | None) -> PodFacts | None:
        """Return what matters of a pod; one of this node has its address before the API knows."""
        if pod is None:
            return None
        facts = facts_of(pod)
        if facts.addresses or is_ended(pod) or pod["spec"].get("hostNetwork"):
            return facts
        return facts._replace(addresses=tuple(self._own.addresses(uid_of(pod))))

    def _is_in_api(self, key: str, uid: str) -> bool:
        pod = self._sources.pods.store.get(key)
        return pod is not None and uid_of(pod) == uid

    async def _tidy(self) -> None:
        """Take away what is used no more, and see to it that the rest is still there."""
        for statement in self._table.take_stale():
            with contextlib.suppress(NftError):  # the next whole table is without it
                await asyncio.to_thread(self._writer.apply, statement)
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        if not await asyncio.to_thread(self._writer.is_there):
            self._logger.warning("the rules of policies were taken away by somebody else")
            self._needs_all = True


async def _is_set(event: asyncio.Event, wait_s: float) -> bool:
    """Wait for an event, but not for longer."""
    try:
        async with asyncio.timeout(wait_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _take_all(touched: dict[str, None]) -> list[str]:
    found = list(touched)
    touched.clear()
    return found
