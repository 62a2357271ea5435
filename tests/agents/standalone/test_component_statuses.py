"""`kubectl get componentstatuses` in a cluster of one process: the truth about its parts."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.client.api import Api
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.standalone.local_agents import AgentOptions, LocalAgents
from kvstack.agents.standalone.parts import CONTROLLERS, NODE, NODES, SCHEDULER
from kvstack.apiserver.server import components
from kvstack.apiserver.server.components import ComponentStatuses
from tests.agents.support.cluster import TestCluster

STATUSES = ResourceType("", "v1", "componentstatuses", "ComponentStatus", is_namespaced=False)


@pytest.fixture(autouse=True)
def _nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes of the machine may serve the two ports."""
    for name in components.PORTS:
        monkeypatch.setitem(components.PORTS, name, 1)


async def health(api: Api) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for name in ("controller-manager", "scheduler", "etcd-0"):
        (condition,) = (await api.get(STATUSES, "", name))["conditions"]
        found[name] = (condition["status"], condition["message"])
    return found


def test_parts_of_the_process_are_healthy_while_they_work(tmp_path: Path) -> None:
    async def main() -> None:
        async with TestCluster(tmp_path) as cluster:
            options = AgentOptions(frozenset((NODES, NODE)), chosen="root-ca-certificate-publisher")
            async with LocalAgents(cluster.server, options, cluster.log):
                assert await health(cluster.admin) == {
                    "controller-manager": ("True", "ok"),
                    "scheduler": ("True", "ok"),
                    "etcd-0": ("True", "ok"),
                }
            ended = await health(cluster.admin)
            assert ended["scheduler"][0] == "False"
            assert "connection refused" in ended["scheduler"][1]

    asyncio.run(main())


def test_parts_that_are_left_out_are_asked_for_on_their_ports(tmp_path: Path) -> None:
    """As upstream shows a component that does not run."""

    async def main() -> None:
        async with TestCluster(tmp_path) as cluster:
            without = frozenset((CONTROLLERS, SCHEDULER, NODES, NODE))
            async with LocalAgents(cluster.server, AgentOptions(without), cluster.log):
                found = await health(cluster.admin)
                for name in ("controller-manager", "scheduler"):
                    assert found[name][0] == "False"
                    assert "connection refused" in found[name][1]

    asyncio.run(main())


@pytest.mark.parametrize(("is_working", "expected"), [(True, "ok"), (False, "500")])
def test_a_part_that_has_ended_is_unhealthy(*, is_working: bool, expected: str) -> None:
    async def main() -> Any:
        statuses = ComponentStatuses({"scheduler": _never})
        statuses.attach("scheduler", lambda: is_working)
        return await statuses.make("scheduler")

    (condition,) = asyncio.run(main())["conditions"]
    assert condition["status"] == str(is_working)
    assert condition["message"].endswith(expected)


async def _never() -> components.Health:
    raise AssertionError("a part of the process is not asked for by its port")
