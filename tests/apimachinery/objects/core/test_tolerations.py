"""Whether a toleration tolerates a taint."""

from typing import Any

import pytest

from kvstack.apimachinery.objects.core.tolerations import Taint, taint_of, taints_of, tolerates

LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("toleration", "taint", "fits"),
    [
        ({"operator": "Exists"}, ("k", "v", "NoExecute"), True),
        ({"key": "k", "operator": "Exists"}, ("k", "v", "NoExecute"), True),
        ({"key": "k", "operator": "Exists"}, ("other", "v", "NoExecute"), False),
        ({"key": "k", "value": "v"}, ("k", "v", "NoExecute"), True),
        ({"key": "k", "operator": "Equal", "value": "v"}, ("k", "v", "NoExecute"), True),
        ({"key": "k", "value": "w"}, ("k", "v", "NoExecute"), False),
        ({"key": "k"}, ("k", "", "NoExecute"), True),
        ({"key": "k"}, ("k", "v", "NoExecute"), False),
        ({"operator": "Equal", "value": "v"}, ("k", "v", "NoExecute"), True),
        # Effects: an empty one fits each.
        ({"operator": "Exists", "effect": ""}, ("k", "v", "NoSchedule"), True),
        ({"operator": "Exists", "effect": "NoSchedule"}, ("k", "v", "NoSchedule"), True),
        ({"operator": "Exists", "effect": "NoSchedule"}, ("k", "v", "NoExecute"), False),
        # Numbers: the taint's is compared with the toleration's.
        ({"key": "k", "operator": "Gt", "value": "5"}, ("k", "6", "NoExecute"), True),
        ({"key": "k", "operator": "Gt", "value": "5"}, ("k", "5", "NoExecute"), False),
        ({"key": "k", "operator": "Lt", "value": "5"}, ("k", "-6", "NoExecute"), True),
        ({"key": "k", "operator": "Lt", "value": "5"}, ("k", "10", "NoExecute"), False),
        ({"key": "k", "operator": "Gt", "value": "5"}, ("other", "6", "NoExecute"), False),
        ({"key": "k", "operator": "Lt", "value": str(LARGEST)}, ("k", "0", "NoExecute"), True),
        # What is no number of 64 bits in its plain form fits none.
        ({"key": "k", "operator": "Lt", "value": str(LARGEST + 1)}, ("k", "0", "NoExecute"), False),
        ({"key": "k", "operator": "Gt", "value": "5"}, ("k", "06", "NoExecute"), False),
        ({"key": "k", "operator": "Gt", "value": "+5"}, ("k", "6", "NoExecute"), False),
        ({"key": "k", "operator": "Gt"}, ("k", "6", "NoExecute"), False),
        ({"key": "k", "operator": "Lt", "value": "five"}, ("k", "4", "NoExecute"), False),
        # Operators that are not known.
        ({"key": "k", "operator": "Near", "value": "5"}, ("k", "4", "NoExecute"), False),
    ],
)
def test_tolerations(
    toleration: dict[str, Any], taint: tuple[str, str, str], *, fits: bool
) -> None:
    assert tolerates(toleration, Taint(*taint)) is fits


def test_taints_of_nodes() -> None:
    taint = {"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    assert taint_of(taint) == Taint("k", "", "NoExecute")
    assert taints_of({"spec": {"taints": [taint]}}) == (Taint("k", "", "NoExecute"),)
    assert taints_of({"spec": {"taints": None}}) == taints_of({}) == ()
