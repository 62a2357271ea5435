"""Events in both APIs."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.core.events import EVENTS, NEWER_EVENTS, from_newer, to_newer
from tests.apiserver.kinds.hooks import change_refusals, patched, refusals

OLD: dict[str, Any] = {
    "apiVersion": "v1",
    "metadata": {"name": "e", "namespace": "ns"},
    "involvedObject": {"kind": "Pod", "namespace": "ns", "name": "p"},
}
NEW: dict[str, Any] = {
    "apiVersion": "v1",
    "metadata": {"name": "e", "namespace": "ns"},
    "involvedObject": {"kind": "Pod", "namespace": "ns", "name": "p"},
    "eventTime": "2026-01-02T03:04:05.000000Z",
    "reportingComponent": "example.com/c",
    "reportingInstance": "i",
    "action": "a",
    "reason": "r",
    "type": "Normal",
}
NEWER = "events.k8s.io/v1"


def test_names_of_fields() -> None:
    """The two versions name them differently."""
    event = {
        "apiVersion": "v1",
        "metadata": {"name": "e"},
        "message": "m",
        "involvedObject": {"name": "p"},
        "reportingComponent": "c",
        "source": {"host": "h"},
        "firstTimestamp": "f",
        "lastTimestamp": "l",
        "count": 2,
        "reason": "r",
    }
    newer = {
        "apiVersion": NEWER,
        "metadata": {"name": "e"},
        "note": "m",
        "regarding": {"name": "p"},
        "reportingController": "c",
        "deprecatedSource": {"host": "h"},
        "deprecatedFirstTimestamp": "f",
        "deprecatedLastTimestamp": "l",
        "deprecatedCount": 2,
        "reason": "r",
    }
    assert to_newer(event) == newer
    assert from_newer(newer) == event


@pytest.mark.parametrize(
    ("namespace", "about", "is_new", "is_right"),
    [
        ("ns", "ns", False, True),
        ("ns", "other", False, False),
        ("default", "", False, True),
        ("ns", "", False, False),
        ("ns", "other", True, True),
        ("kube-system", "", True, True),
        ("default", "", True, True),
        ("ns", "", True, False),
    ],
)
def test_namespace(namespace: str, about: str, is_new: bool, is_right: bool) -> None:  # noqa: FBT001
    """An event of an object without a namespace is in `default`, a new one also in kube-system."""
    event = patched(
        NEW if is_new else OLD,
        {"metadata": {"namespace": namespace}, "involvedObject": {"namespace": about or None}},
    )
    expected = [
        f'involvedObject.namespace: Invalid value: "{about}": does not match event.namespace'
    ]
    assert refusals(EVENTS, event) == ([] if is_right else expected)


def test_old_events_need_nothing_more() -> None:
    """Rules came with a time of the event's own."""
    assert refusals(EVENTS, OLD) == []
    assert refusals(EVENTS, patched(OLD, {"type": "Other", "message": "m" * 2000})) == []


@pytest.mark.parametrize("version", ["v1", NEWER])
def test_texts_of_events_with_a_time(version: str) -> None:
    """The controller is named as the version names it."""
    path = "reportingController" if version == NEWER else "reportingComponent"
    strategy = NEWER_EVENTS if version == NEWER else EVENTS
    assert refusals(strategy, NEW, api_version=version) == []
    given = patched(
        NEW,
        {
            "reportingComponent": "/c",
            "reportingInstance": None,
            "action": "a" * 129,
            "message": "m" * 1025,
        },
    )
    assert refusals(strategy, given, api_version=version) == [
        f'{path}: Invalid value: "/c": prefix part must be non-empty',
        "reportingInstance: Required value",
        'action: Invalid value: "": can have at most 128 characters',
        'message: Invalid value: "": can have at most 1024 characters',
    ]


