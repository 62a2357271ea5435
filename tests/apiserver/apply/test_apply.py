import copy
from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.apply.apply import on_apply
from kvstack.apiserver.apply.endpoint import ConversionError, Endpoint
from kvstack.apiserver.apply.field_set import FieldSet
from kvstack.apiserver.apply.managed_fields import Entry
from tests.apiserver.apply.types import APP, INT, META, STRING, field, map_of, struct

MAIN = Endpoint(APP, "v1", "App", reset_fields=(("status",),))
STATUS = Endpoint(APP, "v1", "App", subresource="status", reset_fields=(("spec",),))
OLD, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
PORT = 'k:{"port":80,"protocol":"TCP"}'


def app(**members: Any) -> Object:
    return {"apiVersion": "v1", "kind": "App", "metadata": {"name": "x"}, **members}


def owning(name: str, fields: FieldSet, operation: str = "Apply", **more: str) -> Entry:
    made: Entry = {"manager": name, "operation": operation, "apiVersion": "v1", "time": OLD}
    return {**made, "fieldsType": "FieldsV1", "fieldsV1": fields, **more}


def live_with(*entries: Entry, **members: Any) -> Object:
    meta = {"name": "x", "uid": "u", "managedFields": list(entries)}
    return app(spec={}, **members) | {"metadata": meta}


def applied(
    live: Object | None,
    config: Object,
    manager: str = "me",
    endpoint: Endpoint = MAIN,
    *,
    force: bool = False,
) -> tuple[Object, list[Entry]]:
    before = copy.deepcopy((live, config))
    made = on_apply(endpoint, live, config, manager, NOW, force=force)
    assert (live, config) == before
    made = copy.deepcopy(made)
    return made, made["metadata"].pop("managedFields", [])


