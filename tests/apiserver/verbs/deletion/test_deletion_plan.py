"""What a delete does to an object: table of cases, and properties."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.strategy import Deletion
from kvstack.apiserver.verbs.deletion.deletion_plan import Operation, plan
from kvstack.apiserver.verbs.options import DeleteOptions

NOW = "2026-11-22T10:00:00Z"
PLAIN = Deletion()
GRACEFUL = Deletion(grace_period=lambda _obj, asked: 30 if asked is None else asked)
ORPHANING = Deletion(orphans_by_default=True)
CARELESS = Deletion(sets_finalizers=False)


def obj(**metadata: Any) -> dict[str, Any]:  # members of metadata
    """Return an object."""
    return {"metadata": {"name": "x", "generation": 1, **metadata}}


def marked(seconds: int, at: str = NOW, **more: Any) -> dict[str, Any]:
    """Return an object that is on its way out."""
    return obj(deletionTimestamp=at, deletionGracePeriodSeconds=seconds, **more)


@pytest.mark.parametrize(
    ("given", "strategy", "options", "operation", "expected"),
    [
        (obj(), PLAIN, DeleteOptions(), Operation.REMOVE, {}),
        (obj(), PLAIN, DeleteOptions(grace_seconds=30), Operation.REMOVE, {}),
        (
            obj(finalizers=["a/b"]),
            PLAIN,
            DeleteOptions(),
            Operation.UPDATE,
            {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0, "generation": 2},
        ),
        (
            obj(),
            PLAIN,
            DeleteOptions(policy="Foreground"),
            Operation.UPDATE,
            {"finalizers": ["foregroundDeletion"]},
        ),
        (obj(), ORPHANING, DeleteOptions(), Operation.UPDATE, {"finalizers": ["orphan"]}),
        (obj(), ORPHANING, DeleteOptions(policy="Background"), Operation.REMOVE, {}),
        (obj(), PLAIN, DeleteOptions(orphan_dependents=True), Operation.UPDATE, {}),
        (obj(), CARELESS, DeleteOptions(policy="Orphan"), Operation.REMOVE, {}),
        (
            obj(finalizers=["orphan", "a/b"]),
            PLAIN,
            DeleteOptions(policy="Background"),
            Operation.UPDATE,
            {"finalizers": ["a/b"]},
        ),
        (
            obj(),
            GRACEFUL,
            DeleteOptions(),
            Operation.UPDATE,
            {
                "deletionTimestamp": "2026-11-22T10:00:30Z",
                "deletionGracePeriodSeconds": 30,
                "generation": 2,
            },
        ),
        (obj(), GRACEFUL, DeleteOptions(grace_seconds=0), Operation.END, {"generation": 2}),
        (obj(), GRACEFUL, DeleteOptions(grace_seconds=-5), Operation.UPDATE,
         {"deletionGracePeriodSeconds": 1}),
        (marked(30), GRACEFUL, DeleteOptions(), Operation.KEEP, {}),
        (marked(30), GRACEFUL, DeleteOptions(grace_seconds=30), Operation.KEEP, {}),
        (
            marked(30, "2026-11-22T10:00:30Z"),
            GRACEFUL,
            DeleteOptions(grace_seconds=10),
            Operation.UPDATE,
            {"deletionTimestamp": "2026-11-22T10:00:10Z", "deletionGracePeriodSeconds": 10},
        ),
        (
            marked(30, "2026-11-22T10:00:05Z"),
            GRACEFUL,
            DeleteOptions(grace_seconds=10),
            Operation.UPDATE,
            {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 1},
        ),
        (marked(0), GRACEFUL, DeleteOptions(), Operation.REMOVE, {}),
        (marked(30), GRACEFUL, DeleteOptions(grace_seconds=0), Operation.END,
         {"deletionGracePeriodSeconds": 0}),
        (
            marked(30, finalizers=["a/b"]),
            GRACEFUL,
            DeleteOptions(grace_seconds=0),
            Operation.UPDATE,
            {"deletionGracePeriodSeconds": 0},
        ),
    ],
)  # fmt: skip
def test_cases(
    given: dict[str, Any],
    strategy: Deletion,
    options: DeleteOptions,
    operation: Operation,
    expected: dict[str, Any],
) -> None:
    """The operation, and what the metadata become."""
    found = plan(given, strategy, options, NOW)
    assert found.operation is operation
    meta = found.obj["metadata"]
    assert {name: meta.get(name) for name in expected} == expected
