from typing import Any

import pytest

from kvstack.apiserver.apply.managed_fields import (
    Entry,
    Managed,
    ManagedFieldsError,
    Manager,
    applier,
    cap_updaters,
    decode,
    encode,
    entries_after_admission,
    identity,
    is_reset,
    keep_times,
    name_from_user_agent,
    updater,
)

T1, T2, T3 = "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", "2026-01-01T00:00:03Z"


def entry(name: str, operation: str = "Update", time: str = T1, **more: Any) -> Entry:
    made: Entry = {"manager": name, "operation": operation, "apiVersion": "v1", "time": time}
    return {**made, "fieldsType": "FieldsV1", "fieldsV1": {"f:a": {}}, **more}


def test_entries_are_read_and_written() -> None:
    entries = [
        entry("a", "Apply"),
        entry("b", "Update", subresource="status"),
    ]
    managers = decode(entries)
    assert managers == {
        Manager("a", "Apply", "", ""): Managed({"f:a": {}}, "v1", T1),
        Manager("b", "Update", "v1", "status"): Managed({"f:a": {}}, "v1", T1),
    }
    assert encode(managers) == entries
    assert [list(each) for each in encode(managers)] == [list(each) for each in entries]


def test_entries_without_time_name_or_fields() -> None:
    bare = {"operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    managers = decode([bare])
    assert managers == {Manager("", "Apply", "", ""): Managed({}, "v1", "")}
    assert encode(managers) == [{**bare, "fieldsV1": {}}]


def test_an_applier_has_one_entry_and_an_updater_one_a_version() -> None:
    versions = [{"apiVersion": "v1"}, {"apiVersion": "v2"}]
    assert len(decode([entry("a", "Apply", **each) for each in versions])) == 1
    assert len(decode([entry("a", "Update", **each) for each in versions])) == 2


def test_sets_of_clients_are_made_canonical_and_others_trusted() -> None:
    odd = entry("a", fieldsV1={"f:b": {}, "f:a": {"v: 1.0": {}}})
    (managed,) = decode([odd]).values()
    assert str(managed.fields) == str({"f:a": {"v:1": {}}, "f:b": {}})
    (trusted,) = decode([odd], [odd]).values()
    assert trusted.fields is odd["fieldsV1"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"operation": "Nope"}, "operation must be `Apply` or `Update`"),
        ({"operation": ""}, "operation must be `Apply` or `Update`"),
        ({"apiVersion": ""}, "apiVersion must not be empty"),
        ({"fieldsType": ""}, "missing fieldsType in managed fields entry 1"),
        ({"fieldsType": "FieldsV2"}, 'invalid fieldsType "FieldsV2" in managed fields entry 1'),
    ],
)
def test_entries_that_cannot_be_read(change: dict[str, str], text: str) -> None:
    with pytest.raises(ManagedFieldsError) as error:
        decode([entry("a"), entry("b", **change)])
    assert str(error.value) == text


def test_fields_that_cannot_be_read() -> None:
    with pytest.raises(ManagedFieldsError, match=r"error decoding set: missing colon: bogus$"):
        decode([entry("a", fieldsV1={"bogus": {}})])


def test_appliers_come_first_then_older_entries() -> None:
    ordered = [
        entry("b", "Apply", ""),
        entry("c", "Apply", T1),
        entry("a", "Apply", T2),
        entry("z", "Update", T1),
        entry("a", "Update", T2, apiVersion="v1"),
        entry("a", "Update", T2, apiVersion="v1", subresource="status"),
        entry("a", "Update", T2, apiVersion="v2"),
        entry("b", "Update", T2),
    ]
    written = encode(decode(ordered[::-1]))
    assert [{"time": "", **each} for each in written] == ordered


@pytest.mark.parametrize(
    ("entries", "reset"),
    [
        (None, False),
        ([], True),
        ([{}], True),
        ([{"manager": ""}], True),
        ([{}, {}], False),
        ([{"manager": "a"}], False),
    ],
)
def test_a_reset(entries: list[Entry] | None, *, reset: bool) -> None:
    assert is_reset(entries) is reset


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        ("kubectl/v1.37.1 (linux/amd64) kubernetes/abc", "kubectl"),
        ("recorder", "recorder"),
        ("", ""),
        ("/x", ""),
        ("a\x00b\tc d/1", "abc d"),
        ("é" * 100, "é" * 64),
        ("a" + "é" * 100, "a" + "é" * 63),
        ("m" * 200, "m" * 128),
    ],
)
def test_the_name_of_a_manager_that_gave_none(user_agent: str, name: str) -> None:
    assert name_from_user_agent(user_agent) == name