def refused(live: Object | None, config: Any, manager: str = "me", **more: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        on_apply(more.get("endpoint", MAIN), live, config, manager, NOW)
    return error.value


def test_an_object_that_is_not_there_is_the_configuration() -> None:
    config = app(spec={"replicas": 1}, data={"a": "1"})
    made, entries = applied(None, config)
    assert made == config
    fields: Object = {"f:data": {"f:a": {}}, "f:spec": {"f:replicas": {}}}
    assert entries == [owning("me", fields, time=NOW)]


def test_a_configuration_without_content_owns_nothing() -> None:
    made, entries = applied(None, app())
    assert (made, entries) == (app(), [])


def test_what_was_there_before_the_first_apply_has_an_owner_from_then_on() -> None:
    live = live_with(data={"a": "1"})
    made, entries = applied(live, app(data={"b": "1"}))
    assert made["data"] == {"a": "1", "b": "1"}
    assert entries == [
        owning("me", {"f:data": {"f:b": {}}}, time=NOW),
        owning("before-first-apply", {"f:data": {".": {}, "f:a": {}}}, "Update", time=NOW),
    ]
    error = refused(live, app(data={"a": "2"}))
    assert error.message == (
        'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a'
    )


def test_the_same_apply_again_changes_nothing() -> None:
    config = app(data={"a": "1"})
    live = live_with(owning("me", {"f:data": {"f:a": {}}}), data={"a": "1"})
    made, entries = applied(live, config)
    assert made == {**live, "metadata": {"name": "x", "uid": "u"}}
    assert entries == live["metadata"]["managedFields"]


def test_equal_values_are_shared_and_a_new_owner_of_nothing_new_has_no_time() -> None:
    live = live_with(owning("a", {"f:data": {"f:a": {}}}), data={"a": "1"})
    made, entries = applied(live, app(data={"a": "1"}))
    assert made["data"] == {"a": "1"}
    me = owning("me", {"f:data": {"f:a": {}}})
    del me["time"]
    assert entries == [me, owning("a", {"f:data": {"f:a": {}}})]


def test_another_value_is_a_conflict() -> None:
    live = live_with(owning("a", {"f:data": {"f:a": {}, "f:b": {}}}), data={"a": "1", "b": "1"})
    error = refused(live, app(data={"a": "2", "b": "1"}))
    assert (error.code, error.message) == (
        409,
        'Apply failed with 1 conflict: conflict with "a": .data.a',
    )
    made, entries = applied(live, app(data={"a": "2", "b": "1"}), force=True)
    assert made["data"] == {"a": "2", "b": "1"}
    assert entries == [
        owning("a", {"f:data": {"f:b": {}}}),
        owning("me", {"f:data": {"f:a": {}, "f:b": {}}}, time=NOW),
    ]


def test_an_atomic_value_is_taken_as_a_whole() -> None:
    selector = {"matchLabels": {"a": "1"}}
    live = live_with(owning("a", {"f:spec": {"f:selector": {}}})) | {"spec": {"selector": selector}}
    config = app(spec={"selector": {"matchLabels": {"b": "1"}}})
    assert '"a": .spec.selector' in refused(live, config).message
    made, entries = applied(live, config, force=True)
    assert made["spec"] == config["spec"]
    assert entries == [owning("me", {"f:spec": {"f:selector": {}}}, time=NOW)]


def test_items_are_found_by_their_keys_and_keys_by_their_defaults() -> None:
    ports = [{"port": 80, "protocol": "TCP", "name": "web"}]
    live = live_with() | {"spec": {"containers": [{"name": "c", "image": "i", "ports": ports}]}}
    config = app(spec={"containers": [{"name": "c", "ports": [{"port": 80}, {"port": 81}]}]})
    made, entries = applied(live, config, "me")
    assert made["spec"]["containers"] == [
        {"name": "c", "image": "i", "ports": [*ports, {"port": 81}]}
    ]
    container = entries[0]["fieldsV1"]["f:spec"]["f:containers"]['k:{"name":"c"}']
    assert container["f:ports"] == {
        PORT: {".": {}, "f:port": {}},
        'k:{"port":81,"protocol":"TCP"}': {".": {}, "f:port": {}},
    }


def test_fields_that_are_given_up_are_removed() -> None:
    live = live_with(owning("me", {"f:data": {"f:a": {}, "f:b": {}}}), data={"a": "1", "b": "1"})
    made, entries = applied(live, app(data={"a": "1"}))
    assert made["data"] == {"a": "1"}
    assert entries == [owning("me", {"f:data": {"f:a": {}}}, time=NOW)]
    made, entries = applied(live, app())
    assert "data" not in made
    assert entries == []


def test_fields_that_others_own_are_not_removed() -> None:
    live = live_with(
        owning("a", {"f:data": {"f:a": {}}}),
        owning("me", {"f:data": {"f:a": {}, "f:b": {}}}),
        data={"a": "1", "b": "1", "c": "1"},
    )
    made, entries = applied(live, app())
    # Nobody owns c, but nobody gave it up.
    assert made["data"] == {"a": "1", "c": "1"}
    assert entries == [owning("a", {"f:data": {"f:a": {}}})]


def test_what_is_removed_belongs_to_nobody() -> None:
    live = live_with(
        owning("me", {"f:data": {"f:a": {}}}),
        owning("a", {"f:data": {}}, "Update"),
        data={"a": "1"},
    )
    made, entries = applied(live, app())
    assert made["data"] is None
    assert entries == [owning("a", {"f:data": {}}, "Update")]


def test_an_item_goes_with_all_that_nobody_owns() -> None:
    containers = [{"name": "c", "image": "i", "args": ["x"]}, {"name": "d", "image": "i"}]
    fields: Object = {'k:{"name":"c"}': {".": {}, "f:image": {}, "f:name": {}}}
    live = live_with(owning("me", {"f:spec": {"f:containers": fields}}))
    live["spec"] = {"containers": containers}
    made, _ = applied(live, app(spec={"containers": [{"name": "n"}]}))
    assert made["spec"]["containers"] == [containers[1], {"name": "n"}]


def test_an_item_stays_while_someone_owns_something_of_it() -> None:
    name = 'k:{"name":"c"}'
    item: FieldSet = {".": {}, "f:image": {}, "f:name": {}}
    live = live_with(
        owning("a", {"f:spec": {"f:containers": {name: {".": {}, "f:args": {}, "f:name": {}}}}}),
        owning("me", {"f:spec": {"f:containers": {name: item}}}),
    )
    live["spec"] = {"containers": [{"name": "c", "image": "i", "args": ["x"]}]}
    made, entries = applied(live, app())
    assert made["spec"]["containers"] == [{"name": "c", "args": ["x"]}]
    assert [each["manager"] for each in entries] == ["a"]


def test_a_null_is_written_and_owned() -> None:
    live = live_with(owning("me", {"f:spec": {"f:replicas": {}}})) | {"spec": {"replicas": 1}}
    made, entries = applied(live, app(spec={"replicas": None}))
    assert made["spec"] == {"replicas": None}
    assert entries == [owning("me", {"f:spec": {"f:replicas": {}}}, time=NOW)]


def test_fields_that_the_endpoint_resets_are_not_owned_and_do_not_conflict() -> None:
    live = live_with(owning("kubelet", {"f:status": {"f:ready": {}}}, subresource="status"))
    live["status"] = {"ready": 1}
    _, entries = applied(live, app(data={"a": "1"}, status={"ready": 2}))
    assert entries == [
        owning("kubelet", {"f:status": {"f:ready": {}}}, subresource="status"),
        owning("me", {"f:data": {"f:a": {}}}, time=NOW),
    ]
    error = refused(live, app(status={"ready": 3}), endpoint=STATUS)
    assert '"kubelet" with subresource "status": .status.ready' in error.message


def test_an_applier_has_an_entry_for_each_subresource() -> None:
    live = live_with(owning("me", {"f:data": {"f:a": {}}}), data={"a": "1"})
    made, entries = applied(live, app(status={"ready": 1}), endpoint=STATUS)
    assert made["data"] == {"a": "1"}
    assert entries == [
        owning("me", {"f:data": {"f:a": {}}}),
        owning("me", {"f:status": {"f:ready": {}}}, subresource="status", time=NOW),
    ]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "invalid object type: /, Kind="),
        ({"kind": "App"}, "invalid object type: /, Kind=App"),
        ({"apiVersion": "v1"}, "invalid object type: /v1, Kind="),
        ({"apiVersion": "apps/v1", "kind": "App"}, "invalid object type: apps/v1, Kind=App"),
        ({"apiVersion": "v1", "kind": "Pod"}, "invalid object type: /v1, Kind=Pod"),
        ({"apiVersion": "a/b/c", "kind": "App"}, "invalid object type: /, Kind="),
        ({"apiVersion": 1, "kind": ["App"]}, "invalid object type: /, Kind="),
        (
            app() | {"metadata": {"managedFields": []}},
            "metadata.managedFields must be nil",
        ),
        (
            app(bogus=1) | {"metadata": {"managedFields": [{"manager": "a"}]}},
            "metadata.managedFields must be nil",
        ),
    ],
)
def test_a_configuration_of_something_else(config: Object, message: str) -> None:
    error = refused(None, config)
    assert (error.code, error.reason, error.message) == (400, "BadRequest", message)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            app(spec={"bogus": 1}),
            "failed to create typed patch object (/x; /v1, Kind=App):"
            " .spec.bogus: field not declared in schema",
        ),
        (
            app() | {"metadata": {"name": "x", "namespace": "n", "labels": {"a": 1}}},
            "failed to create typed patch object (n/x; /v1, Kind=App): .metadata.labels.a:"
            " expected string, got &value.valueUnstructured{Value:1}",
        ),
        (
            app() | {"metadata": "x"},
            "failed to create typed patch object (/; /v1, Kind=App):"
            " .metadata: expected map, got &{x}",
        ),
    ],
)
def test_a_configuration_that_does_not_fit_its_type(config: Object, message: str) -> None:
    error = refused(live_with(owning("a", {"f:data": {}})), config)
    assert (error.code, error.reason, error.message) == (500, "", message)


