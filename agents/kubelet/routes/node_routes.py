"""Keeps the routes to the pods of other nodes up to date with the API's Nodes.

    routes = NodeRoutes(informers.of(NODES), recorder, logger, RouteOptions(…))
    await routes.start(); …; await routes.stop()

They are looked at when a Node changes, and every half minute: what others took away comes back. One
process of a network namespace writes them; that of another node there takes over when it ends.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.client.informer import Informer
from kvstack.agents.kubelet.cancellation import until_done
from kvstack.agents.kubelet.routes import guard
from kvstack.agents.kubelet.routes.kernel import Kernel
from kvstack.agents.kubelet.routes.plan import (
    AUTOMATIC,
    FAMILIES,
    NONE,
    Network,
    Plan,
    Refusal,
    UnsuitableError,
    plan,
)
from kvstack.agents.kubelet.runtime.process.network.pod_network import STATE
from kvstack.agents.kubelet.runtime.process.network.translation import TranslationError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.logger import Logger

_LOOK_S: Final = 30.0
_GAP_S: Final = 0.1
"""Nodes that change at once are looked at once."""
_RETRY_S: Final = 2.0
_REASON: Final = "FailedToCreateRoute"


@dataclass(frozen=True, slots=True)
class RouteOptions:
    """Settings of a node's routes."""

    node: str
    cluster_ranges: Sequence[Network]
    """The ranges of the pods of all nodes, one of a family at most."""
    mode: str = AUTOMATIC
    """One of `plan.MODES`."""
    state: Path = STATE
    ends_with_node: bool = True
    """Whether the node's pods end with it; if they go on, their routes stay."""


class NodeRoutes:
    """The routes of one node; all of it belongs to one loop."""

    def __init__(
        self,
        nodes: Informer,
        recorder: EventRecorder | None,
        logger: Logger,
        options: RouteOptions,
    ) -> None:
        """recorder: None: refused nodes are only logged."""
        self._nodes = nodes
        self._recorder = recorder
        self._logger = logger
        self._options = options
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._reported: set[Refusal] = set()
        self._guarded: str | None = None  # what is in place; None: whatever was before
        self._own: Collection[Network] = ()
        self._problem = ""
        self._lock = -1

    async def start(self) -> None:
        """Start; routes exist soon after the node has its own range."""
        self._nodes.on_change(self._on_change)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="routes to nodes")

    async def stop(self) -> None:
        """End; routes go unless pods stay."""
        self._nodes.forget(self._on_change)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._lock < 0:
            return
        try:
            await asyncio.to_thread(self._leave)
        except (OSError, TranslationError) as error:
            self._logger.warning("failed to remove routes to other nodes", reason=str(error))
        finally:
            os.close(self._lock)
            self._lock = -1

    def _on_change(self, old: Object | None, new: Object | None) -> None:
        if old is None or new is None or _watched_fields(old) != _watched_fields(new):
            self._changed.set()

    async def _run(self) -> None:
        await self._nodes.synced()
        while True:
            self._changed.clear()
            is_done = await self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S if is_done else _RETRY_S):
                    await self._changed.wait()
                    await asyncio.sleep(_GAP_S)

    async def _look(self) -> bool:
        """Apply the current Nodes to the kernel; return whether that succeeded."""
        nodes = list(self._nodes.store)
        try:
            done = await until_done(asyncio.to_thread(self._bring, nodes))
        except (OSError, TranslationError, UnsuitableError) as error:
            if str(error) != self._problem:
                self._logger.warning("failed to write routes to other nodes", reason=str(error))
            self._problem = str(error)
            return False
        if self._problem:
            self._logger.info("routes to other nodes are written again")
            self._problem = ""
        if done is not None:
            found, changes = done
            if changes:
                self._logger.info("routes to other nodes", changes=changes)
            self._report(found, nodes)
        return True

    def _bring(self, nodes: list[Object]) -> tuple[Plan, list[str]] | None:
        """Apply changes; None: nothing has changed, or another process does it. In a thread."""
        options = self._options
        if not self._is_mine():
            return None
        with Kernel() as kernel:
            if options.mode == NONE:
                kernel.clear()  # what was before
                return None
            families = guard.families()
            ranges = [each for each in options.cluster_ranges if each.version in families]
            desired = plan(options.node, nodes, kernel.machine(), options.mode, ranges)
            if desired is None:
                return None
            wanted = self._guards(desired)
            if wanted and wanted != self._guarded:
                guard.apply(wanted)  # before there is anything to guard
            changes = kernel.bring(desired)
            if not wanted and wanted != self._guarded:
                guard.remove()
            self._guarded, self._own = wanted, tuple(desired.own.values())
            return desired, changes

    def _guards(self, desired: Plan) -> str:
        """Return the rules for the tunnels of a plan; empty: it has none."""
        ends = {
            family: [each.via for each in desired.tunneled(family)]
            for family in FAMILIES
            if desired.tunneled(family)
        }
        if not ends:
            return ""
        return guard.rules(desired.own, self._options.cluster_ranges, ends, guard.families())

    def _leave(self) -> None:
        """Remove everything, unless pods go on; in a thread. OSError, TranslationError."""
        with Kernel() as kernel:
            there = [each.network for each in kernel.machine().connected]
            if not self._options.ends_with_node and any(each in there for each in self._own):
                return  # the bridge stays for pods that go on
            kernel.clear()
        if self._guarded:
            guard.remove()

    def _is_mine(self) -> bool:
        """Whether this process writes the routes of its network namespace; OSError."""
        if self._lock >= 0:
            return True
        state = self._options.state
        state.mkdir(mode=0o755, parents=True, exist_ok=True)
        namespace = Path("/proc/thread-self/ns/net").stat().st_ino
        name = state / f"routes-{namespace}.lock"
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._lock = descriptor
        return True

    def _report(self, applied: Plan, nodes: list[Object]) -> None:
        """Report refused nodes, once."""
        by_name = {each["metadata"]["name"]: each for each in nodes}
        for each in applied.refusals:
            if each in self._reported:
                continue
            self._logger.warning(
                "no route to the pods of a node", node=each.node, reason=each.reason
            )
            if self._recorder is not None:
                text = f"no route from {self._options.node}: {each.reason}"
                self._recorder.record(by_name[each.node], "Warning", _REASON, text)
        self._reported = set(applied.refusals)


def _watched_fields(node: Object) -> Object:
    """Return what routes come of."""
    return {
        "spec": [(node.get("spec") or {}).get(each) for each in ("podCIDR", "podCIDRs")],
        "addresses": (node.get("status") or {}).get("addresses"),
    }
