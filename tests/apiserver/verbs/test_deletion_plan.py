"""What a delete does to an object: table of cases, and properties."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.strategy import Strategy
from kvstack.apiserver.verbs.deletion_plan import Act, plan
from kvstack.apiserver.verbs.options import DeleteOptions

NOW = "2026-11-22T10:00:00Z"
PLAIN = Strategy()
GRACEFUL = Strategy(grace_period=lambda _obj, asked: 30 if asked is None else asked)
ORPHANING = Strategy(orphans_by_default=True)
CARELESS = Strategy(minds_dependents=False)


def obj(**metadata: Any) -> dict[str, Any]:  # members of metadata
    """Return an object."""
    return {"metadata": {"name": "x", "generation": 1, **metadata}}


def marked(seconds: int, at: str = NOW, **more: Any) -> dict[str, Any]:
    """Return an object that is on its way out."""
    return obj(deletionTimestamp=at, deletionGracePeriodSeconds=seconds, **more)


@pytest.mark.parametrize(
    ("given", "strategy", "options", "act", "expected"),
    [
        (obj(), PLAIN, DeleteOptions(), Act.REMOVE, {}),
        (obj(), PLAIN, DeleteOptions(grace_seconds=30), Act.REMOVE, {}),
        (
            obj(finalizers=["a/b"]),
            PLAIN,
            DeleteOptions(),
            Act.UPDATE,
            {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0, "generation": 2},
        ),
        (
            obj(),
            PLAIN,
            DeleteOptions(policy="Foreground"),
            Act.UPDATE,
            {"finalizers": ["foregroundDeletion"]},
        ),
        (obj(), ORPHANING, DeleteOptions(), Act.UPDATE, {"finalizers": ["orphan"]}),
        (obj(), ORPHANING, DeleteOptions(policy="Background"), Act.REMOVE, {}),
        (obj(), PLAIN, DeleteOptions(orphan_dependents=True), Act.UPDATE, {}),
        (obj(), CARELESS, DeleteOptions(policy="Orphan"), Act.REMOVE, {}),
        (
            obj(finalizers=["orphan", "a/b"]),
            PLAIN,
            DeleteOptions(policy="Background"),
            Act.UPDATE,
            {"finalizers": ["a/b"]},
        ),
        (
            obj(),
            GRACEFUL,
            DeleteOptions(),
            Act.UPDATE,
            {
                "deletionTimestamp": "2026-11-22T10:00:30Z",
                "deletionGracePeriodSeconds": 30,
                "generation": 2,
            },
        ),
        (obj(), GRACEFUL, DeleteOptions(grace_seconds=0), Act.END, {"generation": 2}),
        (obj(), GRACEFUL, DeleteOptions(grace_seconds=-5), Act.UPDATE,
         {"deletionGracePeriodSeconds": 1}),
        (marked(30), GRACEFUL, DeleteOptions(), Act.KEEP, {}),
        (marked(30), GRACEFUL, DeleteOptions(grace_seconds=30), Act.KEEP, {}),
        (
            marked(30, "2026-11-22T10:00:30Z"),
            GRACEFUL,
            DeleteOptions(grace_seconds=10),
            Act.UPDATE,
            {"deletionTimestamp": "2026-11-22T10:00:10Z", "deletionGracePeriodSeconds": 10},
        ),
        (
            marked(30, "2026-11-22T10:00:05Z"),
            GRACEFUL,
            DeleteOptions(grace_seconds=10),
            Act.UPDATE,
            {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 1},
        ),
        (marked(0), GRACEFUL, DeleteOptions(), Act.REMOVE, {}),
        (marked(30), GRACEFUL, DeleteOptions(grace_seconds=0), Act.END,
         {"deletionGracePeriodSeconds": 0}),
        (
            marked(30, finalizers=["a/b"]),
            GRACEFUL,
            DeleteOptions(grace_seconds=0),
            Act.UPDATE,
            {"deletionGracePeriodSeconds": 0},
        ),
    ],
)  # fmt: skip
def test_cases(
    given: dict[str, Any],
    strategy: Strategy,
    options: DeleteOptions,
    act: Act,
    expected: dict[str, Any],
) -> None:
    """The act, and what the metadata become."""
    found = plan(given, strategy, options, NOW)
    assert found.act is act
    meta = found.obj["metadata"]
    assert {name: meta.get(name) for name in expected} == expected
