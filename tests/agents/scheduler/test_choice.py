"""How many nodes are looked at, and which of equal ones is taken."""

from typing import Any

import pytest

from kvstack.agents.scheduler.arguments import ConfigurationError
from kvstack.agents.scheduler.configuration import (
    DEFAULT,
    read_configuration,
)
from kvstack.agents.scheduler.scheduling import Turn, enough, heap_root, schedule
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo

HEAP = read_configuration({}, tie_break="heap").profiles["default-scheduler"]
ROUND_ROBIN = DEFAULT.profiles["default-scheduler"]


def cluster_of(count: int) -> Cluster:
    cluster = Cluster()
    for number in range(count):
        amounts = {"cpu": "4", "memory": "32Gi", "pods": "110"}
        name = f"n{number}"
        cluster.set_node({"metadata": {"name": name}, "status": {"allocatable": amounts}})
    return cluster


def nodes_chosen(count: int, pods: int, profile: Any) -> list[int]:
    """Return the numbers of the nodes that equal pods are placed on one after the other."""
    cluster, turn, found = cluster_of(count), Turn(), []
    for number in range(pods):
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
        meta = {"name": f"p{number}", "namespace": "d", "uid": str(number)}
        pod = PodInfo({"metadata": meta, "spec": {"containers": [container]}})
        decision = schedule(pod, cluster, profile, turn)
        turn = decision.turn
        assert decision.node is not None
        cluster.add_pod(pod, decision.node)
        found.append(int(decision.node[1:]))
    return found


def test_ties_fall_as_upstream_where_asked() -> None:
    assert nodes_chosen(5, 12, HEAP) == [0, 1, 3, 4, 2, 0, 1, 3, 4, 2, 0, 1]
    wanted = [0, 100, 1, 101, 3, 103, 7, 107, 15, 115, 31, 131, 63, 163, 64, 164]
    assert nodes_chosen(200, 16, HEAP) == wanted


def test_equal_nodes_take_turns() -> None:
    assert nodes_chosen(5, 11, ROUND_ROBIN) == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0]


def test_the_root_of_a_heap_is_not_simply_the_first_of_the_best() -> None:
    assert heap_root([0, 1, 5, 5]) == 3
    assert heap_root([7]) == 0


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [(99, 99), (100, 100), (200, 100), (500, 230), (1000, 420), (2000, 680), (5000, 500)],
)
def test_large_clusters_are_not_looked_at_whole(nodes: int, expected: int) -> None:
    assert enough(nodes, 0) == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"kind": "Other"}, 'no kind "Other"'),
        ({"colour": 1}, 'unknown field "colour"'),
        ({"percentageOfNodesToScore": 101}, "not in valid range"),
        ({"podInitialBackoffSeconds": 20}, "podMaxBackoffSeconds"),
        ({"profiles": [{"schedulerName": "a"}, {}]}, "Required value"),
        ({"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]}, "Duplicate value"),
        (
            {"profiles": [{"plugins": {"score": {"enabled": [{"name": "Nothing"}]}}}]},
            'plugin "Nothing" does not exist',
        ),
        ({"parallelism": 0}, "parallelism: Invalid value: 0"),
        ({"leaderElection": {"leases": 1}}, 'unknown field "leaderElection.leases"'),
        ({"leaderElection": {"leaseDuration": "1 minute"}}, "leaderElection.leaseDuration"),
        ({"clientConnection": {"burst": "many"}}, "clientConnection.burst: must be of type int"),
        ({"profiles": [{"colour": 1}]}, r'unknown field "profiles\[0\].colour"'),
        ({"profiles": [{"plugins": {"paint": {}}}]}, r'"profiles\[0\].plugins.paint"'),
        ({"profiles": {"schedulerName": "a"}}, "profiles: must be a list"),
        ({"profiles": [{"percentageOfNodesToScore": 101}]}, "not in valid range"),
        ({"extenders": [{"urlPrefix": "http://x", "verb": 1}]}, r'"extenders\[0\].verb"'),
    ],
)
def test_configurations_that_make_no_sense_are_refused(config: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_configuration(config)


@pytest.mark.parametrize(
    ("plugin", "args", "message"),
    [
        ("Paint", {}, 'plugin "Paint" does not exist'),
        ("ImageLocality", {"x": 1}, "takes none"),
        ("NodeResourcesFit", {"strategy": {}}, r'unknown field "profiles\[0\].pluginConfig'),
        ("NodeResourcesFit", {"ignoredResourceGroups": ["a/b"]}, "can't contain '/'"),
        ("NodeResourcesFit", {"scoringStrategy": {"type": "Most"}}, "must be one of Least"),
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"resources": [{"name": "cpu", "weight": 0}]}},
            "weight: Invalid value: 0",
        ),
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"type": "RequestedToCapacityRatio"}},
            "at least one point",
        ),
        ("VolumeBinding", {"shape": [{"utilization": 101, "score": 1}]}, "utilization: Invalid"),
        ("VolumeBinding", {"shape": [{"utilization": 1, "score": 11}]}, "score: Invalid value: 11"),
        ("VolumeBinding", {"bindTimeoutSeconds": -1}, "bindTimeoutSeconds"),
        ("DefaultPreemption", {"minCandidateNodesPercentage": 101}, "Percentage: Invalid"),
        (
            "DefaultPreemption",
            {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
            "cannot both be zero",
        ),
        ("InterPodAffinity", {"hardPodAffinityWeight": 101}, "hardPodAffinityWeight"),
        ("NodeResourcesBalancedAllocation", {"resources": [{"name": "cpu", "weight": 2}]}, "be 1"),
        ("PodTopologySpread", {"defaultingType": "Mine"}, "must be one of System, List"),
        ("PodTopologySpread", {"defaultConstraints": [{"maxSkew": 1}]}, "must be empty"),
        (
            "PodTopologySpread",
            {"defaultingType": "List", "defaultConstraints": [{"maxSkew": 0}]},
            "must be greater than zero",
        ),
        ("DynamicResources", {"filterTimeout": "soon"}, "filterTimeout"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(plugin: str, args: Any, message: str) -> None:
    config = {"profiles": [{"pluginConfig": [{"name": plugin, "args": args}]}]}
    with pytest.raises(ConfigurationError, match=message):
        read_configuration(config)


def test_a_point_can_disable_all_and_enable_some() -> None:
    score = {"disabled": [{"name": "*"}], "enabled": [{"name": "ImageLocality", "weight": 7}]}
    config = {"profiles": [{"plugins": {"score": score}}]}
    [profile] = read_configuration(config).profiles.values()
    assert [(plugin.name, weight) for plugin, weight in profile.scorers] == [("ImageLocality", 7)]
    assert profile.filters