def test_null_is_no_managed_fields() -> None:
    config = app(data={"a": "1"}) | {"metadata": {"name": "x", "managedFields": None}}
    _, entries = applied(None, config)
    assert entries == [owning("me", {"f:data": {"f:a": {}}}, time=NOW)]


def test_a_live_object_whose_managers_cannot_be_read() -> None:
    live = live_with(owning("a", {}, "Nope"))
    error = refused(live, app())
    assert (error.code, error.message) == (
        500,
        "failed to decode managed fields: operation must be `Apply` or `Update`",
    )


def test_a_live_object_that_cannot_be_compared() -> None:
    live = live_with(owning("a", {"f:data": {}})) | {"spec": {"containers": [None]}}
    error = refused(live, app(spec={"containers": [{"name": "c"}]}))
    assert (error.code, error.message) == (
        500,
        "failed to create typed live object (/x; /v1, Kind=App): .spec.containers: element 0:"
        " associative list with keys may not have a null element",
    )


def test_items_may_stand_twice_in_a_live_object() -> None:
    live = live_with(owning("a", {"f:spec": {"f:paused": {}}}))
    live["spec"] = {"containers": [{"name": "c", "image": "1"}, {"name": "c", "image": "2"}]}
    made, _ = applied(live, app(data={"a": "1"}))
    assert made["spec"] == live["spec"]
    made, entries = applied(live, app(spec={"containers": [{"name": "c"}]}))
    assert made["spec"] == {"containers": [{"name": "c"}]}
    fields: FieldSet = {'k:{"name":"c"}': {".": {}, "f:name": {}}}
    assert owning("me", {"f:spec": {"f:containers": fields}}, time=NOW) in entries


