"""A plugin is a class and a row of the table: all that it says is heard."""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from typing_extensions import override

from kvstack.agents.scheduler.arguments import ConfigurationError, invalid
from kvstack.agents.scheduler.configuration import Configuration, read_configuration
from kvstack.agents.scheduler.cycle import SCORE_MAX, Code, Cycle, Failures, Reason, refuse
from kvstack.agents.scheduler.effective import effective
from kvstack.agents.scheduler.events.changes import NODE_LABEL, Change
from kvstack.agents.scheduler.plugin import Args, Hints, Plugin
from kvstack.agents.scheduler.plugins.table import PLUGINS
from kvstack.agents.scheduler.profile import DEFAULT_NAME
from kvstack.agents.scheduler.scheduling import Decision, Turn, schedule
from kvstack.agents.scheduler.scheduling_queue import SchedulingQueue
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.columns import IntArray
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object

WET = Reason(Code.UNRESOLVABLE, ("node(s) are wet",))


class Weather(Plugin):
    """Pods run where it is dry, the warmer the better."""

    name = "Weather"
    default_weight = 5
    arg_fields: ClassVar[Any] = {"maxRain": int}
    arg_defaults: ClassVar[Args] = {"maxRain": 0}
    hints: ClassVar[Hints] = {NODE_LABEL: lambda _pod, change: _label(change.new, "rain") == 0}

    def __init__(self, args: Args) -> None:
        self._rain_max = args.get("maxRain", 0)

    @classmethod
    @override
    def check_args(cls, args: Object, path: str) -> None:
        if args.get("maxRain", 0) < 0:
            raise invalid(f"{path}.maxRain", args["maxRain"], "must not be negative")

    @override
    def pre_enqueue(self, pod: PodInfo, cluster: Cluster) -> bool:
        return pod.labels.get("season") != "winter"

    @override
    def filter(self, cycle: Cycle) -> Failures | None:
        rain = np.array([_label(node, "rain") for node in cycle.cluster.nodes])
        return refuse((rain > self._rain_max)[cycle.rows], WET)

    @override
    def score(self, cycle: Cycle, feasible: IntArray) -> IntArray | None:
        warm = [_label(cycle.cluster.nodes[slot], "warm") for slot in feasible]
        return SCORE_MAX * np.array(warm, dtype=np.int64)

    @override
    def reserve(self, cycle: Cycle, slot: int) -> list[str]:
        return [f"an umbrella on {cycle.cluster.names[slot]}"]


def _label(node: Object | None, name: str) -> int:
    return int((node or {})["metadata"]["labels"].get(name, "0"))


@pytest.fixture(autouse=True)
def _row() -> Iterator[None]:
    PLUGINS[Weather.name] = Weather
    yield
    del PLUGINS[Weather.name]


def configured(**args: Any) -> Configuration:
    return read_configuration({"profiles": [{"pluginConfig": [{"name": "Weather", "args": args}]}]})


def node(name: str, **labels: str) -> Object:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts}}


def pod(**labels: str) -> PodInfo:
    meta = {"name": "p", "namespace": "d", "uid": "p", "labels": labels}
    return PodInfo({"metadata": meta, "spec": {"containers": [{"name": "c"}]}})


def decide(*nodes: Object, **args: Any) -> Decision:
    cluster = Cluster()
    for each in nodes:
        cluster.set_node(each)
    return schedule(pod(), cluster, configured(**args).profiles[DEFAULT_NAME], Turn())


def test_it_filters_and_scores_with_its_weight() -> None:
    decision = decide(node("a", rain="1"), node("b"), node("c", warm="1"))
    assert decision.node == "c"
    assert decision.scores["Weather"].tolist() == [0, 5 * SCORE_MAX]
    refused = decide(node("a", rain="1"))
    assert refused.diagnosis.message() == "0/1 nodes are available: 1 node(s) are wet."
    assert decide(node("a", rain="1"), maxRain=1).node == "a"


def test_its_hints_wake_the_pods_it_refused() -> None:
    queue = SchedulingQueue()
    queue.add(pod(), 0.0)
    waiting = queue.pop(0.0)
    assert waiting is not None
    queue.back_unschedulable(waiting, {"Weather"}, 0.0)
    assert not queue.happened(NODE_LABEL, Change(None, node("a", rain="2")), 9.0)
    assert queue.happened(NODE_LABEL, Change(None, node("a")), 9.0)


def test_it_holds_pods_back() -> None:
    profile = configured().profiles[DEFAULT_NAME]
    assert profile.gate_of(pod(season="winter"), Cluster()) == "Weather"
    assert profile.gate_of(pod(), Cluster()) == ""


def test_it_reserves_what_a_pod_needs() -> None:
    decision = decide(node("a"))
    (plugin,) = (
        each for each in configured().profiles[DEFAULT_NAME].reserves if each.name == "Weather"
    )
    assert plugin.reserve(decision.cycle, decision.slot) == ["an umbrella on a"]


def test_its_arguments_are_checked_and_shown() -> None:
    with pytest.raises(ConfigurationError, match=r'unknown field ".*args.colour"'):
        configured(colour=1)
    with pytest.raises(ConfigurationError, match="must not be negative"):
        configured(maxRain=-1)
    (profile,) = effective({}, "", {})["profiles"]
    assert profile["plugins"]["multiPoint"]["enabled"][-1] == {"name": "Weather", "weight": 5}
    (own,) = (each for each in profile["pluginConfig"] if each["name"] == "Weather")
    assert own["args"]["maxRain"] == 0
