"""Whether a node enforces policies, and what it says if not."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, cast

import pytest
from typing_extensions import override

from kvstack.agents.client.informers import Informers
from kvstack.agents.kubelet import isolation
from kvstack.agents.kubelet.isolation import Isolation
from kvstack.agents.kubelet.runtime.process.process_runtime import ProcessRuntime
from kvstack.agents.kubelet.runtime.runtime import Runtime, StartError
from kvstack.apimachinery.objects.status import ApiError
from kvstack.component.clock import SystemClock
from kvstack.component.net import nft
from tests.agents.network_policy.objects import pod
from tests.support.list_log import ListLog

if TYPE_CHECKING:
    from kvstack.agents.client.api import Api


class Node(ProcessRuntime):
    """A runtime with a bridge of this name, and nothing else."""

    def __init__(self, bridge: str) -> None:
        self._bridge = bridge

    @override
    @property
    def bridge(self) -> str:
        return self._bridge

    @override
    def own_addresses(self, uid: str) -> tuple[str, ...]:
        return ()

    @override
    def pod_uids(self) -> list[str]:
        return []


class Refusing:
    """An API that lets nobody list."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def list_page(self, *_arguments: object, **_more: object) -> None:
        self.asked.set()
        text = "nodes may not list networkpolicies"
        raise ApiError({"code": 403, "reason": "Forbidden", "message": text})


class Silent:
    """An API that does not answer."""

    async def list_page(self, *_arguments: object, **_more: object) -> None:
        await asyncio.Event().wait()

    async def watch(self, *_arguments: object, **_more: object) -> AsyncGenerator[None, None]:
        await asyncio.Event().wait()
        yield


def of(api: object) -> tuple[Isolation, ListLog]:
    log = ListLog()
    return Isolation(cast("Api", api), SystemClock(), lambda: 0.5, log, "here"), log


def outcome(api: object, bridge: str = "kv-1", *, is_asked_for: bool = True) -> list[str]:
    """Return what is logged; a pod goes on."""

    async def run() -> list[str]:
        own, log = of(api)
        await own.start(cast("Runtime", Node(bridge)), is_asked_for=is_asked_for)
        try:
            await own.isolate(pod("x", "a"))
        finally:
            await own.close(leaves_rules=False)
        return [f"{text}: {fields['reason']}" for text, fields in log.of("warning")]

    return asyncio.run(run())


@pytest.fixture
def has_nft(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nft, "problem", lambda: "")


@pytest.mark.usefixtures("has_nft")
def test_a_node_that_may_not_read_policies_says_so_and_runs_pods() -> None:
    assert outcome(Refusing()) == [
        "NetworkPolicies are not enforced: nodes may not list networkpolicies"
    ]


def test_a_node_without_nft_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nft, "problem", lambda: "the program nft is not installed")
    found = outcome(Silent())
    assert found == ["NetworkPolicies are not enforced: the program nft is not installed"]


@pytest.mark.usefixtures("has_nft")
def test_a_node_whose_pods_share_its_network_says_so() -> None:
    found = outcome(Silent(), "")
    assert found == ["NetworkPolicies are not enforced: pods share the network of their node"]


def test_a_node_that_is_to_leave_it_says_nothing() -> None:
    assert outcome(Silent(), is_asked_for=False) == []


@pytest.mark.usefixtures("has_nft")
def test_nobody_starts_before_it_is_known_whether_they_are_enforced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolation, "HOLD_S", 0.1)
    with pytest.raises(StartError, match="not known yet whether"):
        outcome(Silent())


@pytest.mark.usefixtures("has_nft")
def test_pods_without_a_network_are_reported_once() -> None:
    async def run() -> list[str]:
        log = ListLog()
        async with Informers(cast("Api", Silent()), SystemClock(), lambda: 0.5, log) as informers:
            own = Isolation(
                cast("Api", Silent()), SystemClock(), lambda: 0.5, log, "here", informers
            )
            await own.start(cast("Runtime", Node("kv-1")), is_asked_for=True)
            for name in ("a", "b"):
                await own.isolate(pod("x", name))
            await own.isolate(pod("x", "c", hostNetwork=True))
            await own.close(leaves_rules=True)
        return [f"{text}: {fields['reason']}" for text, fields in log.of("warning")]

    assert asyncio.run(run()) == [
        "NetworkPolicies are not enforced: pods share the network of their node"
    ]


@pytest.mark.usefixtures("has_nft")
def test_pods_of_the_nodes_network_never_wait() -> None:
    async def run() -> None:
        own, _ = of(Silent())
        await own.start(cast("Runtime", Node("kv-1")), is_asked_for=True)
        one: dict[str, Any] = pod("x", "a", hostNetwork=True)
        await own.isolate(one)
        await own.close(leaves_rules=False)

    asyncio.run(run())
