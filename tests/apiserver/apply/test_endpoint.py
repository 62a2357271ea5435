from typing import Any

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.apply.endpoint import Endpoint, Versions
from tests.apiserver.apply.types import APP, STRING, struct

OTHER = struct(apiVersion=STRING, old=STRING)


def test_fields_that_a_write_never_owns() -> None:
    endpoint = Endpoint(APP, "v1", "App", reset_fields=(("status",), ("metadata", "labels")))
    fields: dict[str, Any] = {
        "f:data": {},
        "f:metadata": {"f:annotations": {}, "f:labels": {".": {}, "f:a": {}}},
        "f:status": {"f:ready": {}},
    }
    assert endpoint.owned(fields) == {"f:data": {}, "f:metadata": {"f:annotations": {}}}
    assert Endpoint(APP, "v1", "App").owned(fields) is fields


def test_fields_that_a_write_owns_alone() -> None:
    """A member on the way to them is kept; siblings of them and all else are not."""
    paths = ("spec", "containers", "*", "resources"), ("spec", "extra")
    endpoint = Endpoint(
        APP, "v1", "App", owned_fields=paths, reset_fields=(("spec", "extra", "b"),)
    )
    item: dict[str, Any] = {".": {}, "f:image": {}, "f:resources": {"f:limits": {"f:cpu": {}}}}
    fields: dict[str, Any] = {
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:spec": {
            "f:containers": {'k:{"name":"a"}': item, 'k:{"name":"b"}': {"f:image": {}}},
            "f:extra": {".": {}, "f:a": {}, "f:b": {}},
            "f:replicas": {},
        },
    }
    owned_item: dict[str, Any] = {".": {}, "f:resources": {"f:limits": {"f:cpu": {}}}}
    assert endpoint.owned(fields) == {
        "f:spec": {
            "f:containers": {'k:{"name":"a"}': owned_item},
            "f:extra": {".": {}, "f:a": {}},
        }
    }
    assert endpoint.owned({"f:spec": {"f:containers": {}}}) == {"f:spec": {"f:containers": {}}}
    assert endpoint.owned({"f:spec": {"f:replicas": {}}, "f:data": {}}) == {}


def test_an_empty_object_has_the_fields_that_are_always_written() -> None:
    assert Endpoint(APP, "v1", "App").zero == {"metadata": {}, "spec": {}}


def test_an_object_is_converted_once_to_each_version() -> None:
    asked: list[str] = []

    def convert(obj: Object, api_version: str) -> tuple[Object, Type] | None:
        asked.append(api_version)
        if api_version == "v9":
            return None
        return {"apiVersion": api_version, "old": obj["data"]}, OTHER

    versions = Versions(Endpoint(APP, "v1", "App", convert=convert), {"data": "x"})
    own = versions.at("v1")
    assert own is not None
    assert own.obj == {"data": "x"}
    other = versions.at("v2")
    assert other is not None
    assert (other.obj, other.type) == ({"apiVersion": "v2", "old": "x"}, OTHER)
    assert versions.at("v2") is other
    assert versions.at("v9") is None
    assert versions.at("v9") is None
    assert asked == ["v2", "v9"]


def test_without_conversion_there_is_one_version() -> None:
    versions = Versions(Endpoint(APP, "v1", "App"), {"data": "x"})
    assert versions.at("v2") is None
