"""What StorageVersionMigrations may be."""

from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.storage.migrations import MIGRATIONS
from tests.apiserver.kinds.hooks import NOW, cells_of, change_refusals, changed, refusals

STATUS = MIGRATIONS.subresources["status"]


def migration(resource: str = "foos", group: str = "g.io", **status: Any) -> Object:
    """Return a migration."""
    names = {"resource": resource, "group": group}
    return {"metadata": {"name": "m"}, "spec": {"resource": names}, "status": status}


def conditions(*kinds: str) -> list[Object]:
    """Return conditions that are true."""
    return [
        {"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": NOW}
        for kind in kinds
    ]


@pytest.mark.parametrize(
    ("resource", "group", "expected"),
    [
        ("foos", "", []),
        ("", "g.io", ["spec.resource.resource: Required value: resource is required to be set"]),
        ("1", "A", [
            'spec.resource.resource: Invalid value: "1": a DNS-1035 label must',
            'spec.resource.group: Invalid value: "A": a lowercase RFC 1123 subdomain must',
        ]),
    ],
)  # fmt: skip
def test_rules(resource: str, group: str, expected: list[str]) -> None:
    """Of what to migrate."""
    found = refusals(MIGRATIONS, migration(resource, group))
    assert [one[: len(other)] for one, other in zip(found, expected, strict=True)] == expected


def test_changes() -> None:
    """What is to be migrated stays, and the status is others' part."""
    old = migration(resourceVersion="5")
    (message,) = change_refusals(MIGRATIONS, migration("bars"), old)
    assert message.endswith(": field is immutable")
    assert changed(MIGRATIONS, migration(), old)["status"] == {"resourceVersion": "5"}
    assert changed(STATUS, migration("bars"), old)["spec"] == old["spec"]


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ({"resourceVersion": "5"}, {}, []),
        ({"resourceVersion": "05"}, {},
         ['status.resourceVersion: Invalid value: "05": resource version is not well formed: 05']),
        ({"resourceVersion": "6"}, {"resourceVersion": "5"},
         ['status.resourceVersion: Invalid value: "6": field is immutable']),
        ({"conditions": conditions("Running")}, {"conditions": conditions("Succeeded")},
         ["Success condition cannot be set to false once it is true"]),
        ({"conditions": conditions("Succeeded", "Failed")}, {"conditions": conditions("Failed")},
         ["Both success and failed conditions cannot be true at the same time"]),
    ],
)  # fmt: skip
def test_statuses(new: dict[str, Any], old: dict[str, Any], expected: list[str]) -> None:
    """A migration ends once, well or badly."""
    found = change_refusals(STATUS, migration(**new), migration(**old))
    assert all(one.endswith(other) for one, other in zip(found, expected, strict=True))


def test_cells() -> None:
    """What is migrated, and how far it is."""
    assert cells_of(MIGRATIONS, migration()) == ["m", "foos.g.io", "Unknown"]
    done = migration(group="", conditions=conditions("Running", "Succeeded"))
    assert cells_of(MIGRATIONS, done) == ["m", "foos", "Succeeded"]