# Version v0 calls the replicas `size`, and a label there is a field.
OLD_APP = struct(
    field("metadata", META, omits=False),
    apiVersion=STRING,
    kind=STRING,
    size=INT,
    data=map_of(STRING),
)


def convert(obj: Object, api_version: str) -> tuple[Object, Type] | None:
    rest: Object = {name: obj[name] for name in ("metadata", "data") if name in obj}
    if api_version == "v0":
        spec = obj.get("spec") or {}
        size = {"size": spec["replicas"]} if spec.get("replicas") is not None else {}
        return {**rest, "apiVersion": "v0", "kind": "App", **size}, OLD_APP
    if api_version == "v1":
        spec = {} if obj.get("size") is None else {"replicas": obj["size"]}
        return {**rest, "apiVersion": "v1", "kind": "App", "spec": spec}, APP
    if api_version == "broken":
        raise ConversionError("no webhook")
    return None


CONVERTING = Endpoint(APP, "v1", "App", convert=convert)


def test_a_conflict_with_a_manager_of_another_version_has_the_path_of_that_version() -> None:
    live = live_with(owning("a", {"f:size": {}}, "Update", apiVersion="v0"))
    live["spec"] = {"replicas": 1}
    error = refused(live, app(spec={"replicas": 2}), endpoint=CONVERTING)
    assert error.message == ('Apply failed with 1 conflict: conflict with "a" using v0: .size')


def test_what_was_applied_at_another_version_is_given_up() -> None:
    live = live_with(
        owning("me", {"f:data": {"f:a": {}}, "f:size": {}}, apiVersion="v0"), data={"a": "1"}
    )
    live["spec"] = {"replicas": 1}
    made, entries = applied(live, app(data={"b": "1"}), endpoint=CONVERTING)
    assert made["spec"] == {}
    assert made["data"] == {"b": "1"}
    assert entries == [owning("me", {"f:data": {"f:b": {}}}, time=NOW)]


def test_what_others_own_at_another_version_is_kept() -> None:
    live = live_with(
        owning("a", {"f:size": {}}, apiVersion="v0"),
        owning("me", {"f:spec": {"f:replicas": {}}}),
    )
    live["spec"] = {"replicas": 1}
    made, entries = applied(live, app(), endpoint=CONVERTING)
    assert made["spec"] == {"replicas": 1}
    assert entries == [owning("a", {"f:size": {}}, apiVersion="v0")]


def test_what_was_applied_at_a_version_that_is_gone_is_kept_and_forgotten() -> None:
    live = live_with(owning("me", {"f:data": {"f:a": {}}}, apiVersion="v9"), data={"a": "1"})
    made, entries = applied(live, app(data={"b": "1"}), endpoint=CONVERTING)
    assert made["data"] == {"a": "1", "b": "1"}
    assert entries == [owning("me", {"f:data": {"f:b": {}}}, time=NOW)]


def test_a_conversion_that_fails_is_reported() -> None:
    live = live_with(owning("a", {"f:data": {}}, apiVersion="broken"))
    error = refused(live, app(data={"b": "1"}), endpoint=CONVERTING)
    assert (error.code, error.message) == (500, "no webhook")


def test_an_object_that_does_not_fit_the_version_of_a_manager_is_reported() -> None:
    """Versions of custom resources are not converted, so what one declares another may not."""
    endpoint = Endpoint(
        APP, "v1", "App", convert=lambda obj, _version: (obj, OLD_APP), checks_versions=True
    )
    live = live_with(owning("a", {"f:data": {}}, apiVersion="v0"))
    live.pop("spec", None)
    error = refused(live, app(spec={"replicas": 1}), endpoint=endpoint)
    told = "failed to convert new object: .spec: field not declared in schema"
    assert (error.code, error.message) == (500, told)
