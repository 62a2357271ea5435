import copy
from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.apply.endpoint import ConversionError, Endpoint
from kvstack.apiserver.apply.field_set import FieldSet
from kvstack.apiserver.apply.managed_fields import Entry
from kvstack.apiserver.apply.update import on_create, on_update
from tests.apiserver.apply.types import ANY, APP, INT, META, STRING, field, struct

MAIN = Endpoint(APP, "v1", "App", reset_fields=(("status",),))
STATUS = Endpoint(APP, "v1", "App", subresource="status", reset_fields=(("spec",),))
OLD, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def app(**members: Any) -> Object:
    meta = {"name": "x", "uid": "u", **members.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "App", "metadata": meta, "spec": {}, **members}


def owning(name: str, fields: FieldSet, operation: str = "Update", **more: str) -> Entry:
    made: Entry = {"manager": name, "operation": operation, "apiVersion": "v1", "time": OLD}
    return {**made, "fieldsType": "FieldsV1", "fieldsV1": fields, **more}


def live_with(*entries: Entry, **members: Any) -> Object:
    made = app(**members)
    made["metadata"]["managedFields"] = list(entries)
    return made


def after(
    live: Object, endpoint: Endpoint = MAIN, manager: str = "me", **members: Any
) -> list[Entry]:
    new = copy.deepcopy(live) | members
    new["metadata"] = {**new["metadata"], **members.get("metadata", {})}
    before = copy.deepcopy(live)
    on_update(endpoint, live, new, manager, NOW)
    assert live == before
    entries: list[Entry] = new["metadata"].get("managedFields", [])
    return entries


def test_a_new_object_belongs_to_its_creator() -> None:
    new = app(data={"b": "", "a": ""}, spec={"replicas": 1}, metadata={"labels": {"l": ""}})
    new["status"] = {"ready": 1}
    on_create(MAIN, new, "me", NOW)
    assert new["metadata"]["managedFields"] == [
        {
            "manager": "me",
            "operation": "Update",
            "apiVersion": "v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:data": {".": {}, "f:a": {}, "f:b": {}},
                "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
                "f:spec": {"f:replicas": {}},
            },
        }
    ]


def test_a_new_object_without_fields_to_own_has_no_managers() -> None:
    new = app()
    on_create(MAIN, new, "me", NOW)
    assert "managedFields" not in new["metadata"]


def test_what_a_creator_gives_is_stolen_where_the_object_has_it() -> None:
    new = app(data={"a": ""})
    given = owning("given", {"f:data": {".": {}, "f:a": {}, "f:gone": {}}})
    new["metadata"]["managedFields"] = [given]
    on_create(MAIN, new, "", NOW)
    entries = {each["manager"]: each["fieldsV1"] for each in new["metadata"]["managedFields"]}
    assert entries == {
        "given": {"f:data": {"f:gone": {}}},
        "unknown": {"f:data": {".": {}, "f:a": {}}},
    }


def test_an_update_takes_what_it_changes() -> None:
    live = live_with(
        owning("a", {"f:data": {"f:x": {}, "f:y": {}}}, "Apply"),
        owning("b", {"f:spec": {"f:replicas": {}}}),
        data={"x": "1", "y": "1"},
        spec={"replicas": 1},
    )
    assert after(live, data={"x": "1", "y": "2"}, spec={"replicas": 2}) == [
        owning("a", {"f:data": {"f:x": {}}}, "Apply"),
        owning("me", {"f:data": {"f:y": {}}, "f:spec": {"f:replicas": {}}}, time=NOW),
    ]


def test_an_update_adds_to_what_its_manager_has() -> None:
    live = live_with(owning("me", {"f:data": {"f:x": {}}}), data={"x": "1"})
    assert after(live, data={"x": "1", "a": "1"}) == [
        owning("me", {"f:data": {"f:a": {}, "f:x": {}}}, time=NOW)
    ]


