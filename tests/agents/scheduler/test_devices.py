"""Which devices claims get, on which nodes, and what is told where they get none."""

import asyncio
from typing import Any

import pytest

from kvstack.agents.scheduler.arguments import ConfigurationError
from kvstack.agents.scheduler.configuration import DEFAULT, read_configuration
from kvstack.agents.scheduler.cycle import Code
from kvstack.agents.scheduler.devices.allocator import Allocator, NodeError
from kvstack.agents.scheduler.devices.requests import DeviceError
from kvstack.agents.scheduler.handle import PluginError, PostFilterResult
from kvstack.agents.scheduler.plugin import Unplaced
from kvstack.agents.scheduler.plugins.dynamic_resources import plan_for
from kvstack.agents.scheduler.scheduling import Decision, Turn, schedule
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.scheduler.handles import FakeHandle

DRIVER = "gpu.example.com"
PROFILE = DEFAULT.profiles["default-scheduler"]


def node(name: str, **labels: str) -> Object:
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "110"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts}}


def device(name: str, model: str = "a", **more: Any) -> Object:
    return {"name": name, "attributes": {"model": {"string": model}}, **more}


def slice_of(name: str, *devices: Object, pool: str = "", count: int = 1, **spec: Any) -> Object:
    spec = spec or {"nodeName": name}
    generation = spec.pop("generation", 1)
    about = {"name": pool or name, "generation": generation, "resourceSliceCount": count}
    body = {"driver": DRIVER, "pool": about, "devices": list(devices), **spec}
    return {"metadata": {"name": f"{pool or name}-{name}-{generation}"}, "spec": body}


def wants(name: str = "gpu", count: int = 1, cel: str = "", **more: Any) -> Object:
    exactly: Object = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    if cel:
        exactly["selectors"] = [{"cel": {"expression": cel}}]
    return {"name": name, "exactly": {**exactly, **more}}


def claim(name: str, *requests: Object, **devices: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "web", "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": list(requests), **devices}},
    }


def cluster(*slices: Object, nodes: int = 2, rules: tuple[Object, ...] = ()) -> Cluster:
    made = Cluster()
    for number in range(nodes):
        made.set_node(node(f"n{number}", zone=f"z{number}"))
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    made.devices.classes["gpu"] = {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}}
    for each in slices:
        made.devices.slices[each["metadata"]["name"]] = each
    made.devices.taint_rules.update({str(place): each for place, each in enumerate(rules)})
    return made


def post_filtered(decision: Decision, handle: FakeHandle) -> PostFilterResult:
    """Return what the plugin does about a pod that no node takes."""
    (plugin,) = (each for each in PROFILE.post_filters if each.name == "DynamicResources")
    unplaced = Unplaced(decision.cycle, decision.diagnosis, PROFILE.filters)
    return asyncio.run(plugin.post_filter(handle, unplaced))


def allocated(world: Cluster, *claims: Object, slot: int = 0) -> list[list[str]] | None:
    """Return the devices each claim gets."""
    allocations = Allocator(world, claims).allocate(slot)
    if allocations is None:
        return None
    return [
        [f"{each['request']}={each['device']}" for each in allocation["devices"]["results"]]
        for allocation in allocations
    ]


MODEL_B = f'device.attributes["{DRIVER}"].model == "b"'
MEMORY = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'


def test_the_first_devices_in_the_order_of_pools_are_taken() -> None:
    world = cluster(
        slice_of("n0", device("d0"), device("d1", "b"), device("d2", "b"), pool="z"),
        slice_of("n0", device("d0"), pool="a"),
        slice_of("n1", device("far")),
    )
    assert allocated(world, claim("c", wants())) == [["gpu=d0"]]
    allocation = Allocator(world, [claim("c", wants())]).allocate(0)
    assert allocation is not None
    assert allocation[0]["devices"]["results"][0]["pool"] == "a"
    assert allocation[0]["nodeSelector"] == {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
        ]
    }
    assert allocated(world, claim("c", wants(cel=MODEL_B, count=2))) == [["gpu=d1", "gpu=d2"]]
    assert allocated(world, claim("c", wants(cel=MODEL_B, count=3))) is None
    assert allocated(world, claim("c", wants(count=4))) == [
        ["gpu=d0", "gpu=d0", "gpu=d1", "gpu=d2"]
    ]
    assert allocated(world, claim("c", wants(count=5))) is None


