"""Extenders: how they are set up, what they are asked, what their answers do."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kvstack.agents.client.built_in import NODES, PODS, PRIORITY_CLASSES
from kvstack.agents.scheduler import extenders
from kvstack.agents.scheduler.arguments import ConfigurationError
from kvstack.agents.scheduler.configuration import read_configuration
from kvstack.agents.scheduler.cycle import Code, Reason
from kvstack.agents.scheduler.extenders import Extender, ExtenderError
from kvstack.agents.scheduler.handle import Candidate
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.scheduler.test_live import add_node, add_pod, scheduling
from tests.support.waiting import answered

ONE = Extender("http://127.0.0.1:1/x", filter_verb="filter", knows_nodes=True)


def pod(name: str = "a", **requests: str) -> PodInfo:
    container = {"name": "c", "resources": {"requests": requests}}
    meta = {"name": name, "namespace": "web", "uid": f"uid-{name}"}
    return PodInfo({"metadata": meta, "spec": {"containers": [container]}})


def cluster_of(*names: str) -> Cluster:
    found = Cluster()
    for name in names:
        found.set_node({"metadata": {"name": name}, "status": {}})
    return found


def test_members_of_the_configuration() -> None:
    config = read_configuration(
        {
            "extenders": [
                {"urlPrefix": "http://last", "ignorable": True},
                {
                    "urlPrefix": "https://x/y",
                    "filterVerb": "filter",
                    "prioritizeVerb": "sort",
                    "weight": 5,
                    "httpTimeout": "1m",
                    "enableHTTPS": True,
                    "nodeCacheCapable": True,
                    "managedResources": [
                        {"name": "example.com/gpu", "ignoredByScheduler": True},
                        {"name": "example.com/fpga"},
                    ],
                },
            ]
        }
    )
    first, last = config.extenders
    assert (first.url, first.weight, first.timeout_s) == ("https://x/y", 5, 60.0)
    assert first.resources == {"example.com/gpu", "example.com/fpga"}
    assert (last.url, last.timeout_s, last.is_ignorable) == ("http://last", 5.0, True)
    assert first.is_interested(pod(**{"example.com/gpu": "1"}))
    assert not first.is_interested(pod(cpu="1"))
    assert last.is_interested(pod(cpu="1"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([{"filterVerb": "f"}], "extenders[0].urlPrefix: Required value"),
        (
            [{"urlPrefix": "http://x", "prioritizeVerb": "p"}],
            "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
        ),
        ([{"urlPrefix": "http://x", "surprise": 1}], 'unknown field "extenders[0].surprise"'),
        ([{"urlPrefix": "http://x", "httpTimeout": "soon"}], "extenders[0].httpTimeout: "),
        (
            [{"urlPrefix": "http://x", "managedResources": [{"name": "cpu"}]}],
            'extenders[0].managedResources[0].name: Invalid value: "cpu": is an invalid extended',
        ),
        (
            [{"urlPrefix": "http://x", "managedResources": [{"name": "a.b/c"}, {"name": "a.b/c"}]}],
            "duplicate extender managed resource name",
        ),
        (
            [
                {"urlPrefix": "http://x", "bindVerb": "b"},
                {"urlPrefix": "http://y", "bindVerb": "b"},
            ],
            "found 2 extenders implementing bind",
        ),
    ],
)
def test_configurations_that_make_no_sense(given: list[Object], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_configuration({"extenders": given})
    assert message in str(caught.value)


def test_names_or_objects_are_sent() -> None:
    cluster, asked = cluster_of("n0", "n1"), pod()
    names = extenders.about_nodes(ONE, asked, cluster, ["n1"])
    assert (names["Nodes"], names["NodeNames"]) == (None, ["n1"])
    whole = extenders.about_nodes(replace(ONE, knows_nodes=False), asked, cluster, ["n1"])
    assert whole["NodeNames"] is None
    assert [each["metadata"]["name"] for each in whole["Nodes"]["items"]] == ["n1"]


def test_what_is_answered_about_nodes() -> None:
    answer = {
        "nodenames": ["n1"],
        "FailedNodes": {"n0": "full", "n2": "busy"},
        "FailedAndUnresolvableNodes": {"n2": "broken"},
    }
    names, refused = extenders.read_filtered(ONE, answer, ["n0", "n1", "n2"])
    assert names == ["n1"]
    assert refused == {
        "n0": Reason(Code.UNSCHEDULABLE, ("full",)),
        "n2": Reason(Code.UNRESOLVABLE, ("broken",)),
    }


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"Error": "no"}, "no"),
        ({"NodeNames": ["n9"]}, 'claims a filtered node "n9" which is not found in the input'),
        (["n0"], "makes no sense"),
    ],
)
def test_answers_about_nodes_that_count_as_failures(answer: object, message: str) -> None:
    with pytest.raises(ExtenderError, match=message):
        extenders.read_filtered(ONE, answer, ["n0"])


def test_scores_are_weighted() -> None:
    extender = replace(ONE, weight=3)
    answer = [{"Host": "n0", "Score": 10}, {"host": "n1", "score": 1}]
    assert extenders.read_scores(extender, answer) == {"n0": 300, "n1": 30}
    wrong: tuple[Any, ...] = ({}, [1], [{"Host": 1}], [{"Host": "n0", "Score": "high"}])
    for strange in wrong:
        with pytest.raises(ExtenderError, match="makes no sense"):
            extenders.read_scores(extender, strange)


def test_victims_are_pods_of_the_node() -> None:
    cluster, victim = cluster_of("n0", "n1"), pod("victim")
    cluster.add_pod(victim, "n0")
    candidate = Candidate(cluster.slots["n0"], (victim,), 1)
    sent = extenders.about_victims(ONE, pod(), cluster, [candidate])
    assert sent["NodeNameToMetaVictims"] == {
        "n0": {"Pods": [{"UID": "uid-victim"}], "NumPDBViolations": 1}
    }
    answer = {"NodeNameToMetaVictims": {"n0": {"Pods": [{"UID": "uid-victim"}]}}}
    found = extenders.read_victims(ONE, answer, cluster)
    assert found == [Candidate(cluster.slots["n0"], (victim,), 0)]
    elsewhere = {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "uid-victim"}]}}}
    with pytest.raises(ExtenderError, match="the pod is not found on that node"):
        extenders.read_victims(ONE, elsewhere, cluster)
    nobody: Object = {"NodeNameToMetaVictims": {"n0": {"Pods": []}}}
    with pytest.raises(ExtenderError, match='expected at least one victim pod on node "n0"'):
        extenders.read_victims(ONE, nobody, cluster)
    assert extenders.read_victims(replace(ONE, is_ignorable=True), nobody, cluster) == []


# With a real scheduler and a real extender.


class Program:
    """An extender: takes nodes whose names do not begin with `no`, likes the name `best`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_broken = False
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        verb, body = request.path.strip("/"), await request.json()
        self.asked.append(verb)
        if self.is_broken:
            return web.Response(status=500)
        if verb == "filter":
            refused = {n: "not here" for n in body["NodeNames"] if n.startswith("no")}
            kept = [n for n in body["NodeNames"] if n not in refused]
            return web.json_response({"NodeNames": kept, "FailedNodes": refused})
        if verb == "prioritize":
            return web.json_response(
                [{"Host": n, "Score": 10 * (n == "best")} for n in body["NodeNames"]]
            )
        assert verb == "preempt"
        victims = {n: v for n, v in body["NodeNameToMetaVictims"].items() if n != "best"}
        return web.json_response({"NodeNameToMetaVictims": victims})

    def config(self, **more: Any) -> Object:
        return {
            "urlPrefix": self.url,
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "preemptVerb": "preempt",
            "weight": 10,
            "nodeCacheCapable": True,
            **more,
        }