def test_an_update_that_changes_nothing_changes_no_manager() -> None:
    entries = [owning("me", {"f:data": {"f:x": {}}}), owning("other", {"f:data": {"f:x": {}}})]
    live = live_with(*entries, data={"x": "1"})
    assert after(live) == entries


def test_what_is_removed_is_owned_by_nobody() -> None:
    live = live_with(
        owning("me", {"f:data": {".": {}, "f:x": {}, "f:y": {}}}),
        owning("other", {"f:data": {"f:y": {}}}),
        data={"x": "1", "y": "1"},
    )
    # The time stays: nothing was taken.
    assert after(live, data={"x": "1"}) == [owning("me", {"f:data": {".": {}, "f:x": {}}})]


def test_entries_of_subresources_and_versions_are_apart() -> None:
    live = live_with(
        owning("me", {"f:data": {"f:x": {}}}),
        owning("me", {"f:status": {"f:ready": {}}}, subresource="status"),
        data={"x": "1"},
        status={"ready": 1},
    )
    assert after(live, STATUS, status={"ready": 2}) == [
        owning("me", {"f:data": {"f:x": {}}}),
        owning("me", {"f:status": {"f:ready": {}}}, subresource="status", time=NOW),
    ]


def test_fields_that_are_reset_are_neither_taken_nor_lost() -> None:
    entries = [owning("kubelet", {"f:status": {"f:ready": {}}}, subresource="status")]
    live = live_with(*entries, status={"ready": 1})
    assert after(live, status={"ready": 2}) == entries
    assert after(live, status={}) == entries


@pytest.mark.parametrize("reset", [[], [{}]])
def test_managers_are_forgotten(reset: list[Entry]) -> None:
    live = live_with(owning("a", {"f:data": {}}), data={"x": "1"})
    assert after(live, metadata={"managedFields": reset}, data={"x": "2"}) == []


def test_a_reset_through_a_subresource_does_nothing() -> None:
    entries = [owning("a", {"f:data": {}})]
    live = live_with(*entries, data={"x": "1"})
    assert after(live, STATUS, metadata={"managedFields": []}) == entries


def test_managers_can_be_given() -> None:
    live = live_with(owning("a", {"f:data": {"f:x": {}}}), data={"x": "1"})
    given = [owning("new", {"f:data": {"f:x": {}}}, "Apply")]
    assert after(live, metadata={"managedFields": given}) == given
    # What the same update changes is taken from them.
    assert after(live, metadata={"managedFields": given}, data={"x": "2"}) == [
        owning("me", {"f:data": {"f:x": {}}}, time=NOW)
    ]


def test_managers_that_were_given_are_made_canonical() -> None:
    live = live_with(owning("a", {"f:data": {"f:x": {}}}), data={"x": "1"})
    given = [owning("new", {"f:b": {"v: 1.0": {}}, "f:a": {"q:": {}}}, "Apply")]
    assert str(after(live, metadata={"managedFields": given})) == str(
        [owning("new", {"f:a": {}, "f:b": {"v:1": {}}}, "Apply")]
    )


@pytest.mark.parametrize(
    "given",
    [
        [owning("bad", {"f:data": {}}, "Nope")],
        [owning("bad", {"data": {}})],
        [{"manager": "bad"}],
    ],
)
def test_managers_that_cannot_be_read_are_ignored(given: list[Entry]) -> None:
    entries = [owning("a", {"f:data": {"f:x": {}}})]
    live = live_with(*entries, data={"x": "1"})
    assert after(live, metadata={"managedFields": given}) == entries


def test_an_object_without_managers_is_not_tracked() -> None:
    live = app(data={"x": "1"})
    assert after(live, data={"x": "2"}) == []
    del live["metadata"]["uid"]
    # Without an identity it does not exist yet.
    assert [each["manager"] for each in after(live, data={"x": "2"})] == ["me"]


