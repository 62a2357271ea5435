"""A plugin is a class and a row of the table: what it writes, and what its errors lead to."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typing_extensions import override

from kvstack.agents.client.built_in import NEW_EVENTS, PERSISTENT_VOLUME_CLAIMS, PODS
from kvstack.agents.scheduler.configuration import DEFAULT, Configuration, read_configuration
from kvstack.agents.scheduler.cycle import Code, Cycle
from kvstack.agents.scheduler.diagnosis import Diagnosis
from kvstack.agents.scheduler.handle import Handle, PluginError, PostFilterResult
from kvstack.agents.scheduler.live.binder import BindingError
from kvstack.agents.scheduler.live.extension_points import (
    pre_binds_of,
    run_post_filters,
    run_pre_binds,
    unreserve,
)
from kvstack.agents.scheduler.plugin import Plugin, Unplaced
from kvstack.agents.scheduler.plugins.table import PLUGINS
from kvstack.agents.scheduler.profile import Profile
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.scheduler.handles import FakeHandle
from tests.agents.scheduler.test_live import add_node, add_pod, scheduling
from tests.agents.support.cluster import TestCluster
from tests.support.list_log import ListLog
from tests.support.waiting import answered

POD: Object = {
    "metadata": {"name": "p", "namespace": "web", "uid": "u"},
    "spec": {"schedulerName": "default-scheduler", "containers": []},
}


class Toy(Plugin):
    """Notes what it is asked; its answers are set by tests."""

    name = "Toy"
    asked: ClassVar[list[str]] = []
    answers: ClassVar[list[PostFilterResult | Exception]] = []
    failures: ClassVar[list[Exception]] = []
    """Of `pre_bind`, one a call."""

    @override
    async def post_filter(self, _handle: Handle, unplaced: Unplaced) -> PostFilterResult:
        self.asked.append(f"post_filter {unplaced.cycle.pod.name}")
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @override
    def reserve(self, _cycle: Cycle, _slot: int) -> list[str]:
        return ["berth"]

    @override
    def unreserve(self, _cluster: Cluster, reserved: Sequence[str]) -> None:
        self.asked.append(f"unreserve {reserved[0]}")

    @override
    async def pre_bind(
        self, _handle: Handle, pod: PodInfo, node: str, reserved: Sequence[str]
    ) -> None:
        self.asked.append(f"pre_bind {pod.name} {node} {reserved[0]}")
        if self.failures:
            raise self.failures.pop()

    @override
    async def undo_pre_bind(self, _handle: Handle, pod: PodInfo, _reserved: Sequence[str]) -> None:
        self.asked.append(f"undo_pre_bind {pod.name}")
        if pod.name == "stuck":
            raise PluginError("it is stuck")


class Second(Toy):
    """Another one."""

    name = "Second"
    asked: ClassVar[list[str]] = []
    answers: ClassVar[list[PostFilterResult | Exception]] = []
    failures: ClassVar[list[Exception]] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    for each in (Toy, Second):
        each.asked.clear()
        each.answers[:] = [PostFilterResult(Code.UNSCHEDULABLE)]
        each.failures.clear()


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Configuration:
    """The configuration of a scheduler whose table has the toy."""
    monkeypatch.setitem(PLUGINS, Toy.name, Toy)
    return read_configuration({})


def two(monkeypatch: pytest.MonkeyPatch) -> Profile:
    """Return a profile with nothing but both toys."""
    for each in (Toy, Second):
        monkeypatch.setitem(PLUGINS, each.name, each)
    plugins = {
        "multiPoint": {
            "disabled": [{"name": "*"}],
            "enabled": [{"name": "Toy"}, {"name": "Second"}],
        }
    }
    return read_configuration({"profiles": [{"plugins": plugins}]}).profiles["default-scheduler"]


def post_filtered(profile: Profile, log: ListLog | None = None) -> PostFilterResult:
    cluster = Cluster()
    unplaced = Unplaced(Cycle(PodInfo(POD), cluster), Diagnosis(0), profile.filters)
    handle = FakeHandle(cluster)
    return asyncio.run(run_post_filters(profile, handle, unplaced, log or ListLog()))


def test_a_row_of_the_table_puts_a_plugin_at_the_points_it_has_methods_for(
    config: Configuration,
) -> None:
    profile = config.profiles["default-scheduler"]
    points = (profile.post_filters, profile.reserves, profile.pre_binds)
    assert [[each.name for each in point][-1] for point in points] == ["Toy", "Toy", "Toy"]
    assert "Toy" not in [each.name for each in (*profile.filters, *profile.gates)]
    usual = DEFAULT.profiles["default-scheduler"]
    assert [each.name for each in usual.post_filters] == ["DynamicResources", "DefaultPreemption"]
    assert [each.name for each in usual.pre_binds] == ["VolumeBinding", "DynamicResources"]
    off = {"preBind": {"disabled": [{"name": "Toy"}]}, "postFilter": {"disabled": [{"name": "*"}]}}
    profile = read_configuration({"profiles": [{"plugins": off}]}).profiles["default-scheduler"]
    assert profile.post_filters == ()
    assert "Toy" not in [each.name for each in profile.pre_binds]
    assert "Toy" in [each.name for each in profile.reserves]


@pytest.mark.parametrize("code", [None, Code.UNRESOLVABLE])
def test_room_that_was_made_ends_the_search_and_so_does_that_there_never_is_any(
    monkeypatch: pytest.MonkeyPatch, code: Code | None
) -> None:
    profile = two(monkeypatch)
    Toy.answers[:] = [PostFilterResult(code, "first", "n1")]
    assert post_filtered(profile) == PostFilterResult(code, "first", "n1")
    assert (Toy.asked, Second.asked) == (["post_filter p"], [])


def test_texts_of_plugins_that_made_no_room_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = two(monkeypatch)
    Toy.answers[:] = [PostFilterResult(Code.UNSCHEDULABLE, "first", "")]
    Second.answers[:] = [PostFilterResult(Code.UNSCHEDULABLE, "second")]
    assert post_filtered(profile) == PostFilterResult(Code.UNSCHEDULABLE, "first, second", "")


@pytest.mark.parametrize(
    ("error", "level"), [(PluginError("no yard"), "info"), (KeyError("no yard"), "error")]
)
def test_an_error_ends_the_search_and_leaves_the_nomination(
    monkeypatch: pytest.MonkeyPatch, error: Exception, level: str
) -> None:
    profile, log = two(monkeypatch), ListLog()
    Toy.answers[:] = [error]
    assert post_filtered(profile, log) == PostFilterResult(Code.UNSCHEDULABLE, str(error), None)
    assert Second.asked == []
    assert [line[0] for line in log.lines] == [level]


def test_a_plugin_without_work_before_a_binding_is_not_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profile, pod = two(monkeypatch), PodInfo(POD)
    reserved: dict[str, Sequence[Any]] = {"Toy": (), "Second": ("berth",)}
    names = pre_binds_of(profile, pod, "n", reserved)
    assert names == ["Second"]
    asyncio.run(run_pre_binds(profile, FakeHandle(Cluster()), pod, "n", reserved, names))
    assert (Toy.asked, Second.asked) == ([], ["pre_bind p n berth"])


def test_the_first_error_before_a_binding_names_its_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    profile, pod = two(monkeypatch), PodInfo(POD)
    reserved = {"Toy": ("berth",), "Second": ("berth",)}
    Toy.failures.append(PluginError("no berth"))
    names = pre_binds_of(profile, pod, "n", reserved)
    with pytest.raises(BindingError, match=r'^running PreBind plugin "Toy": no berth$'):
        asyncio.run(run_pre_binds(profile, FakeHandle(Cluster()), pod, "n", reserved, names))
    assert Second.asked == []


def test_what_cannot_be_undone_does_not_keep_others_from_undoing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profile, log = two(monkeypatch), ListLog()
    stuck = PodInfo({**POD, "metadata": {**POD["metadata"], "name": "stuck"}})
    reserved = {"Toy": ("berth",), "Second": ("berth",)}
    asyncio.run(unreserve(profile, FakeHandle(Cluster()), stuck, reserved, log))
    assert Toy.asked == Second.asked == ["unreserve berth", "undo_pre_bind stuck"]
    assert [line[2]["plugin"] for line in log.lines] == ["Second", "Toy"]


async def condition_of(cluster: TestCluster, name: str) -> Object | None:
    pod = await cluster.admin.get(PODS, "web", name)
    for each in pod["status"].get("conditions") or ():
        if each["type"] == "PodScheduled":
            return each
    return None


@pytest.mark.slow
def test_a_pod_whose_plugin_fails_before_the_binding_is_reported_and_tried_again(
    tmp_path: Path, config: Configuration
) -> None:
    Toy.failures.append(PluginError("no berth"))

    async def run() -> None:
        async with scheduling(tmp_path, config) as (cluster, scheduler):
            await add_node(cluster, "n")
            await add_pod(cluster, "p", "1")

            async def node() -> str | None:
                pod = await cluster.admin.get(PODS, "web", "p")
                return pod["spec"].get("nodeName")

            assert await answered(node) == "n"
            await scheduler.flushed()
            events = await cluster.admin.list_all(NEW_EVENTS, "web")
            (failed,) = [each for each in events if each["reason"] == "FailedScheduling"]
            assert failed["note"] == 'running PreBind plugin "Toy": no berth'
            assert not cluster.log.of("error")

    asyncio.run(run())
    called = "pre_bind p n berth"
    assert Toy.asked == [called, "unreserve berth", "undo_pre_bind p", called]


@pytest.mark.slow
def test_what_a_plugin_says_about_a_pod_without_a_node_is_part_of_its_message(
    tmp_path: Path, config: Configuration
) -> None:
    Toy.answers[:] = [PostFilterResult(Code.UNSCHEDULABLE, "the yard is full")]

    async def run() -> None:
        async with scheduling(tmp_path, config) as (cluster, _):
            await add_node(cluster, "n", cpu="1")
            await add_pod(cluster, "big", "2")

            async def refused() -> Object | None:
                return await condition_of(cluster, "big")

            condition = await answered(refused)
            assert condition["reason"] == "Unschedulable"
            assert condition["message"].endswith(
                "preemption: 0/1 nodes are available:"
                " 1 Preemption is not helpful for scheduling., the yard is full"
            )

    asyncio.run(run())
    assert Toy.asked[0] == "post_filter big"


@pytest.mark.slow
def test_an_error_of_a_plugin_is_all_that_is_said_besides_the_reasons_of_nodes(
    tmp_path: Path, config: Configuration
) -> None:
    async def run() -> None:
        async with scheduling(tmp_path, config) as (cluster, _):
            await add_node(cluster, "n")
            claim = {
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                    "storageClassName": "",
                },
            }
            await cluster.admin.create(PERSISTENT_VOLUME_CLAIMS, "web", claim)
            volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
            await add_pod(cluster, "p", "1", volumes=volumes)

            async def message_of_pod() -> str | None:
                condition = await condition_of(cluster, "p")
                message = (condition or {}).get("message", "")
                return message if "unbound immediate" in message else None

            # DynamicResources was never asked: VolumeBinding ended the search before it.
            assert await answered(message_of_pod) == (
                "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
                " not found"
            )

    asyncio.run(run())
    assert Toy.asked == []
