from kvstack.apiserver.apply.field_set import FieldSet
from kvstack.apiserver.apply.managed_fields import Entry
from kvstack.apiserver.apply.scale import ReplicasPaths, parent_entries, scale_entries

TIME = "2026-01-01T00:00:00Z"
PATHS: ReplicasPaths = {"apps/v1": ("spec", "replicas"), "old/v1": ("size",), "none/v1": None}
REPLICAS: FieldSet = {"f:spec": {"f:replicas": {}}}


def entry(
    name: str,
    operation: str,
    fields: FieldSet,
    version: str = "apps/v1",
    time: str = TIME,
    subresource: str = "",
) -> Entry:
    made: Entry = {"manager": name, "operation": operation, "apiVersion": version, "time": time}
    made |= {"fieldsType": "FieldsV1", "fieldsV1": fields, "subresource": subresource}
    return {name: value for name, value in made.items() if value != "" or name == "fieldsV1"}


PARENT = [
    entry("a", "Apply", {"f:spec": {"f:paused": {}, "f:replicas": {}}}),
    entry("b", "Apply", {"f:spec": {"f:paused": {}}}),
    entry("c", "Update", REPLICAS, subresource="scale"),
    entry("d", "Update", {"f:size": {}}, "old/v1"),
    entry("e", "Update", REPLICAS, "none/v1"),
    entry("f", "Update", REPLICAS, "unknown/v1"),
]


def test_owners_of_the_replicas_own_those_of_the_scale() -> None:
    assert scale_entries(PARENT, PATHS) == [
        entry("a", "Apply", REPLICAS, "autoscaling/v1"),
        entry("c", "Update", REPLICAS, "autoscaling/v1", subresource="scale"),
        entry("d", "Update", REPLICAS, "autoscaling/v1"),
    ]


def test_a_write_that_changes_nothing_changes_no_owner() -> None:
    unchanged = parent_entries(PARENT, scale_entries(PARENT, PATHS), "apps/v1", PATHS)
    assert unchanged == PARENT[:-1]


def test_a_write_of_the_scale_takes_the_replicas() -> None:
    scaled = [entry("new", "Update", REPLICAS, "autoscaling/v1", subresource="scale")]
    assert parent_entries(PARENT, scaled, "apps/v1", PATHS) == [
        entry("a", "Apply", {"f:spec": {"f:paused": {}}}),
        entry("b", "Apply", {"f:spec": {"f:paused": {}}}),
        entry("new", "Update", REPLICAS, time="", subresource="scale"),
        entry("e", "Update", REPLICAS, "none/v1"),
    ]


def test_a_new_owner_owns_the_replicas_of_the_version_of_the_request() -> None:
    scaled = [entry("new", "Apply", REPLICAS, "autoscaling/v1", subresource="scale")]
    assert parent_entries([], scaled, "old/v1", PATHS) == [
        entry("new", "Apply", {"f:size": {}}, "old/v1", time="", subresource="scale")
    ]


def test_an_entry_of_the_scale_without_its_replicas_is_left_out() -> None:
    scaled = [entry("new", "Apply", {"f:status": {}}, "autoscaling/v1")]
    assert parent_entries([], scaled, "apps/v1", PATHS) == []


def test_an_owner_keeps_what_it_has_besides() -> None:
    parent = [entry("me", "Apply", {"f:spec": {"f:paused": {}}})]
    scaled = [entry("me", "Apply", REPLICAS, "autoscaling/v1")]
    assert parent_entries(parent, scaled, "apps/v1", PATHS) == [
        entry("me", "Apply", {"f:spec": {"f:paused": {}, "f:replicas": {}}})
    ]