def test_a_choice_is_taken_back_where_what_follows_needs_the_device() -> None:
    world = cluster(slice_of("n0", device("d0", "b"), device("d1")))
    both = claim("c", wants("any"), wants("b", cel=MODEL_B))
    assert allocated(world, both) == [["any=d1", "b=d0"]]
    assert allocated(world, claim("one", wants()), claim("two", wants(cel=MODEL_B))) == [
        ["gpu=d1"],
        ["gpu=d0"],
    ]


def test_devices_that_others_have_are_not_free_but_for_administrators() -> None:
    world = cluster(slice_of("n0", device("d0"), device("d1")))
    result = {"request": "gpu", "driver": DRIVER, "pool": "n0", "device": "d0"}
    taken = claim("taken", wants())
    taken["status"] = {"allocation": {"devices": {"results": [result]}}}
    world.devices.set_claim("web/taken", taken)
    assert allocated(world, claim("c", wants())) == [["gpu=d1"]]
    assert allocated(world, claim("c", wants(count=2))) is None
    assert allocated(world, claim("c", wants(adminAccess=True))) == [["gpu=d0"]]
    # What was decided counts as well, until it is known or given back.
    allocation = {"devices": {"results": [{**result, "device": "d1"}]}}
    world.devices.assume(claim("c", wants()), allocation)
    assert allocated(world, claim("d", wants())) is None
    world.devices.forget("uid-c")
    assert allocated(world, claim("d", wants())) == [["gpu=d1"]]
    world.devices.set_claim("web/taken", None)
    assert allocated(world, claim("d", wants())) == [["gpu=d0"]]


def test_all_devices_of_a_kind() -> None:
    world = cluster(slice_of("n0", device("d0"), device("d1", "b"), device("d2", "b")))
    every = wants(cel=MODEL_B, allocationMode="All")
    assert allocated(world, claim("c", every)) == [["gpu=d1", "gpu=d2"]]
    assert allocated(world, claim("c", wants("one", cel=MODEL_B), every)) is None
    assert allocated(world, claim("c", every), slot=1) is None


def test_alternatives_are_tried_in_their_order() -> None:
    world = cluster(slice_of("n0", device("d0"), device("d1")))
    big = {**wants(count=3)["exactly"], "name": "big"}
    small = {**wants(count=2)["exactly"], "name": "small"}
    choice = {"name": "gpu", "firstAvailable": [big, small]}
    config = [
        {"requests": ["gpu/small"], "opaque": {"driver": DRIVER, "parameters": 1}},
        {"requests": ["gpu/big"], "opaque": {"driver": DRIVER, "parameters": 2}},
    ]
    wanted = claim("c", choice, config=config)
    assert allocated(world, wanted) == [["gpu/small=d0", "gpu/small=d1"]]
    allocations = Allocator(world, [wanted]).allocate(0)
    assert allocations is not None
    # A configuration of all requests names none.
    assert allocations[0]["devices"]["config"] == [
        {"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": 1}}
    ]


def test_configurations_of_classes_come_first() -> None:
    world = cluster(slice_of("n0", device("d0"), device("d1")))
    world.devices.classes["gpu"]["spec"]["config"] = [{"opaque": {"driver": DRIVER}}]
    wanted = claim("c", wants("a"), wants("b"), config=[{"requests": ["b"], "opaque": {}}])
    allocations = Allocator(world, [wanted]).allocate(0)
    assert allocations is not None
    assert allocations[0]["devices"]["config"] == [
        {"source": "FromClass", "opaque": {"driver": DRIVER}},
        {"source": "FromClaim", "requests": ["b"], "opaque": {}},
    ]


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ({"matchAttribute": f"{DRIVER}/model"}, [["a=d1", "b=d2"]]),
        ({"matchAttribute": f"{DRIVER}/model", "requests": ["a"]}, [["a=d0", "b=d1"]]),
        ({"matchAttribute": "other.example.com/model"}, None),
        ({"distinctAttribute": f"{DRIVER}/model"}, [["a=d0", "b=d1"]]),
    ],
)
def test_constraints(constraint: Object, expected: list[list[str]] | None) -> None:
    world = cluster(slice_of("n0", device("d0"), device("d1", "b"), device("d2", "b")))
    assert (
        allocated(world, claim("c", wants("a"), wants("b"), constraints=[constraint])) == expected
    )


