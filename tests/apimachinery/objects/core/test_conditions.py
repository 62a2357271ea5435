"""Conditions that are set, and what a pod's status says by them."""

from typing import Any

import pytest

from kvstack.apimachinery.objects.core import node_status
from kvstack.apimachinery.objects.core.conditions import (
    find,
    is_true,
    replaced,
    set_condition,
    transition_time,
    with_condition,
    without,
)
from kvstack.apimachinery.objects.core.pod_status import condition_of, is_ended, is_ready

BEFORE, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def condition(type_: str, status: str, since: str | None, reason: str = "Any") -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": reason, "lastTransitionTime": since}


OTHER = condition("Other", "True", BEFORE)
READY = condition("Ready", "True", BEFORE)


@pytest.mark.parametrize(
    ("conditions", "new", "expected", "moved"),
    [
        (None, condition("Ready", "True", NOW), [condition("Ready", "True", NOW)], None),
        ([], condition("Ready", "True", NOW), [condition("Ready", "True", NOW)], None),
        ([OTHER], condition("Ready", "True", NOW), [OTHER, condition("Ready", "True", NOW)], None),
        # The status changes, and with it the time.
        (
            [READY, OTHER],
            condition("Ready", "False", NOW),
            [condition("Ready", "False", NOW), OTHER],
            [OTHER, condition("Ready", "False", NOW)],
        ),
        # Only the reason changes.
        (
            [READY, OTHER],
            condition("Ready", "True", NOW, "New"),
            [condition("Ready", "True", BEFORE, "New"), OTHER],
            [OTHER, condition("Ready", "True", BEFORE, "New")],
        ),
        # Nothing changes: setters of workloads keep the place, and the message.
        (
            [READY, OTHER],
            {**condition("Ready", "True", NOW), "message": "new"},
            [{**READY, "message": "new"}, OTHER],
            [READY, OTHER],
        ),
    ],
)
def test_what_is_set(
    conditions: list[dict[str, Any]] | None,
    new: dict[str, Any],
    expected: list[dict[str, Any]],
    moved: list[dict[str, Any]] | None,
) -> None:
    given = None if conditions is None else list(conditions)
    assert set_condition(conditions, new) == expected
    assert with_condition(conditions, new) == (expected if moved is None else moved)
    assert conditions == given  # neither changes what it was given
    assert new["lastTransitionTime"] == NOW


@pytest.mark.parametrize(
    ("old", "status", "since"),
    [
        (None, "True", NOW),
        (READY, "True", BEFORE),
        (READY, "False", NOW),
        (READY, "Unknown", NOW),
        (condition("Ready", "True", None), "True", NOW),
        ({"type": "Ready"}, "True", NOW),
    ],
)
def test_since_when(old: dict[str, Any] | None, status: str, since: str) -> None:
    assert transition_time(old, status, NOW) == since


def test_what_is_found() -> None:
    conditions = [OTHER, condition("Ready", "False", NOW)]
    assert find(conditions, "Other") is OTHER
    assert find(conditions, "Missing") is None
    assert find(None, "Ready") is None
    assert is_true(conditions, "Other")
    assert not is_true(conditions, "Ready")
    assert not is_true(None, "Ready")
    assert without(conditions, "Ready") == [OTHER]
    assert without(None, "Ready") == []


def test_replaced_condition_has_its_own_time() -> None:
    new = condition("Ready", "True", NOW)
    given = [READY, OTHER]
    assert replaced(given, new) == [new, OTHER]
    assert given == [READY, OTHER]
    assert replaced([OTHER], new) == [OTHER, new]
    assert replaced(None, new) == [new]


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        (None, False),
        ({}, False),
        ({"conditions": [OTHER]}, False),
        ({"conditions": [OTHER, condition("Ready", "Unknown", NOW)]}, False),
        ({"conditions": [OTHER, READY]}, True),
    ],
)
def test_what_a_node_is(status: dict[str, Any] | None, *, ready: bool) -> None:
    node = {"metadata": {"name": "n"}, "status": status}
    assert node_status.is_ready(node) is ready
    known = node_status.ready_condition(node)
    assert (known is not None and known["status"] == "True") is ready


@pytest.mark.parametrize(
    ("status", "ready", "ended"),
    [
        (None, False, False),
        ({}, False, False),
        ({"phase": "Running", "conditions": [READY]}, True, False),
        ({"phase": "Running", "conditions": [condition("Ready", "Unknown", NOW)]}, False, False),
        ({"phase": "Running", "conditions": [OTHER]}, False, False),
        ({"phase": "Unknown"}, False, False),
        ({"phase": "Succeeded", "conditions": None}, False, True),
        ({"phase": "Failed", "conditions": [READY]}, True, True),
    ],
)
def test_what_a_pod_is(status: dict[str, Any] | None, *, ready: bool, ended: bool) -> None:
    pod = {"metadata": {"name": "p"}, "status": status}
    assert is_ready(pod) is ready
    assert is_ended(pod) is ended
    assert (condition_of(pod, "Ready") is not None) is any(
        each["type"] == "Ready" for each in (status or {}).get("conditions") or ()
    )
