"""Deletes: preconditions, grace, finalizers."""

from typing import Any

import pytest

from kvstack.apiserver.objects import deletion
from kvstack.apiserver.objects.deletion import Grace
from kvstack.apiserver.objects.groups import GroupResource
from kvstack.apiserver.objects.status import ApiError

NOW = 1000.5  # 1970-01-01T00:16:40.5Z


def test_options() -> None:
    assert deletion.validate_options({"propagationPolicy": "Orphan", "dryRun": ["All"]}) == []
    assert [str(each) for each in deletion.validate_options(
        {"propagationPolicy": "x", "orphanDependents": False, "dryRun": ["x"]}
    )] == [
        'propagationPolicy: Invalid value: "x": orphanDependents and deletionPropagation cannot be'
        " both set",
        'propagationPolicy: Unsupported value: "x": supported values: "Foreground", "Background",'
        ' "Orphan", "nil"',
        'dryRun: Unsupported value: ["x"]: supported values: "All"',
    ]  # fmt: skip
    unsafe = {"ignoreStoreReadErrorWithClusterBreakingPotential": True, "gracePeriodSeconds": 0}
    assert [str(each) for each in deletion.validate_options(unsafe)] == [
        "ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: cannot be set"
        " together with .gracePeriodSeconds"
    ]
    assert deletion.grace_seconds({"gracePeriodSeconds": -5}) == 1
    assert deletion.grace_seconds({}) is None


@pytest.mark.parametrize(
    ("preconditions", "text"),
    [
        ({"uid": "v"}, "the UID in the precondition (v) does not match the UID in record (u)."
         " The object might have been deleted and then recreated"),
        ({"resourceVersion": "2"}, "the ResourceVersion in the precondition (2) does not match the"
         " ResourceVersion in record (1). The object might have been modified"),
    ],
)  # fmt: skip
def test_preconditions(preconditions: dict[str, str], text: str) -> None:
    meta = {"name": "p", "uid": "u", "resourceVersion": "1"}
    deletion.check_preconditions(meta, {"preconditions": {"uid": "u"}}, GroupResource("", "Pod"))
    with pytest.raises(ApiError) as caught:
        deletion.check_preconditions(
            meta, {"preconditions": preconditions}, GroupResource("", "Pod")
        )
    assert caught.value.code == 409
    assert str(caught.value) == f'Operation cannot be fulfilled on Pod "p": {text}'


def test_a_graceful_delete_begins() -> None:
    meta: dict[str, Any] = {"generation": 2}
    deletion.begin(meta, 30, NOW)
    assert meta == {
        "generation": 3,
        "deletionTimestamp": "1970-01-01T00:17:10Z",
        "deletionGracePeriodSeconds": 30,
    }


@pytest.mark.parametrize(
    ("seconds", "result", "timestamp", "grace"),
    [
        (None, Grace.PENDING, "1970-01-01T00:17:10Z", 30),
        (30, Grace.PENDING, "1970-01-01T00:17:10Z", 30),
        (10, Grace.STARTED, "1970-01-01T00:16:50Z", 10),
        (0, Grace.STARTED, "1970-01-01T00:16:40Z", 0),
    ],
)
def test_another_delete_can_only_shorten(
    seconds: int | None, result: Grace, timestamp: str, grace: int
) -> None:
    meta = {"deletionTimestamp": "1970-01-01T00:17:10Z", "deletionGracePeriodSeconds": 30}
    assert deletion.shorten(meta, seconds, NOW) is result
    assert meta == {"deletionTimestamp": timestamp, "deletionGracePeriodSeconds": grace}


def test_the_end_does_not_move_into_the_past() -> None:
    meta = {"deletionTimestamp": "1970-01-01T00:16:45Z", "deletionGracePeriodSeconds": 30}
    assert deletion.shorten(meta, 5, NOW) is Grace.STARTED
    assert meta == {"deletionTimestamp": "1970-01-01T00:16:40Z", "deletionGracePeriodSeconds": 1}
    assert deletion.shorten({"deletionGracePeriodSeconds": 0}, None, NOW) is Grace.NOW
    assert deletion.shorten({}, None, NOW) is Grace.NOW


def test_what_finalizers_hold_is_marked() -> None:
    meta: dict[str, Any] = {"generation": 1}
    deletion.mark(meta, NOW)
    marked = {
        "generation": 2,
        "deletionTimestamp": "1970-01-01T00:16:40Z",
        "deletionGracePeriodSeconds": 0,
    }
    assert meta == marked
    deletion.mark(meta, NOW + 60)
    assert meta == marked
    meta["deletionTimestamp"] = "1970-01-01T00:20:00Z"
    deletion.mark(meta, NOW)
    assert meta == marked


@pytest.mark.parametrize(
    ("finalizers", "options", "orphans", "result"),
    [
        ([], {}, False, None),
        ([], {}, True, ["orphan"]),
        (["a/b"], {"propagationPolicy": "Foreground"}, True, ["a/b", "foregroundDeletion"]),
        (["orphan", "a/b"], {"propagationPolicy": "Background"}, False, ["a/b"]),
        (["orphan"], {}, False, None),
        (["foregroundDeletion"], {}, True, None),
        (["foregroundDeletion"], {"orphanDependents": True}, False, ["orphan"]),
        (["orphan"], {"orphanDependents": False}, True, []),
    ],
)
def test_finalizers_of_the_garbage_collector(
    finalizers: list[str],
    options: dict[str, Any],
    orphans: bool,  # noqa: FBT001
    result: list[str] | None,
) -> None:
    meta = {"finalizers": finalizers}
    assert deletion.gc_finalizers(meta, options, orphans_by_default=orphans) == result


def test_kinds_the_garbage_collector_does_not_know() -> None:
    found = deletion.gc_finalizers({}, {"propagationPolicy": "Orphan"}, is_supported=False)
    assert found is None