def test_the_oldest_of_many_updaters_are_joined() -> None:
    entries = [
        owning(f"m{index:02}", {"f:data": {f"f:{index}": {}}}, time=f"2025-01-01T00:00:{index:02}Z")
        for index in range(10)
    ]
    live = live_with(*entries, data={str(index): "" for index in range(10)})
    found = after(live, data={**live["data"], "new": ""})
    assert len(found) == 10
    assert found[0] == owning(
        "ancient-changes", {"f:data": {"f:0": {}, "f:1": {}}}, time="2025-01-01T00:00:01Z"
    )


def test_a_value_that_cannot_be_compared_leaves_the_managers_alone() -> None:
    entries = [owning("a", {"f:data": {"f:x": {}}})]
    live = live_with(*entries, data={"x": "1"})
    broken = {"containers": [None]}
    assert after(live, data={"x": "2"}, spec=broken) == entries
    new = app(spec=broken)
    on_create(MAIN, new, "me", NOW)
    assert "managedFields" not in new["metadata"]


def test_an_object_too_deep_to_compare_leaves_the_managers_alone() -> None:
    deep: Any = "x"
    for _ in range(3000):
        deep = {"a": deep}
    open_ = Endpoint(struct(field("metadata", META), any=ANY), "v1", "App")
    entries = [owning("a", {"f:any": {}})]
    live = live_with(*entries, any="x")
    new = {"metadata": {"name": "x", "uid": "u"}, "any": deep}
    on_update(open_, live, new, "me", NOW)
    assert new["metadata"]["managedFields"] == entries


def test_sets_are_fitted_to_the_types_of_now() -> None:
    selector = {"matchLabels": {"a": "1"}}
    was: Object = {"f:spec": {"f:selector": {"f:matchLabels": {"f:a": {}}}}}
    live = live_with(owning("a", was, "Apply"), spec={"selector": selector})
    assert after(live, data={"x": "1"}) == [
        owning("a", {"f:spec": {"f:selector": {}}}, "Apply"),
        owning("me", {"f:data": {".": {}, "f:x": {}}}, time=NOW),
    ]


# Version v0 calls the replicas `size`.
OLD_APP = struct(field("metadata", META, omits=False), apiVersion=STRING, kind=STRING, size=INT)


def convert(obj: Object, api_version: str) -> tuple[Object, Type] | None:
    if api_version == "v0":
        size = {"size": obj["spec"]["replicas"]} if "replicas" in obj["spec"] else {}
        return {"apiVersion": "v0", "kind": "App", "metadata": obj["metadata"], **size}, OLD_APP
    if api_version == "broken":
        raise ConversionError("no webhook")
    return None


CONVERTING = Endpoint(APP, "v1", "App", convert=convert)


def test_a_manager_of_another_version_loses_what_changed_there() -> None:
    live = live_with(
        owning("a", {"f:size": {}}, "Apply", apiVersion="v0"),
        owning("b", {"f:metadata": {"f:labels": {}}}, apiVersion="v0"),
        spec={"replicas": 1},
    )
    assert after(live, CONVERTING, spec={"replicas": 2}) == [
        owning("b", {"f:metadata": {"f:labels": {}}}, apiVersion="v0"),
        owning("me", {"f:spec": {"f:replicas": {}}}, time=NOW),
    ]
    assert after(live, CONVERTING, data={"x": ""})[0]["manager"] == "a"


def test_a_manager_of_a_version_that_is_gone_is_forgotten() -> None:
    entries = [owning("a", {"f:data": {}}, apiVersion="v9"), owning("b", {"f:data": {}})]
    live = live_with(*entries, data={})
    assert after(live, CONVERTING) == [owning("b", {"f:data": {}})]
    assert after(live, MAIN) == [owning("b", {"f:data": {}})]


def test_a_conversion_that_fails_leaves_the_managers_alone() -> None:
    entries = [owning("a", {"f:data": {}}, apiVersion="broken")]
    live = live_with(*entries, data={})
    assert after(live, CONVERTING, data={"x": ""}) == entries
