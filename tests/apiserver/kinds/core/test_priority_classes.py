"""What PriorityClasses may be."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.core.priority_classes import PRIORITY_CLASSES, SYSTEM_CLASSES
from tests.apiserver.kinds.hooks import change_refusals, prepared_object, refusals

RESERVED = (
    "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system"
    " use only. error: "
)


def priority_class(name: str = "p", **members: Any) -> dict[str, Any]:
    """Return a PriorityClass."""
    return {"metadata": {"name": name}, "value": 1, **members}


@pytest.mark.parametrize(
    ("name", "members", "expected"),
    [
        ("p", {"value": 1_000_000_000}, []),
        ("p", {"value": -(2**31)}, []),
        (
            "p",
            {"value": 1_000_000_001},
            ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
        ),
        ("system-p", {}, [RESERVED + "system-p is not a known system priority class"]),
        (
            "system-node-critical",
            {"value": 5},
            [RESERVED + "value of system-node-critical PriorityClass must be 2000001000"],
        ),
        (
            "system-cluster-critical",
            {"value": 2_000_000_000, "globalDefault": True},
            [RESERVED + "globalDefault of system-cluster-critical PriorityClass must be false"],
        ),
        *((name, {"value": value}, []) for name, value in SYSTEM_CLASSES.items()),
    ],
)
def test_rules(name: str, members: dict[str, Any], expected: list[str]) -> None:
    """Names and values of the system are reserved."""
    assert refusals(PRIORITY_CLASSES, priority_class(name, **members)) == expected


def test_default_and_generation() -> None:
    """Preemption is the default."""
    new = prepared_object(PRIORITY_CLASSES, priority_class())
    assert new["preemptionPolicy"] == "PreemptLowerPriority"
    assert new["metadata"]["generation"] == 1


def test_value_and_policy_stay() -> None:
    """The rest may change."""
    new = priority_class(value=2, preemptionPolicy="Never", globalDefault=True, description="d")
    assert change_refusals(PRIORITY_CLASSES, new, priority_class()) == [
        "value: Forbidden: may not be changed in an update.",
        'preemptionPolicy: Invalid value: "Never": field is immutable',
    ]