def test_a_manager_without_a_name_is_unknown() -> None:
    assert applier("", "") == Manager("unknown", "Apply", "", "")
    assert updater("", "v1", "status") == Manager("unknown", "Update", "v1", "status")


def test_managers_are_sorted_by_their_text_where_there_are_no_times() -> None:
    manager = Manager('a"', "Update", "v1", "status")
    assert identity(manager) == (
        '{"manager":"a\\"","operation":"Update","apiVersion":"v1","subresource":"status"}'
    )
    assert identity(Manager("", "Apply", "", "")) == '{"operation":"Apply"}'
    # A quotation mark ends the name, and comes before letters but after "!".
    names = ["a!", "a", "ab"]
    assert sorted(names, key=lambda name: identity(applier(name, ""))) == names


def _updaters(*versions: str, times: str = "") -> dict[Manager, Managed]:
    return {
        updater(f"m{index:02}", version, ""): Managed({f"f:{index}": {}}, version, f"t{index:02}")
        for index, version in enumerate(versions)
    }


def test_ten_updaters_are_kept() -> None:
    managers = _updaters(*["v1"] * 10) | {applier("a", ""): Managed({"f:x": {}}, "v1", "t99")}
    assert cap_updaters(managers) is managers


def test_the_oldest_updaters_become_one() -> None:
    capped = cap_updaters(_updaters(*["v1"] * 12))
    assert len(capped) == 10
    ancient = capped[updater("ancient-changes", "v1", "")]
    assert ancient == Managed({"f:0": {}, "f:1": {}, "f:2": {}}, "v1", "t02")
    again = cap_updaters({**capped, updater("new", "v1", ""): Managed({"f:9": {}}, "v1", "t50")})
    assert len(again) == 10
    assert again[updater("ancient-changes", "v1", "")].fields.keys() == {"f:0", "f:1", "f:2", "f:3"}


def test_only_updaters_of_one_version_are_joined() -> None:
    capped = cap_updaters(_updaters("v2", "v1", *["v3"] * 9))
    assert len(capped) == 10
    assert capped[updater("ancient-changes", "v3", "")].fields == {"f:2": {}, "f:3": {}}
    assert {updater("m00", "v2", ""), updater("m01", "v1", "")} <= capped.keys()


def test_old_changes_that_are_younger_than_others_are_not_lost() -> None:
    managers = _updaters(*["v1"] * 10)
    managers[updater("ancient-changes", "v1", "")] = Managed({"f:old": {}}, "v1", "t03")
    capped = cap_updaters(managers)
    assert len(capped) == 10
    assert set().union(*(each.fields for each in capped.values())) == {
        "f:old",
        *(f"f:{index}" for index in range(10)),
    }


def test_entries_that_admission_broke_are_put_back() -> None:
    before = [entry("a")]
    assert entries_after_admission(before, [entry("b")]) == ([entry("b")], "")
    assert entries_after_admission(before, None) == (None, "")
    kept, warning = entries_after_admission(before, [entry("b", operation="x")])
    assert kept is before
    assert warning == (
        ".metadata.managedFields was in an invalid state after admission; this could be caused by"
        " an outdated mutating admission controller; please fix your requests: operation must be"
        " `Apply` or `Update`"
    )


OLD = {"metadata": {"managedFields": [entry("a", time=T1)], "resourceVersion": "5"}, "data": {}}


@pytest.mark.parametrize(
    ("meta", "data", "kept"),
    [
        ({"managedFields": [entry("a", time=T2)]}, {}, True),
        ({"managedFields": [entry("a", time=T1)]}, {}, True),
        ({"managedFields": [entry("a", time=T2)]}, {"a": "1"}, False),
        ({"managedFields": [entry("a", time=T2)], "labels": {}}, {}, False),
        ({"managedFields": [entry("b", time=T2)]}, {}, False),
        ({"managedFields": [entry("a", time=T1), entry("b", time=T2)]}, {}, False),
        ({}, {}, False),
    ],
)
def test_times_stay_when_nothing_else_changed(
    meta: dict[str, Any], data: dict[str, str], *, kept: bool
) -> None:
    new = {"metadata": {"resourceVersion": "5", **meta}, "data": data}
    entries = OLD["metadata"]["managedFields"] if kept else meta.get("managedFields")
    assert keep_times(OLD, new) == entries
