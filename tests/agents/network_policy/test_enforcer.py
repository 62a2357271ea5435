"""When what is written, and which pods wait for it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

import pytest

from kvstack.agents.client.api import Event
from kvstack.agents.client.built_in import NAMESPACES, NETWORK_POLICIES, PODS
from kvstack.agents.client.informer import Informer
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.network_policy.enforcer import Enforcer, NotEnforcedError, Sources
from kvstack.agents.network_policy.nftables.table import Table
from kvstack.agents.network_policy.own_pods import OwnPods
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import SystemClock
from kvstack.component.line_log.line_logger import LineLogger
from kvstack.component.net.nft import NftError
from tests.agents.network_policy.objects import namespace, pod, policy
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from kvstack.agents.client.api import Api

HELD_S = 0.3


class Written:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.failures = 0

    def apply(self, text: str) -> None:
        if self.failures:
            self.failures -= 1
            raise NftError("no more rules")
        self.texts.append(text)

    def is_there(self) -> bool:
        return True


def informer(resource: ResourceType) -> Informer:
    nowhere = cast("Api", None)  # it is never run
    return Informer(nowhere, resource, SystemClock(), lambda: 0.5, LineLogger([], "fatal"))


class World:
    def __init__(self) -> None:
        self.sources = Sources(informer(NETWORK_POLICIES), informer(NAMESPACES), informer(PODS))
        self.written = Written()
        self.addresses: dict[str, str] = {}
        self.enforcer = Enforcer(
            self.sources,
            OwnPods("here", lambda uid: tuple(filter(None, [self.addresses.get(uid)]))),
            Table("t", (4,)),
            self.written,
            SystemClock(),
            LineLogger([], "fatal"),
            HELD_S,
        )
        self._version = 0

    def fill(self, *policies: Object) -> None:
        for resource, objects in zip(self.sources, (policies, (namespace("x"),), ()), strict=True):
            resource.replace([self.versioned(each) for each in objects], "1")

    def versioned(self, obj: Object) -> Object:
        self._version += 1
        return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}

    def put(self, of: Informer, obj: Object, kind: str = "MODIFIED") -> None:
        of.apply([Event(kind, self.versioned(obj))])

    def sandbox(self, obj: Object, address: str) -> None:
        self.addresses[obj["metadata"]["uid"]] = address

    async def until(self, is_so: Callable[[str], bool]) -> str:
        """Wait for a transaction."""
        return (await eventually(lambda: [e for e in self.written.texts if is_so(e)]))[0]


def story(tell: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        world = World()
        world.enforcer.start()
        try:
            await tell(world)
        finally:
            await world.enforcer.close(leaves_rules=False)

    asyncio.run(run())


def isolates(address: str) -> Callable[[str], bool]:
    return lambda text: f"{{ {address} : goto ingress-pods-" in text


def test_a_pod_is_isolated_before_it_starts_and_the_api_knows_its_address() -> None:
    async def tell(world: World) -> None:
        world.fill(policy("x", "p"))
        one = pod("x", "a")
        world.sandbox(one, "10.0.0.1")
        await world.enforcer.hold(one)
        assert any(isolates("10.0.0.1")(each) for each in world.written.texts)
        count = len(world.written.texts)
        await world.enforcer.hold(one)  # for its next container
        assert len(world.written.texts) == count

    story(tell)


def test_where_no_policy_is_nobody_waits() -> None:
    async def tell(world: World) -> None:
        world.written.failures = 1000
        world.fill(policy("y", "p"))
        one = pod("x", "a")
        world.sandbox(one, "10.0.0.1")
        await asyncio.wait_for(world.enforcer.hold(one), HELD_S / 2)
        await world.enforcer.hold(pod("x", "b", hostNetwork=True))

    story(tell)


def test_nobody_starts_before_policies_are_known() -> None:
    async def tell(world: World) -> None:
        one = pod("x", "a")
        world.sandbox(one, "10.0.0.1")
        with pytest.raises(NotEnforcedError, match="not known yet"):
            await world.enforcer.hold(one)
        assert world.written.texts == []
        world.fill()
        await world.enforcer.hold(one)

    story(tell)


def test_what_cannot_be_written_holds_back_the_pods_that_are_selected() -> None:
    async def tell(world: World) -> None:
        world.written.failures = 2
        selects_a = policy("x", "p", podSelector={"matchLabels": {"pod": "a"}})
        world.fill(selects_a)
        one, other = pod("x", "a"), pod("x", "b")
        world.sandbox(one, "10.0.0.1")
        world.sandbox(other, "10.0.0.2")
        with pytest.raises(NotEnforcedError, match="no more rules"):
            await world.enforcer.hold(one)
        await world.enforcer.hold(other)
        await world.until(isolates("10.0.0.1"))  # it was tried again
        await world.enforcer.hold(one)

    story(tell)


def test_changes_that_come_together_are_written_together() -> None:
    async def tell(world: World) -> None:
        world.fill(policy("x", "p"))
        one = pod("x", "a", "10.0.0.1")
        world.sandbox(one, "10.0.0.1")
        world.put(world.sources.pods, one, "ADDED")
        await world.until(isolates("10.0.0.1"))
        before = world.enforcer.rounds
        for number in range(1, 301):
            rule = {"ports": [{"port": number}]}
            world.put(world.sources.policies, policy("x", "p", ingress=[rule]))
            if number % 3 == 0:
                await asyncio.sleep(0)
        await world.until(lambda text: "dport { 300 }" in text)
        assert world.enforcer.rounds - before < 30

    story(tell)


def test_a_pod_that_was_deleted_by_force_is_isolated_until_its_sandbox_is_gone() -> None:
    async def tell(world: World) -> None:
        world.fill(policy("x", "p"))
        one = pod("x", "a", "10.0.0.1")
        world.sandbox(one, "10.0.0.1")
        world.put(world.sources.pods, one, "ADDED")
        await world.enforcer.hold(one)
        world.put(world.sources.pods, one, "DELETED")
        other = pod("x", "b", "10.0.0.2")
        world.sandbox(other, "10.0.0.2")
        world.put(world.sources.pods, other, "ADDED")
        await world.until(isolates("10.0.0.2"))
        assert not any("delete element inet t ingress-4" in each for each in world.written.texts)
        world.addresses.pop(one["metadata"]["uid"])
        await world.until(lambda text: "delete element inet t ingress-4 { 10.0.0.1 }" in text)

    story(tell)


def test_an_address_is_isolated_as_its_new_pod_is() -> None:
    async def tell(world: World) -> None:
        world.fill(policy("x", "p", podSelector={"matchLabels": {"pod": "a"}}))
        one, other = pod("x", "a", "10.0.0.1"), pod("x", "b")
        world.sandbox(one, "10.0.0.1")
        world.put(world.sources.pods, one, "ADDED")
        await world.enforcer.hold(one)
        world.addresses = {other["metadata"]["uid"]: "10.0.0.1"}
        await world.enforcer.hold(other)
        await world.until(lambda text: "delete element inet t ingress-4 { 10.0.0.1 }" in text)

    story(tell)


def test_an_object_that_cannot_be_read_closes_its_own_namespace_alone() -> None:
    async def tell(world: World) -> None:
        world.fill(policy("x", "p", ingress=[{"from": [{"podSelector": {"matchLabels": 7}}]}]))
        one, other = pod("x", "a", "10.0.0.1"), pod("y", "b", "10.0.0.2")
        for each, address in ((one, "10.0.0.1"), (other, "10.0.0.2")):
            world.sandbox(each, address)
            world.put(world.sources.pods, each, "ADDED")
            await world.enforcer.hold(each)
        assert any(isolates("10.0.0.1")(each) for each in world.written.texts)
        assert not any("10.0.0.2 : goto" in each for each in world.written.texts)

    story(tell)


def test_the_table_goes_or_stays_with_the_pods() -> None:
    async def run(*, leaves_rules: bool) -> list[str]:
        world = World()
        world.fill(policy("x", "p"))
        world.enforcer.start()
        await world.until(lambda text: "add table inet t" in text)
        await world.enforcer.close(leaves_rules=leaves_rules)
        return world.written.texts

    assert asyncio.run(run(leaves_rules=False))[-1] == "add table inet t\ndelete table inet t\n"
    assert "flush" not in "".join(asyncio.run(run(leaves_rules=True))[1:])
    assert len(asyncio.run(run(leaves_rules=True))) == 1
