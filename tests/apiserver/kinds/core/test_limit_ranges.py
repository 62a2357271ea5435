"""What LimitRanges may be."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.core.limit_ranges import LIMIT_RANGES
from tests.apiserver.kinds.hooks import prepared_object, refusals


def limit_range(*limits: dict[str, Any]) -> dict[str, Any]:
    """Return a LimitRange."""
    return {"metadata": {"name": "l"}, "spec": {"limits": list(limits)}}


@pytest.mark.parametrize(
    ("limit", "default", "asked"),
    [
        ({}, None, None),
        ({"max": {"cpu": "2"}}, {"cpu": "2"}, {"cpu": "2"}),
        ({"min": {"cpu": "1"}}, None, {"cpu": "1"}),
        ({"min": {"cpu": "1"}, "max": {"cpu": "3"}}, {"cpu": "3"}, {"cpu": "3"}),
        ({"default": {"cpu": "2"}, "max": {"cpu": "3"}}, {"cpu": "2"}, {"cpu": "2"}),
        (
            {"defaultRequest": {"cpu": "1"}, "max": {"cpu": "3", "memory": "1Gi"}},
            {"cpu": "3", "memory": "1Gi"},
            {"cpu": "1", "memory": "1Gi"},
        ),
    ],
)
def test_defaults_of_containers(
    limit: dict[str, Any], default: dict[str, str] | None, asked: dict[str, str] | None
) -> None:
    """A limit comes from the maximum, a request from the limit or the minimum."""
    (found,) = prepared_object(LIMIT_RANGES, limit_range({"type": "Container", **limit}))["spec"][
        "limits"
    ]
    assert (found.get("default"), found.get("defaultRequest")) == (default, asked)
    (found,) = prepared_object(LIMIT_RANGES, limit_range({"type": "Pod", **limit}))["spec"][
        "limits"
    ]
    assert found == {"type": "Pod", **limit}


def test_name_is_made_up_where_there_is_none() -> None:
    """An old habit of this kind."""
    assert prepared_object(LIMIT_RANGES, {"metadata": {}})["metadata"]["name"] == "some-uid"


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (
            {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}},
            [
                'min[cpu]: Invalid value: "2": min value 2 is greater than max value 1',
                'defaultRequest[cpu]: Invalid value: "1":'
                " min value 2 is greater than default request value 1",
                'default[cpu]: Invalid value: "2": min value 2 is greater than default value 1',
            ],
        ),
        (
            {
                "type": "Container",
                "max": {"cpu": "1"},
                "default": {"cpu": "3"},
                "defaultRequest": {"cpu": "4"},
            },
            [
                'defaultRequest[cpu]: Invalid value: "4":'
                " default request value 4 is greater than max value 1",
                'defaultRequest[cpu]: Invalid value: "4":'
                " default request value 4 is greater than default limit value 3",
                'default[cpu]: Invalid value: "1": default value 3 is greater than max value 1',
            ],
        ),
        (
            {"type": "Pod", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}},
            [
                "default: Forbidden: may not be specified when `type` is 'Pod'",
                "defaultRequest: Forbidden: may not be specified when `type` is 'Pod'",
            ],
        ),
        (
            {"type": "PersistentVolumeClaim"},
            [
                "limits: Required value: either minimum or maximum storage value is required,"
                " but neither was provided"
            ],
        ),
        ({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}, []),
        (
            {"type": "Other"},
            ['type: Invalid value: "Other": must be a standard limit type or fully qualified'],
        ),
        ({"type": "example.com/x", "max": {"example.com/y": "1"}}, []),
        (
            {
                "type": "Container",
                "default": {"hugepages-2Mi": "4Mi"},
                "defaultRequest": {"hugepages-2Mi": "2Mi"},
            },
            [
                'defaultRequest[hugepages-2Mi]: Invalid value: "2Mi": default value 4Mi must equal'
                " to defaultRequest value 2Mi in hugepages-2Mi"
            ],
        ),
    ],
)
def test_rules(limit: dict[str, Any], expected: list[str]) -> None:
    """What one limit says must be in order."""
    paths = [f"spec.limits[0].{each}" for each in expected]
    assert refusals(LIMIT_RANGES, limit_range(limit)) == paths


@pytest.mark.parametrize(
    ("ratio", "low", "high", "detail"),
    [
        ("2", "1", "2", ""),
        ("500m", "1", "2", "ratio 500m is less than 1"),
        ("3", "1", "2", "ratio 3 is greater than max/min = 2.000000"),
        ("2", "3", "4", "ratio 2 is greater than max/min = 1.333333"),
        ("2", "9Pi", "12Pi", "ratio 2 is greater than max/min = 1.333333"),
        ("2", "0", "1", ""),
        ("2", "0", "0", ""),
    ],
)
def test_ratio(ratio: str, low: str, high: str, detail: str) -> None:
    """It cannot be more than what maximum and minimum allow anyway."""
    limit = {
        "type": "Pod",
        "min": {"memory": low},
        "max": {"memory": high},
        "maxLimitRequestRatio": {"memory": ratio},
    }
    path = "spec.limits[0].maxLimitRequestRatio[memory]"
    expected = [f'{path}: Invalid value: "{ratio}": {detail}'] if detail else []
    assert refusals(LIMIT_RANGES, limit_range(limit)) == expected


def test_types_are_unique() -> None:
    """One limit for each."""
    assert refusals(LIMIT_RANGES, limit_range({"type": "Pod"}, {"type": "Pod"})) == [
        'spec.limits[1].type: Duplicate value: "Pod"'
    ]
