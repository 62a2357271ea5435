"""Laws that hold for all objects and configurations."""

import copy

import pytest
from hypothesis import given, settings

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.apply import pruning
from kvstack.apiserver.apply.apply import on_apply
from kvstack.apiserver.apply.comparison import compare
from kvstack.apiserver.apply.endpoint import Endpoint
from kvstack.apiserver.apply.field_set import (
    FieldSet,
    contains,
    difference,
    intersection,
    is_subset,
    paths,
    read,
    union,
)
from kvstack.apiserver.apply.managed_fields import decode, encode
from kvstack.apiserver.apply.merging import merge
from kvstack.apiserver.apply.ownership import fields_of, fit_set, with_named_fields
from kvstack.apiserver.apply.path import path_text
from kvstack.apiserver.apply.removal import extract, remove
from kvstack.apiserver.apply.update import STRIPPED, on_create, on_update
from kvstack.apiserver.apply.validation import mismatches
from tests.apiserver.apply.types import APP
from tests.apiserver.apply.values import APPS

MAIN = Endpoint(APP, "v1", "App")
T0, T1, T2 = (f"2026-01-01T00:00:0{each}Z" for each in range(3))


def created(obj: Object, manager: str = "creator") -> Object:
    new = copy.deepcopy(obj)
    new["metadata"]["uid"] = "u"
    on_create(MAIN, new, manager, T0)
    return new


def owned_by(obj: Object, name: str) -> FieldSet:
    entries = obj["metadata"].get("managedFields", [])
    for manager, managed in decode(entries).items():
        if manager.name == name:
            return managed.fields
    return {}


def apply_or_conflicts(live: Object | None, config: Object, manager: str) -> Object | set[str]:
    try:
        return on_apply(MAIN, live, config, manager, T1)
    except ApiError as error:
        return {each["field"] for each in error.status["details"]["causes"]}


@given(APPS)
def test_an_object_fits_its_type_and_its_fields_fit_too(value: Object) -> None:
    fields = fields_of(value, APP)
    assert mismatches(value, APP) == []
    assert fit_set(fields, APP) is fields
    assert str(read(fields)) == str(fields)


@given(APPS, APPS)
def test_comparing_the_other_way_round_swaps_what_came_and_went(one: Object, other: Object) -> None:
    there, back = compare(one, other, APP), compare(other, one, APP)
    assert there.added == back.removed
    assert there.removed == back.added
    assert there.modified == back.modified
    assert compare(one, one, APP) == ({}, {}, {})


@pytest.mark.slow
@given(APPS, APPS)
def test_a_field_is_in_one_part_of_a_comparison(one: Object, other: Object) -> None:
    added, modified, removed = compare(one, other, APP)
    assert intersection(added, modified) == {}
    assert intersection(added, removed) == {}
    assert intersection(modified, removed) == {}
    before = with_named_fields(fields_of(one, APP), APP)
    new = difference(fields_of(other, APP), before)
    assert is_subset(new, union(added, modified))


@pytest.mark.slow
@given(APPS, APPS)
def test_a_merge_has_what_the_configuration_names(live: Object, config: Object) -> None:
    merged = merge(live, config, APP)
    assert merge(merged, config, APP) == merged
    assert merge(live, merged, APP) == merged
    assert extract(merged, fields_of(config, APP), APP) == config


@given(APPS)
def test_a_value_is_made_of_its_fields(value: Object) -> None:
    fields = fields_of(value, APP)
    assert extract(value, fields, APP) == value
    rest = remove(value, fields, APP) or {}
    assert intersection(fields_of(rest, APP), fields) == {}


@pytest.mark.slow
@given(APPS, APPS)
@settings(max_examples=200)
def test_applying_twice_is_applying_once(live: Object, config: Object) -> None:
    once = on_apply(MAIN, created(live), config, "me", T1, force=True)
    twice = on_apply(MAIN, once, config, "me", T2, force=True)
    assert twice == once


@pytest.mark.slow
@given(APPS, APPS)
@settings(max_examples=200)
def test_an_apply_conflicts_exactly_where_it_changes_what_another_owns(
    live: Object, config: Object
) -> None:
    base = created(live)
    merged = merge(base, config, APP)
    change = compare(base, merged, APP)
    theirs = owned_by(base, "creator")
    expected = intersection(theirs, union(change.modified, change.added))
    outcome = apply_or_conflicts(base, config, "me")
    if isinstance(outcome, set):
        assert outcome == {path_text(path) for path in paths(expected)}
        assert outcome
        forced = on_apply(MAIN, base, config, "me", T1, force=True)
        assert intersection(owned_by(forced, "creator"), expected) == {}
    else:
        assert expected == {}
        assert is_subset(difference(fields_of(config, APP), STRIPPED), owned_by(outcome, "me"))


@pytest.mark.slow
@given(APPS, APPS, APPS)
@settings(max_examples=200)
def test_an_applier_takes_back_what_it_gave_and_nothing_else(
    base: Object, first: Object, second: Object
) -> None:
    start = created(base)
    gave = on_apply(MAIN, start, first, "me", T1, force=True)
    after = on_apply(MAIN, gave, second, "me", T2, force=True)
    for path in paths(owned_by(after, "creator")):
        assert contains(owned_by(start, "creator"), path)
    mine = owned_by(after, "me")
    assert mine == difference(fields_of(second, APP), STRIPPED)
    lost = compare(merge(gave, second, APP), after, APP).removed
    for path in paths(lost):
        assert not contains(union(mine, owned_by(after, "creator")), path)


@pytest.mark.slow
@given(APPS, APPS)
@settings(max_examples=200)
def test_an_update_takes_what_it_changes_and_leaves_the_rest(live: Object, new: Object) -> None:
    base = created(live)
    after = copy.deepcopy(new)
    after["metadata"]["uid"] = "u"
    on_update(MAIN, base, after, "updater", T1)
    before, now = copy.deepcopy(base), copy.deepcopy(after)
    for each in (before, now):
        each["metadata"].pop("managedFields", None)
    change = compare(before, now, APP)
    if not base["metadata"].get("managedFields"):
        assert "managedFields" not in after["metadata"]
        return
    changed = union(change.modified, change.added)
    assert owned_by(after, "updater") == difference(changed, STRIPPED)
    assert owned_by(after, "creator") == difference(
        difference(owned_by(base, "creator"), changed), change.removed
    )


@pytest.mark.slow
@given(APPS, APPS, APPS)
@settings(max_examples=200)
def test_the_short_way_of_pruning_is_the_long_way(
    base: Object, first: Object, second: Object
) -> None:
    gave = on_apply(MAIN, created(base), first, "me", T1, force=True)
    config = merge(first, second, APP)
    short = on_apply(MAIN, gave, config, "me", T2, force=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pruning, "is_subset", lambda _fields, _others: False)
        assert on_apply(MAIN, gave, config, "me", T2, force=True) == short


@pytest.mark.slow
@given(APPS, APPS)
def test_entries_are_written_as_they_are_read(live: Object, config: Object) -> None:
    entries = on_apply(MAIN, created(live), config, "me", T1, force=True)["metadata"]
    written = entries.get("managedFields", [])
    assert encode(decode(written)) == written
    assert str(encode(decode(written))) == str(written)