def test_tainted_devices_need_a_toleration() -> None:
    taint = {"key": "broken", "value": "yes", "effect": "NoSchedule"}
    soft = {"key": "slow", "effect": "None"}
    rule = {"spec": {"deviceSelector": {"pool": "n0", "device": "d1"}, "taint": taint}}
    devices = (device("d0", taints=[taint]), device("d1"), device("d2", taints=[soft]))
    world = cluster(slice_of("n0", *devices), rules=(rule,))
    assert allocated(world, claim("c", wants())) == [["gpu=d2"]]
    tolerations = [{"key": "broken", "operator": "Exists"}]
    assert allocated(world, claim("c", wants(tolerations=tolerations))) == [["gpu=d0"]]
    other = [{"key": "broken", "operator": "Equal", "value": "no"}]
    assert allocated(world, claim("c", wants(tolerations=other))) == [["gpu=d2"]]


def test_slices_that_a_node_sees() -> None:
    here = {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "zone", "operator": "In", "values": ["z1"]}
    ]}]}  # fmt: skip
    world = cluster(
        slice_of("a", device("all"), pool="a", allNodes=True),
        slice_of("b", device("zone"), pool="b", nodeSelector=here),
        slice_of(
            "c",
            device("own", nodeName="n1"),
            device("other", nodeName="n0"),
            pool="c",
            perDeviceNodeSelection=True,
        ),
    )
    assert allocated(world, claim("c", wants(count=2))) == [["gpu=all", "gpu=other"]]
    assert allocated(world, claim("c", wants(count=3)), slot=1) == [
        ["gpu=all", "gpu=zone", "gpu=own"]
    ]
    allocations = Allocator(world, [claim("c", wants(count=2))]).allocate(1)
    assert allocations is not None
    assert allocations[0]["nodeSelector"] == here
    allocations = Allocator(world, [claim("c", wants())]).allocate(1)
    assert allocations is not None
    assert "nodeSelector" not in allocations[0]


def test_only_whole_pools_of_the_newest_generation_count() -> None:
    world = cluster(
        slice_of("n0", device("old"), pool="p", generation=1, nodeName="n0"),
        slice_of("n0", device("new"), pool="p", generation=2, nodeName="n0"),
        slice_of("n0", device("half"), pool="q", count=2),
    )
    assert allocated(world, claim("c", wants())) == [["gpu=new"]]
    assert allocated(world, claim("c", wants(count=2))) is None
    with pytest.raises(DeviceError, match=r"resource pool gpu\.example\.com/q is currently"):
        allocated(world, claim("c", wants(allocationMode="All")))


def test_pools_that_make_no_sense() -> None:
    world = cluster(slice_of("n0", device("twice"), device("twice")))
    with pytest.raises(NodeError, match="invalid resource pools were encountered"):
        allocated(world, claim("c", wants()))


def test_devices_that_share_counters() -> None:
    def part(name: str, memory: str) -> Object:
        counters = {"memory": {"value": memory}}
        return device(name, consumesCounters=[{"counterSet": "card", "counters": counters}])

    card = {"name": "card", "counters": {"memory": {"value": "40Gi"}}}
    world = cluster(
        slice_of("n0", part("whole", "40Gi"), part("half1", "20Gi"), part("half2", "20Gi"),
                 pool="p", count=2, nodeName="n0"),
        slice_of("c", pool="p", count=2, nodeName="n0", sharedCounters=[card]),
    )  # fmt: skip
    assert allocated(world, claim("c", wants())) == [["gpu=whole"]]
    assert allocated(world, claim("c", wants(count=2))) == [["gpu=half1", "gpu=half2"]]
    assert allocated(world, claim("c", wants(count=3))) is None
    result = {"request": "gpu", "driver": DRIVER, "pool": "p", "device": "half1"}
    taken = claim("taken", wants())
    taken["status"] = {"allocation": {"devices": {"results": [result]}}}
    world.devices.set_claim("web/taken", taken)
    assert allocated(world, claim("c", wants())) == [["gpu=half2"]]


