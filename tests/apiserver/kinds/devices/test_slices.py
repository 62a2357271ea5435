"""What ResourceSlices and DeviceTaintRules may be."""

from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.devices.slices import SLICES
from kvstack.apiserver.kinds.devices.taint_rules import TAINT_RULES
from tests.apiserver.kinds.hooks import (
    NOW,
    cells_of,
    change_refusals,
    changed,
    prepared_object,
    refusals,
    warnings_of,
    warnings_of_change,
)

TAINT = {"key": "k", "effect": "NoSchedule"}


def resource_slice(*devices: Object, **spec: Any) -> Object:
    """Return a slice of one node."""
    given: Object = {
        "driver": "d.io",
        "nodeName": "n",
        "pool": {"name": "p", "resourceSliceCount": 1},
    }
    if devices:
        given["devices"] = [{"name": f"x{number}", **each} for number, each in enumerate(devices)]
    merged = {name: value for name, value in (given | spec).items() if value is not None}
    return {"metadata": {"name": "s"}, "spec": merged}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"nodeName": None, "allNodes": True}, []),
        ({"nodeName": None},
         ["spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`,"
          " `perDeviceNodeSelection` is required"]),
        ({"allNodes": True},
         ['spec: Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`,'
          " `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields"
          " are set"]),
        ({"allNodes": False}, ["spec.allNodes: Invalid value: false: must be either unset or set to"
                               " true"]),
        ({"pool": {"name": "", "generation": -1}}, [
            "spec.pool.name: Required value",
            "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
            "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
        ]),
        ({"nodeName": None, "nodeSelector": {"nodeSelectorTerms": []}}, [
            "spec.nodeSelector.nodeSelectorTerms: Required value: must have at least one node"
            " selector term",
            "spec.nodeSelector.nodeSelectorTerms: Invalid value: []: must have exactly one node"
            " selector term",
        ]),
        ({"sharedCounters": [{"name": "a"}, {"counters": {"B": {"value": "1"}}}]}, [
            "spec.sharedCounters[0].counters: Required value",
            "spec.sharedCounters[1].name: Required value",
            "spec.sharedCounters[1].counters: Invalid value: \"B\": a lowercase RFC 1123 label must"
            " consist of lower case alphanumeric characters or '-', and must start and end with an"
            " alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
            " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ]),
    ],
)  # fmt: skip
def test_slices(spec: dict[str, Any], expected: list[str]) -> None:
    """Where the devices are, and in which pool."""
    assert refusals(SLICES, resource_slice(**spec)) == expected


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ({}, []),
        ({"name": "A.b"}, ["name: Invalid value: \"A.b\": a lowercase RFC 1123 label must"
         " consist"]),
        ({"attributes": {"a": {"version": "1.2.3-rc.1+b"}, "e.com/b": {"bool": False}}}, []),
        ({"attributes": {"a": {"version": "v1"}}},
         ['attributes[a].version: Invalid value: "v1": must be a string compatible with semver.org'
          " spec 2.0.0"]),
        ({"attributes": {"a": {"string": "x" * 65}, "/b": {"int": 1}}}, [
            "attributes[a].string: Too long: may not be more than 64 bytes",
            'attributes: Invalid value: "": the domain must not be empty',
        ]),
        ({"attributes": {"x" * 97: {"int": 1}}}, [
            "attributes: Too long: may not be more than 32 bytes",
        ]),
        ({"attributes": {"a": {"ints": [1]}}},
         ['attributes[a]: Invalid value: "": must specify one of: `int`, `bool`, `string`,'
          ' `version`,'
          " `ints`, `bools`, `strings`, `versions`"]),
        ({"attributes": {f"a{n}": {"int": 1} for n in range(33)}},
         [": Invalid value: 33: the total number of attributes and capacities must not exceed 32"]),
        ({"taints": [{"key": "a b", "effect": ""}, TAINT]}, [
            'taints[0].key: Invalid value: "a b": name part must consist',
            "taints[0].effect: Required value",
        ]),
        ({"taints": [TAINT] * 17}, ["taints: Too many: 17: must have at most 16 items"]),
        ({"consumesCounters": [{"counterSet": "a", "counters": {"b": {"value": "1"}}}] * 2},
         ['consumesCounters[1]: Duplicate value: {"counterSet":"a","counters":{"b":{"value":"1"}}}'
          ]),
        ({"nodeName": "n"},
         [": Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if"]),
        ({"bindingConditions": ["a", "a"], "bindingFailureConditions": ["a"]}, [
            'bindingConditions[1]: Duplicate value: "a"',
            'bindingFailureConditions[0]: Invalid value: "a": bindingFailureConditions must not'
            " overlap with bindingConditions",
        ]),
        ({"bindingFailureConditions": ["a"]},
         ["bindingConditions: Invalid value: null: bindingConditions are required to use"]),
        ({"capacity": {"m": {"value": "1", "requestPolicy": {}}}},
         ["capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true"]),
    ],
)  # fmt: skip
def test_devices(device: dict[str, Any], expected: list[str]) -> None:
    """Names, attributes, capacity, taints and counters."""
    found = refusals(SLICES, resource_slice(device))
    wanted = [f"spec.devices[0]{'' if each.startswith(':') else '.'}{each}" for each in expected]
    assert [one[: len(other)] for one, other in zip(found, wanted, strict=True)] == wanted


