"""No object that can be decoded makes a hook fail, and hooks change only what they may."""

import json
from copy import deepcopy
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.decode import DecodeError, decode, normalize
from kvstack.apimachinery.schema.resource import Resource
from kvstack.apiserver.kinds.network.services.allocation import allocate_create, allocate_update
from kvstack.apiserver.kinds.strategy import Strategy
from kvstack.apiserver.kinds.table import strategy_of
from tests.apiserver.kinds.hooks import SECONDS, context_of
from tests.apiserver.kinds.replay import recorded, target_of
from tests.apiserver.kinds.service_operations import pools_of

FAMILIES: Final = (
    "defaults-core",
    "defaults-extension",
    "defaults-network",
    "defaults-policy",
    "defaults-storage",
)
VALUES: Final[tuple[Any, ...]] = (
    None, {}, [], "", 0, -1, 2**31, "None", "a", "A b", "10.0.0.1", "fd00::1", "10.0.0.0/8", "x/y",
    True, False, [""], [None], {"a": None}, {"": ""}, "2026-01-01T00:00:00Z", "1Gi", "-1", "*",
)  # fmt: skip


def bases() -> list[tuple[Resource, Strategy, Object]]:
    """Return the first, richest recorded object of each kind, with what is known of the kind."""
    found: dict[str, tuple[Resource, Strategy, Object]] = {}
    for step in (step for name in FAMILIES for each in recorded(name) for step in each["steps"]):
        target = target_of(step["path"])
        if step["method"] != "POST" or target is None:
            continue
        row, body = target.row, step["body"]
        strategy = strategy_of(row.group, row.name)
        key = f"{row.group}/{row.name}"
        if strategy is None or row.name == "pods":
            continue
        if key not in found or len(json.dumps(found[key][2])) < len(json.dumps(body)) < 5000:
            found[key] = (row, strategy, body)
    return list(found.values())


BASES: Final = bases()


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all that is within a value."""
    if isinstance(value, dict):
        found = [paths(each, (*path, name)) for name, each in value.items()]
    elif isinstance(value, list):
        found = [paths(each, (*path, position)) for position, each in enumerate(value)]
    else:
        found = []
    return [path, *(each for some in found for each in some)]


def mangled(data: st.DataObject, body: Object) -> Object:
    """Return an object in which a few things are gone or something else."""
    result = deepcopy(body)
    for _ in range(data.draw(st.integers(0, 3))):
        within = [each for each in paths(result) if each and each[0] not in {"kind", "apiVersion"}]
        if not within:
            break
        path = data.draw(st.sampled_from(within))
        parent = result
        for each in path[:-1]:
            parent = parent[each]
        value = data.draw(st.sampled_from(("gone", *VALUES)))
        if value == "gone":
            del parent[path[-1]]
        else:
            parent[path[-1]] = deepcopy(value)
    return result


def decoded(row: Resource, strategy: Strategy, body: Object) -> Object:
    """Return an object in its stored version, with defaults and a name."""
    obj = decode(body, row.type)[0]
    conversion = strategy.conversions.get(row.version)
    if conversion is not None:
        obj = conversion.to_stored(obj)
    strategy.default(obj)
    obj["metadata"] = {"name": "a", **obj.get("metadata", {}), "namespace": "ns"}
    return obj


def show(row: Resource, strategy: Strategy, obj: Object) -> None:
    """Look at an object in all ways."""
    before = deepcopy(obj)
    if strategy.cells is not None:
        strategy.cells(obj, SECONDS)
    if strategy.selectable is not None:
        strategy.selectable(obj)
    conversion = strategy.conversions.get(row.version)
    normalize(obj if conversion is None else conversion.to_served(obj), row.type)
    assert obj == before


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_mangled_objects(data: st.DataObject) -> None:
    """They are made, or refused in words; so are changes to others."""
    row, strategy, body = data.draw(st.sampled_from(BASES))
    context = context_of(api_version=row.group_version)
    try:
        old = decoded(row, strategy, mangled(data, body))
        new = decoded(row, strategy, mangled(data, body))
        if row.name == "services":
            allocate_create(old, pools_of({}))
        strategy.prepare_create(old, context)
    except (DecodeError, ApiError):
        return
    before = deepcopy(old)
    assert all(map(str, strategy.validate(old, context)))
    strategy.warnings(old, context)
    assert old == before
    show(row, strategy, old)
    for each in (strategy, *strategy.subresources.values()):
        changed = deepcopy(new)
        try:
            if row.name == "services":
                allocate_update(changed, deepcopy(old), pools_of({}))
        except ApiError:
            continue
        each.prepare_update(changed, old, context)
        assert all(map(str, each.validate_update(changed, old, context)))
        each.update_warnings(changed, old, context)
        assert old == before
        show(row, strategy, changed)