def test_parts_of_devices() -> None:
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "2Gi", "max": "9Gi"}}
    capacity = {"memory": {"value": "10Gi", "requestPolicy": policy}}
    shared = device("d0", allowMultipleAllocations=True, capacity=capacity)
    world = cluster(slice_of("n0", shared))
    four = wants(capacity={"requests": {"memory": "4Gi"}})
    allocations = Allocator(world, [claim("c", four), claim("d", four)]).allocate(0)
    assert allocations is not None
    results = [each["devices"]["results"][0] for each in allocations]
    assert [each["consumedCapacity"] for each in results] == [{"memory": "5Gi"}] * 2
    assert results[0]["shareID"] != results[1]["shareID"]
    assert allocated(world, claim("c", four), claim("d", four), claim("e", wants())) is None
    assert allocated(world, claim("c", wants(capacity={"requests": {"memory": "10Gi"}}))) is None
    assert allocated(world, claim("c", wants(capacity={"requests": {"cores": "1"}}))) is None
    taken = claim("taken", four)
    taken["status"] = {"allocation": allocations[0]}
    world.devices.set_claim("web/taken", taken)
    assert allocated(world, claim("d", four)) == [["gpu=d0"]]
    assert allocated(world, claim("d", four), claim("e", four)) is None
    world.devices.set_claim("web/taken", None)
    assert not world.devices.shared


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (wants(cel="device.what"), "claim web/c: selector #0: CEL compile error"),
        (
            wants(cel=f'device.attributes["{DRIVER}"].size > 1'),
            "claim web/c: selector #0 on device gpu.example.com/n0/d0:"
            " CEL runtime error: no such key: size",
        ),
        (wants(count=33), "33 devices exceed the claim limit of 32"),
        (wants(allocationMode="Some"), "unsupported count mode Some"),
        (wants(deviceClassName="none"), "could not retrieve device class none"),
    ],
)
def test_what_no_node_can_help(expected: Object, text: str) -> None:
    world = cluster(slice_of("n0", device("d0")))
    with pytest.raises(DeviceError, match=text):
        allocated(world, claim("c", expected))


def test_a_search_without_end_is_given_up() -> None:
    devices = [device(f"d{number}", str(number)) for number in range(30)]
    world = cluster(slice_of("n0", *devices))
    together = claim("c", wants(count=15), constraints=[{"matchAttribute": f"{DRIVER}/model"}])
    assert allocated(world, together) is None
    apart = claim("c", wants("a", count=15), wants("b", cel=MODEL_B))
    with pytest.raises(DeviceError, match="node n0: timed out trying to allocate devices"):
        allocated(world, apart)


# The plugin.


def pod(*claims: str) -> PodInfo:
    wanted = [{"name": name, "resourceClaimName": name} for name in claims]
    meta = {"name": "p", "namespace": "web", "uid": "uid-p"}
    spec = {"containers": [{"name": "c"}], "resourceClaims": wanted}
    return PodInfo({"metadata": meta, "spec": {**spec, "schedulerName": "default-scheduler"}})


def decide(world: Cluster, *claims: Object) -> Decision:
    for each in claims:
        world.devices.set_claim(f"web/{each['metadata']['name']}", each)
    names = [each["metadata"]["name"] for each in claims]
    return schedule(pod(*names), world, PROFILE, Turn())


def test_a_pod_runs_where_its_devices_can_be_had() -> None:
    world = cluster(slice_of("n1", device("d0")), nodes=3)
    decision = decide(world, claim("c", wants()))
    assert decision.node == "n1"
    (wanted,) = plan_for(decision.cycle, decision.slot)
    assert wanted.claim["metadata"]["name"] == "c"
    assert wanted.allocation is not None
    assert wanted.allocation["devices"]["results"] == [
        {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": "d0"}
    ]
    world.devices.assume(wanted.claim, wanted.allocation)
    assert decide(world, claim("d", wants())).diagnosis.message() == (
        "0/3 nodes are available: 3 cannot allocate all claims."
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"deviceClassName": "none"}, "request gpu: device class none does not exist"),
        ({}, "3 cannot allocate all claims"),
    ],
)
def test_what_is_reported_about_claims(change: Object, text: str) -> None:
    decision = decide(cluster(nodes=3), claim("c", wants(**change)))
    assert decision.node is None
    assert decision.diagnosis.message() == f"0/3 nodes are available: {text}."
    assert decision.diagnosis.rejectors == {"DynamicResources"}