def test_each_device_on_its_nodes() -> None:
    """If the slice says so."""
    per_device = {"nodeName": None, "perDeviceNodeSelection": True}
    obj = resource_slice({"allNodes": True}, {"nodeName": ""}, {}, **per_device)
    one_of = (
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when"
        " `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
    )
    assert refusals(SLICES, obj) == [
        'spec.devices[1].nodeName: Invalid value: "": must not be empty',
        f"spec.devices[1]: Required value: {one_of}",
        f"spec.devices[2]: Required value: {one_of}",
    ]


def test_numbers_of_devices() -> None:
    """Fewer if they have taints or counters; each once."""
    many = resource_slice(*[{}] * 129)
    message = "spec.devices: Too many: {}: must have at most {} items"
    assert refusals(SLICES, many) == [message.format(129, 128)]
    assert refusals(SLICES, resource_slice({"taints": [TAINT]}, *[{}] * 64)) == [
        message.format(65, 64)
    ]
    assert refusals(SLICES, resource_slice({"name": "a"}, {"name": "a"})) == [
        'spec.devices[1]: Duplicate value: "a"'
    ]


def policy(**members: Any) -> Object:
    """Return a device of ten units of which claims may get some."""
    capacity = {"value": "10", "requestPolicy": members}
    return {"allowMultipleAllocations": True, "capacity": {"m": capacity}}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, []),
        ({"default": "2", "validValues": ["1", "2"]}, []),
        ({"validValues": ["1"]}, ["default: Required value: required when validValues is defined"]),
        ({"default": "3", "validValues": ["2", "1", "1", "20"]}, [
            'validValues[1]: Invalid value: "1": values must be sorted in ascending order',
            'validValues[3]: Invalid value: "20": option is larger than capacity value: 10',
            'validValues[2]: Duplicate value: "1"',
            'validValues: Invalid value: "3": default value is not valid according to the'
            " requestPolicy",
        ]),
        ({"default": "2", "validRange": {"min": "1", "max": "5", "step": "1"}}, []),
        ({"default": "1500m", "validRange": {"min": "1", "step": "500m"}}, []),
        ({"default": "1", "validRange": {}},
         ["validRange.min: Required value: required when validRange is defined"]),
        ({"default": "9", "validRange": {"min": "2", "max": "5", "step": "2"}}, [
            'validRange.default: Invalid value: "9": default is more than max: 5',
            'validRange.step: Invalid value: "9": value is not a multiple of a given step (2) from'
            " (2)",
            'validRange.step: Invalid value: "5": value is not a multiple of a given step (2) from'
            " (2)",
        ]),
        ({"default": "1", "validRange": {"min": "11", "max": "1", "step": "0"}}, [
            'validRange.min: Invalid value: "11": min is larger than capacity value: 10',
            'validRange.default: Invalid value: "1": default is less than min: 11',
            'validRange.max: Invalid value: "11": min is larger than max: 1',
            'validRange.step: Invalid value: "0": must be greater than zero',
        ]),
        ({"default": "1u", "validRange": {"min": "0"}},
         ['validRange.default: Invalid value: "1u": value cannot be represented as a milli value']),
        ({"default": "1", "validRange": {"min": "1", "step": "10"}},
         ['validRange.step: Invalid value: "10": one step 11 is larger than capacity value: 10']),
        ({"validValues": ["1"], "validRange": {}},
         [': Forbidden: exactly one policy can be specified, cannot specify "validValues" and'
          ' "validRange" at the same time']),
    ],
)  # fmt: skip
def test_policies(members: dict[str, Any], expected: list[str]) -> None:
    """Some amounts, or a range of them; with a default."""
    path = "spec.devices[0].capacity[m].requestPolicy"
    wanted = [f"{path}{'' if each.startswith(':') else '.'}{each}" for each in expected]
    assert refusals(SLICES, resource_slice(policy(**members))) == wanted


