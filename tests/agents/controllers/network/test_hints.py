"""Hints: own places, and shares of zones."""

from typing import Any

import pytest

from kvstack.agents.controllers.network.slices.hints import Hints, cpu_shares
from kvstack.agents.controllers.network.slices.packing import Changes
from kvstack.apimachinery.objects.json_object import Object

AUTO = {"service.kubernetes.io/topology-mode": "Auto"}


def service(mode: str = "", **annotations: str) -> Object:
    spec = {"trafficDistribution": mode} if mode else {}
    return {"metadata": {"name": "s", "namespace": "n", "annotations": annotations}, "spec": spec}


def node(name: str, zone: str, cpu: str = "4", *, ready: bool = True) -> Object:
    status = {
        "allocatable": {"cpu": cpu},
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    labels = {"topology.kubernetes.io/zone": zone}
    return {"metadata": {"name": name, "labels": labels}, "status": status}


def endpoints(zones: str, *, ready: bool = True) -> list[Object]:
    return [
        {
            "addresses": [str(at)],
            "zone": zone,
            "nodeName": f"n{zone}",
            "conditions": {"ready": ready},
        }
        for at, zone in enumerate(zones)
    ]


def hinted(zones: str, nodes: list[Object]) -> tuple[str, list[str]]:
    """Return the zones of hints, and what was told."""
    changes = Changes(create=[{"metadata": {}, "endpoints": endpoints(zones)}])
    events = Hints().apply("n/s", service(**AUTO), "IPv4", changes, [], nodes)
    found = "".join(
        each["hints"]["forZones"][0]["name"] if "hints" in each else "-"
        for each in changes.create[0]["endpoints"]
    )
    return found, [each.message for each in events]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("PreferClose", {"forZones": [{"name": "a"}]}),
        ("PreferSameZone", {"forZones": [{"name": "a"}]}),
        ("PreferSameNode", {"forZones": [{"name": "a"}], "forNodes": [{"name": "na"}]}),
        ("", None),
    ],
)
def test_own_topology(mode: str, expected: Object | None) -> None:
    changes = Changes(create=[{"metadata": {}, "endpoints": endpoints("a")}])
    assert Hints().apply("n/s", service(mode), "IPv4", changes, [], []) == []
    assert changes.create[0]["endpoints"][0].get("hints") == expected


def test_slices_that_only_lose_hints_are_updated() -> None:
    [one] = endpoints("a")
    known: Object = {
        "metadata": {"name": "x"},
        "endpoints": [{**one, "hints": {"forZones": [{"name": "a"}]}}],
    }
    changes = Changes()
    Hints().apply("n/s", service(), "IPv4", changes, [known], [])
    assert changes.update == [{"metadata": {"name": "x"}, "endpoints": [one]}]
    assert "hints" in known["endpoints"][0]  # what is watched is never changed


def test_shares() -> None:
    nodes = [node("1", "a"), node("2", "b"), node("3", "b", "8"), node("4", "c", ready=False)]
    assert cpu_shares(nodes) == {"a": 0.25, "b": 0.75}
    assert cpu_shares([node("1", "a")]) == {}
    assert cpu_shares([node("1", "a"), node("2", "")]) == {}


def test_zones_get_their_share() -> None:
    """Zone a has more endpoints than its share: it gives."""
    nodes = [node("1", "a"), node("2", "b")]
    assert hinted("aaab", nodes) == (
        "baab",
        ["Topology Aware Hints has been enabled, addressType: IPv4"],
    )


@pytest.mark.parametrize(
    ("zones", "nodes", "text"),
    [
        ("ab", [node("1", "a")], "Insufficient Node information"),
        ("a", [node("1", "a"), node("2", "b")], "Insufficient number of endpoints"),
        ("aab", [node("1", "a"), node("2", "b")], "Unable to allocate minimum"),
    ],
)
def test_where_it_cannot_be(zones: str, nodes: list[Object], text: str) -> None:
    found, [message] = hinted(zones, nodes)
    assert set(found) == {"-"}
    assert message.startswith(text)


def applied(found: Object, hints: Hints, slices: list[Object], nodes: list[Object]) -> Any:
    """Return the changes of unchanged slices, and what was told."""
    changes = Changes()
    events = hints.apply("n/s", found, "IPv4", changes, slices, nodes)
    return changes, [(each.type, each.reason, each.message) for each in events]


def test_the_automatic_mode_is_reported_once_and_when_it_ends() -> None:
    hints, nodes = Hints(), [node("x", "a"), node("y", "b")]
    plain = {"metadata": {"name": "e"}, "endpoints": endpoints("aabb")}
    changes, told = applied(service(**AUTO), hints, [plain], nodes)
    text = "Topology Aware Hints has been enabled, addressType: IPv4"
    assert told == [("Normal", "TopologyAwareHintsEnabled", text)]
    [hinted_slice] = changes.update
    assert applied(service(**AUTO), hints, [hinted_slice], nodes) == (Changes(), [])
    changes, told = applied(service(), hints, [hinted_slice], nodes)
    text = "Topology Aware Hints has been disabled, addressType: IPv4"
    assert told == [("Warning", "TopologyAwareHintsDisabled", text)]
    assert not any("hints" in each for each in changes.update[0]["endpoints"])


def test_hints_of_a_zone_that_is_gone_are_made_anew() -> None:
    old: Object = {"metadata": {"name": "e"}, "endpoints": endpoints("aabb")}
    for each in old["endpoints"]:
        each["hints"] = {"forZones": [{"name": "gone"}]}
    nodes = [node("x", "a"), node("y", "b")]
    changes, _ = applied(service(**AUTO), Hints(), [old], nodes)
    zones = [each["hints"]["forZones"][0]["name"] for each in changes.update[0]["endpoints"]]
    assert zones == ["a", "a", "b", "b"]


def test_the_annotation_wins() -> None:
    both = service("PreferClose", **AUTO)
    found = {"metadata": {"name": "e"}, "endpoints": endpoints("a")}
    _, [told] = applied(both, Hints(), [found], [node("x", "a")])
    assert told[1] == "TopologyAwareHintsDisabled"