def test_a_claim_that_is_being_allocated_is_waited_for() -> None:
    world = cluster(slice_of("n1", device("d0")))
    wanted = claim("c", wants())
    world.devices.assume(wanted, {"devices": {"results": []}})
    assert decide(world, wanted).diagnosis.message() == (
        "0/2 nodes are available: resource claim web/c is in the process of being allocated."
    )


def test_a_claim_with_devices_keeps_its_pod_where_they_are_seen() -> None:
    world = cluster(nodes=3)
    field = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    here = claim("c", wants())
    here["status"] = {
        "allocation": {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    }
    decision = decide(world, here)
    assert decision.node == "n2"
    (wanted,) = plan_for(decision.cycle, decision.slot)
    assert wanted.allocation is None
    world.set_node({**node("n2"), "spec": {"unschedulable": True}})
    decision = decide(world, here)
    assert decision.diagnosis.message() == (
        "0/3 nodes are available: 1 node(s) were unschedulable,"
        " 2 resourceclaim not available on the node."
    )
    handle = FakeHandle(world)
    made = post_filtered(decision, handle)
    assert made.text == "deallocation of ResourceClaim completed"
    assert made.code is Code.UNSCHEDULABLE
    (freed,) = handle.updated
    assert freed["metadata"]["name"] == "c"
    assert freed["status"] == {}
    here["status"]["reservedFor"] = [{"resource": "pods", "name": "other", "uid": "uid-other"}]
    assert post_filtered(decide(world, here), handle) == PostFilterResult(Code.UNSCHEDULABLE)
    assert len(handle.updated) == 1


def test_a_plugin_that_was_never_asked_has_the_real_schedulers_error() -> None:
    decision = decide(cluster(), claim("c", wants()))
    decision.cycle.states.clear()  # a plugin before this one ended the search
    with pytest.raises(PluginError, match=r"^not found$"):
        post_filtered(decision, FakeHandle(cluster()))


@pytest.mark.parametrize(
    ("args", "age_s", "is_late"),
    [
        ({}, 600, False),
        ({}, 601, True),
        ({"bindingTimeout": "5s"}, 5, False),
        ({"bindingTimeout": "5s"}, 6, True),
    ],
)
def test_devices_that_take_too_long_are_not_available(
    args: Object, age_s: int, *, is_late: bool
) -> None:
    result = {
        "request": "gpu",
        "driver": DRIVER,
        "pool": "n0",
        "device": "d0",
        "bindingConditions": ["attached"],
    }
    allocation = {
        "allocationTimestamp": "2023-11-14T22:13:20Z",
        "devices": {"results": [result]},
    }
    world = cluster(slice_of("n0", device("d0")))
    world.devices.set_claim("web/c", {**claim("c", wants()), "status": {"allocation": allocation}})
    entry = {"name": "DynamicResources", "args": args}
    profile = read_configuration({"profiles": [{"pluginConfig": [entry]}]}).profiles[PROFILE.name]
    now_s = 1_700_000_000.0 + age_s
    decision = schedule(pod("c"), world, profile, Turn(), now_s=now_s)
    assert (decision.node is None) is is_late


@pytest.mark.parametrize("name", ["filterTimeout", "bindingTimeout"])
def test_a_time_that_has_passed_before_it_begins_is_refused(name: str) -> None:
    entry = {"name": "DynamicResources", "args": {name: "0s"}}
    with pytest.raises(ConfigurationError, match=f"{name}: Invalid value: 0s"):
        read_configuration({"profiles": [{"pluginConfig": [entry]}]})


def test_nodes_with_better_alternatives_are_better() -> None:
    world = cluster(slice_of("n0", device("d0")), slice_of("n1", device("d1", "b")))
    best = {**wants(cel=MODEL_B)["exactly"], "name": "best"}
    other = {**wants()["exactly"], "name": "other"}
    decision = decide(world, claim("c", {"name": "gpu", "firstAvailable": [best, other]}))
    assert decision.node == "n1"
    scores = dict(zip(decision.feasible.tolist(), decision.scores["DynamicResources"], strict=True))
    assert scores == {0: 2 * 87, 1: 2 * 100}
