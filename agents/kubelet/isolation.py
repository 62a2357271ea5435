"""Whether and how NetworkPolicies are enforced on the pods of one node.

    isolation = Isolation(api, …, options, informers)
    await isolation.start(runtime)      a log line says if they are not, and why
    await isolation.isolate(pod)        before a pod starts; StartError
    await isolation.close(leaves_rules=False)

A container engine's network is its plugins' affair. Elsewhere it needs a pod network, `nft`, and
the right to list policies, namespaces and pods, which is checked again while it is missing.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import NAMESPACES, NETWORK_POLICIES, PODS
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.kubelet.runtime.process.process_runtime import ProcessRuntime
from kvstack.agents.kubelet.runtime.runtime import Runtime, StartError
from kvstack.agents.network_policy.enforcer import HOLD_S, Enforcer, NotEnforcedError, Sources
from kvstack.agents.network_policy.nftables.program import NftWriter, table_of
from kvstack.agents.network_policy.nftables.table import Table
from kvstack.agents.network_policy.own_pods import OwnPods
from kvstack.agents.network_policy.ranges import FAMILIES
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger
from kvstack.component.net import nft
from kvstack.component.net.hosts import has_ipv6

NOT_ENFORCED: Final = "NetworkPolicies are not enforced"
NO_NETWORK: Final = "pods share the network of their node"
_READ: Final = (NETWORK_POLICIES, NAMESPACES, PODS)
_AGAIN_S: Final = 30.0
_UNREACHABLE_S: Final = 1.0


class Isolation:
    """Puts the policies of one node's pods in place."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        node: str,
        informers: Informers | None = None,
    ) -> None:
        """Enforce nothing yet; informers: that this process has anyway."""
        self._api = api
        self._clock = clock
        self._random = random
        self._logger = logger
        self._node = node
        self._shared = informers
        self._own: Informers | None = None
        self._runtime: ProcessRuntime | None = None
        self._has_warned = False
        self._enforcer: Enforcer | None = None
        self._is_decided = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, runtime: Runtime, *, is_asked_for: bool) -> None:
        """Start, if this machine supports it."""
        problem = ""
        if not is_asked_for or not isinstance(runtime, ProcessRuntime):
            self._is_decided.set()
            return
        problem = await asyncio.to_thread(nft.problem) if runtime.bridge else NO_NETWORK
        if problem:
            self._logger.warning(NOT_ENFORCED, reason=problem)
            self._is_decided.set()
        elif self._shared is not None:
            self._enforce(runtime, self._shared)
        else:
            work = self._enforce_when_allowed(runtime)
            self._task = asyncio.get_running_loop().create_task(work, name="right to policies")

    async def close(self, *, leaves_rules: bool) -> None:
        """End; leaves_rules: pods that are left go on, and are isolated as they are now."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._enforcer is not None:
            await self._enforcer.close(leaves_rules=leaves_rules and self._has_pods())
        if self._own is not None:
            await self._own.close()

    async def isolate(self, pod: Object) -> None:
        """Return once the policies of a pod are in place; raises StartError."""
        try:
            if not pod["spec"].get("hostNetwork"):
                async with asyncio.timeout(HOLD_S):
                    await self._is_decided.wait()
            if self._enforcer is not None:
                self._warn_of(pod)
                await self._enforcer.hold(pod)
        except TimeoutError as error:
            text = "it is not known yet whether NetworkPolicies are to be enforced"
            raise StartError("FailedCreatePodSandBox", text) from error
        except NotEnforcedError as error:
            raise StartError("FailedCreatePodSandBox", str(error)) from error

    def _warn_of(self, pod: Object) -> None:
        """Warn once about pods that need a network of their own, and have none."""
        runtime = self._runtime
        if runtime is None or self._has_warned or pod["spec"].get("hostNetwork"):
            return
        if not runtime.own_addresses(pod["metadata"]["uid"]):  # the node has no range (yet)
            self._has_warned = True
            self._logger.warning(NOT_ENFORCED, reason=NO_NETWORK)

    def _has_pods(self) -> bool:
        runtime = self._runtime
        return runtime is not None and any(map(runtime.own_addresses, runtime.pod_uids()))

    def _enforce(self, runtime: ProcessRuntime, informers: Informers) -> None:
        policies, namespaces, pods = (informers.of(each) for each in _READ)
        table = Table(table_of(runtime.bridge), FAMILIES if has_ipv6() else FAMILIES[:1])
        self._enforcer = Enforcer(
            Sources(policies, namespaces, pods),
            OwnPods(self._node, runtime.own_addresses),
            table,
            NftWriter(table.name),
            self._clock,
            self._logger,
        )
        self._enforcer.start()
        self._runtime = runtime
        self._is_decided.set()

    async def _enforce_when_allowed(self, runtime: ProcessRuntime) -> None:
        """Start once this node has the rights that it needs; until then pods are not held back."""
        while True:
            try:
                for each in _READ:
                    await self._api.list_page(each, limit=1)
                break
            except UnreachableError:
                await asyncio.sleep(_UNREACHABLE_S)
            except ApiError as error:
                if error.is_forbidden and not self._is_decided.is_set():
                    self._logger.warning(NOT_ENFORCED, reason=str(error))
                    self._is_decided.set()
                await asyncio.sleep(_AGAIN_S if error.is_forbidden else _UNREACHABLE_S)
        self._own = Informers(self._api, self._clock, self._random, self._logger)
        self._enforce(runtime, self._own)
