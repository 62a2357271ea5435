"""What Leases may be."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.core.leases import LEASES
from tests.apiserver.kinds.hooks import change_refusals, changed, prepared_object


def lease(**spec: Any) -> dict[str, Any]:
    """Return a Lease."""
    return {"metadata": {"name": "l"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"leaseDurationSeconds": 1, "leaseTransitions": 0}, []),
        (
            {"leaseDurationSeconds": 0, "leaseTransitions": -1},
            [
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
        ({"strategy": "OldestEmulationVersion", "preferredHolder": "a"}, []),
        ({"strategy": "example.com/mine"}, []),
        (
            {"strategy": "Newest"},
            [
                'spec.strategy: Unsupported value: "Newest":'
                ' supported values: "OldestEmulationVersion"'
            ],
        ),
        (
            {"strategy": "/mine"},
            ['spec.strategy: Invalid value: "/mine": prefix part must be non-empty'],
        ),
        (
            {"preferredHolder": "a"},
            ["spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined"],
        ),
    ],
)
def test_spec(spec: dict[str, Any], expected: list[str]) -> None:
    """Also of fields that only a Lease that has them can keep."""
    assert change_refusals(LEASES, lease(**spec), lease(**spec)) == expected


def test_gated_fields_stay_only_where_they_are() -> None:
    """Coordinated leader election is off."""
    given = lease(strategy="OldestEmulationVersion", preferredHolder="a")
    assert prepared_object(LEASES, given)["spec"] == {}
    assert changed(LEASES, given, lease())["spec"] == {}
    assert changed(LEASES, given, given)["spec"] == given["spec"]