def test_changes() -> None:
    """Driver, pool and node stay; what a device has wrong may stay."""
    bad = {"capacity": {"m": {"value": "1", "requestPolicy": {}}}, "taints": [{"key": "a b"}]}
    old = prepared_object(SLICES, resource_slice(bad))
    assert len(refusals(SLICES, resource_slice(bad))) == 3
    assert change_refusals(SLICES, old, old) == []
    new = resource_slice(driver="o.io", nodeName="m", pool={"name": "q", "resourceSliceCount": 1})
    assert change_refusals(SLICES, new, old) == [
        'spec.pool.name: Invalid value: "q": field is immutable',
        'spec.driver: Invalid value: "o.io": field is immutable',
        'spec.nodeName: Invalid value: "m": field is immutable',
    ]
    assert changed(SLICES, new, old)["metadata"]["generation"] == 2


def test_fields_that_are_off() -> None:
    """They go, but for what a stored slice has."""
    device = {
        "attributes": {"a": {"ints": [1]}},
        "nodeAllocatableResources": {"cpu": {}},
        "consumesCounters": [{"counterSet": "a", "compatibilityGroups": ["g"]}],
    }
    given = resource_slice(device, skipNodeOperations=["*"], partitionTypeAttribute="a/b")
    found = prepared_object(SLICES, given)["spec"]
    assert found == {
        **resource_slice()["spec"],
        "devices": [
            {"name": "x0", "attributes": {"a": {}}, "consumesCounters": [{"counterSet": "a"}]}
        ],
    }
    assert changed(SLICES, given, given)["spec"] == given["spec"]


def test_taints_since() -> None:
    """The time of the request, if none is given."""
    taints = [TAINT, {**TAINT, "timeAdded": "2020-01-01T00:00:00Z"}]
    found = prepared_object(SLICES, resource_slice({"taints": taints}))["spec"]["devices"][0][
        "taints"
    ]
    assert [each["timeAdded"] for each in found] == [NOW, "2020-01-01T00:00:00Z"]


def test_warnings_and_cells() -> None:
    """Names of drivers should be lower case."""
    obj = resource_slice(driver="D.io")
    message = 'spec.driver: driver names should be lowercase; "D.io" contains uppercase characters'
    assert warnings_of(SLICES, obj) == warnings_of_change(SLICES, obj, obj) == [message]
    assert warnings_of(SLICES, resource_slice()) == []
    assert cells_of(SLICES, obj)[:4] == ["s", "n", "D.io", "p"]


def taint_rule(**taint: Any) -> Object:
    """Return a rule."""
    spec = {"deviceSelector": {"driver": "d.io"}, "taint": TAINT | taint}
    return {"metadata": {"name": "r"}, "spec": spec}


def test_taint_rules() -> None:
    """Which devices, and the taint."""
    assert refusals(TAINT_RULES, taint_rule()) == []
    bad = taint_rule(effect="x")
    bad["spec"]["deviceSelector"] = {"driver": "", "pool": "", "device": "a.b"}
    assert refusals(TAINT_RULES, bad) == [
        "spec.deviceSelector.driver: Required value",
        "spec.deviceSelector.pool: Required value",
        'spec.deviceSelector.device: Invalid value: "a.b": must not contain dots',
        'spec.taint.effect: Unsupported value: "x": supported values: "NoExecute", "NoSchedule",'
        ' "None"',
    ]
    assert change_refusals(TAINT_RULES, taint_rule(effect="x"), taint_rule(effect="x")) == []


def test_changes_of_taint_rules() -> None:
    """Another effect counts from now on."""
    old = prepared_object(TAINT_RULES, taint_rule(timeAdded="2020-01-01T00:00:00Z"))
    new = taint_rule(effect="NoExecute", timeAdded="2020-01-01T00:00:00Z")
    found = changed(TAINT_RULES, new, old)
    assert (found["spec"]["taint"]["timeAdded"], found["metadata"]["generation"]) == (NOW, 2)
    status = TAINT_RULES.subresources["status"]
    conditions = [
        {"type": f"t{n}", "status": "True", "reason": "R", "lastTransitionTime": NOW, "message": ""}
        for n in range(9)
    ]
    new["status"] = {"conditions": conditions}
    assert changed(status, new, old)["spec"] == old["spec"]
    assert change_refusals(status, new, old) == [
        "status.conditions: Too many: 9: must have at most 8 items"
    ]
    assert cells_of(TAINT_RULES, old)[1:4] == ["k", "", "NoSchedule"]