@asynccontextmanager
async def extender() -> AsyncGenerator[Program]:
    program = Program()
    app = web.Application()
    app.router.add_post("/{verb}", program.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        program.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield program
    finally:
        await runner.cleanup()


@pytest.mark.slow
def test_an_extender_chooses_and_refuses(tmp_path: Path) -> None:
    async def run() -> None:
        async with extender() as program:
            config = read_configuration({"extenders": [program.config()]})
            async with scheduling(tmp_path, config) as (cluster, _):
                for name in ("a", "best", "no-1", "z"):
                    await add_node(cluster, name, cpu="2")
                await add_pod(cluster, "p", "1")
                await add_pod(cluster, "q", "1")

                async def node(name: str) -> Any:
                    return (await cluster.admin.get(PODS, "web", name))["spec"].get("nodeName")

                assert await answered(lambda: node("p")) == "best"
                assert await answered(lambda: node("q")) == "best"
                for name in ("a", "best", "z"):
                    await cluster.admin.delete(NODES, "", name)
                await add_pod(cluster, "r", "1")

                async def message() -> str:
                    status = (await cluster.admin.get(PODS, "web", "r"))["status"]
                    return "".join(
                        each["message"]
                        for each in status.get("conditions") or ()
                        if "not here" in each.get("message", "")
                    )

                assert (await answered(message)).startswith("0/1 nodes are available: 1 not here.")
                assert {"filter", "prioritize"} <= set(program.asked)

    asyncio.run(run())


@pytest.mark.slow
def test_an_extender_spares_a_node_its_victims(tmp_path: Path) -> None:
    async def run() -> None:
        async with extender() as program:
            config = read_configuration({"extenders": [program.config()]})
            async with scheduling(tmp_path, config) as (cluster, _):
                high = {"metadata": {"name": "high"}, "value": 1000}
                await cluster.admin.create(PRIORITY_CLASSES, "", high)
                for name in ("best", "other"):
                    await add_node(cluster, name, cpu="1")
                for name in ("p", "q"):
                    await add_pod(cluster, name, "1")

                async def nodes() -> Any:
                    pods = await cluster.admin.list_all(PODS, "web")
                    found = {p["metadata"]["name"]: p["spec"].get("nodeName") for p in pods}
                    return None if None in found.values() else found

                await answered(nodes)
                await add_pod(cluster, "r", "1", priorityClassName="high")

                async def nominated() -> Any:
                    pod = await cluster.admin.get(PODS, "web", "r")
                    return pod["status"].get("nominatedNodeName")

                assert await answered(nominated) == "other"
                assert "preempt" in program.asked

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("is_ignorable", [True, False])
def test_an_extender_that_fails(tmp_path: Path, *, is_ignorable: bool) -> None:
    async def run() -> None:
        async with extender() as program:
            program.is_broken = True
            config = read_configuration({"extenders": [program.config(ignorable=is_ignorable)]})
            async with scheduling(tmp_path, config) as (cluster, _):
                await add_node(cluster, "a", cpu="2")
                await add_pod(cluster, "p", "1")

                async def outcome() -> Any:
                    pod = await cluster.admin.get(PODS, "web", "p")
                    texts = [
                        each["message"]
                        for each in pod["status"].get("conditions") or ()
                        if each.get("reason") == "SchedulerError"
                    ]
                    return pod["spec"].get("nodeName") or "".join(texts)

                found = await answered(outcome)
                if is_ignorable:
                    assert found == "a"
                else:
                    url = f"{program.url}/filter"
                    assert found == f"failed filter with extender at URL {url}, code 500"
                    program.is_broken = False

                    async def node() -> Any:
                        pod = await cluster.admin.get(PODS, "web", "p")
                        return pod["spec"].get("nodeName")

                    assert await answered(node) == "a"

    asyncio.run(run())