def test_rules_of_the_newer_api() -> None:
    """It takes no field of old, and needs a time, a type and a whole series."""
    given = patched(
        OLD,
        {
            "metadata": {"name": "E"},
            "series": {"count": 1},
            "firstTimestamp": "2026-01-02T03:04:05Z",
            "source": {"component": "c"},
            "count": 3,
        },
    )
    found = refusals(NEWER_EVENTS, given, api_version=NEWER)
    assert found[0].startswith('metadata.name: Invalid value: "E": a lowercase RFC 1123 subdomain')
    assert found[1:] == [
        'series.count: Invalid value: "": should be at least 2',
        "series.lastObservedTime: Required value",
        "eventTime: Required value",
        'type: Invalid value: "": has invalid value: ',
        'firstTimestamp: Invalid value: "": needs to be unset',
        'count: Invalid value: "": needs to be unset',
        'source: Invalid value: "": needs to be unset',
    ]


def test_change_in_the_newer_api() -> None:
    """Only the series, and what is no part of what happened."""
    series = {"count": 2, "lastObservedTime": "2026-01-02T03:04:05.000000Z"}
    new = patched(NEW, {"series": series, "metadata": {"labels": {"a": "b"}}})
    assert change_refusals(NEWER_EVENTS, new, NEW, api_version=NEWER) == []
    bad = patched(NEW, {"series": {"count": 1}})
    assert change_refusals(NEWER_EVENTS, bad, NEW, api_version=NEWER) == [
        'series.count: Invalid value: "": should be at least 2',
        "series.lastObservedTime: Required value",
    ]
    assert change_refusals(NEWER_EVENTS, bad, bad, api_version=NEWER) == []


def test_what_cannot_be_changed_in_the_newer_api() -> None:
    """Values print as Go's fields."""
    new = patched(
        NEW,
        {
            "involvedObject": {"name": "q"},
            "message": "m",
            "source": {"host": "h"},
            "firstTimestamp": "2026-01-02T03:04:05Z",
            "lastTimestamp": "2026-01-02T03:04:06Z",
            "count": 3,
            "type": "Warning",
            "eventTime": "2026-01-02T03:04:06.000000Z",
            "related": {"kind": "Node"},
            "reportingInstance": "j",
        },
    )
    reference = '"ResourceVersion":"","FieldPath":""}: field is immutable'
    assert change_refusals(NEWER_EVENTS, new, NEW, api_version=NEWER) == [
        'involvedObject: Invalid value: {"Kind":"Pod","Namespace":"ns","Name":"q","UID":"",'
        f'"APIVersion":"",{reference}',
        'message: Invalid value: "m": field is immutable',
        'source: Invalid value: {"Component":"","Host":"h"}: field is immutable',
        'firstTimestamp: Invalid value: "2026-01-02T03:04:05Z": field is immutable',
        'lastTimestamp: Invalid value: "2026-01-02T03:04:06Z": field is immutable',
        "count: Invalid value: 3: field is immutable",
        'type: Invalid value: "Warning": field is immutable',
        'eventTime: Invalid value: "2026-01-02T03:04:06.000000Z": field is immutable',
        'related: Invalid value: {"Kind":"Node","Namespace":"","Name":"","UID":"",'
        f'"APIVersion":"",{reference}',
        'reportingInstance: Invalid value: "j": field is immutable',
    ]
    assert change_refusals(EVENTS, new, NEW) == []


def test_related_that_is_taken_away() -> None:
    """It prints as null."""
    old = patched(NEW, {"related": {"kind": "Node"}})
    assert change_refusals(NEWER_EVENTS, NEW, old, api_version=NEWER) == [
        "related: Invalid value: null: field is immutable"
    ]


def test_selectable() -> None:
    """Each version has its own names; a controller stands for a missing source."""
    assert EVENTS.selectable is not None
    assert NEWER_EVENTS.selectable is not None
    found = EVENTS.selectable(NEW)
    assert found["involvedObject.name"] == "p"
    assert found["involvedObject.fieldPath"] == ""
    assert (found["source"], found["reportingComponent"]) == ("example.com/c", "example.com/c")
    newer = NEWER_EVENTS.selectable(NEW)
    assert newer == {
        "regarding.kind": "Pod",
        "regarding.namespace": "ns",
        "regarding.name": "p",
        "regarding.uid": "",
        "regarding.apiVersion": "",
        "regarding.resourceVersion": "",
        "regarding.fieldPath": "",
        "reason": "r",
        "reportingController": "example.com/c",
        "type": "Normal",
    }
