"""What storing does to empty lists and maps."""

import pytest
from hypothesis import given, settings

from kvstack.apimachinery.schema.decode import decode, decode_as_given, normalize
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.protobuf.codec import from_protobuf, to_protobuf
from kvstack.apimachinery.schema.resource import Resource
from kvstack.apimachinery.schema.stored_form import as_stored, without_empty
from tests.apimachinery.schema.strategies import values

TABLE = load()


def test_empty_lists_that_are_always_written_become_null() -> None:
    role = TABLE.types["io.k8s.api.rbac.v1.ClusterRole"]
    assert as_stored(normalize({"rules": []}, role), role) == {"metadata": {}, "rules": None}
    rule = {"verbs": [], "resources": ["pods"]}
    found = as_stored(normalize({"rules": [rule]}, role), role)
    assert found["rules"] == [{"verbs": None, "resources": ["pods"]}]


def test_types_without_such_fields_are_left_alone() -> None:
    config_map = TABLE.types["io.k8s.api.core.v1.ConfigMap"]
    obj = normalize({"data": {"a": ""}}, config_map)
    assert as_stored(obj, config_map) is obj


def test_empty_lists_that_are_not_written_are_kept_until_then() -> None:
    type_ = TABLE.types["io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler"]
    rules = {"policies": [], "stabilizationWindowSeconds": 0}
    given = {"metadata": {"labels": {}}, "spec": {"behavior": {"scaleUp": rules}}}
    obj, unknown, has_empty = decode_as_given(given, type_)
    assert (unknown, has_empty) == ([], True)
    assert obj["metadata"] == {"labels": {}}
    assert obj["spec"]["behavior"]["scaleUp"]["policies"] == []
    written = without_empty(obj, type_)
    assert written["metadata"] == {}
    assert written["spec"]["behavior"]["scaleUp"] == {"stabilizationWindowSeconds": 0}
    assert written == decode(given, type_).obj
    assert obj["metadata"] == {"labels": {}}, "the given object stays as it is"


def test_of_schemas_in_definitions_too() -> None:
    type_ = TABLE.types["io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"]
    given = {"items": {"enum": [], "properties": {"a": {"allOf": []}}}, "dependencies": {}}
    obj, _, has_empty = decode_as_given(given, type_)
    assert has_empty
    assert obj["items"]["enum"] == []
    assert obj["dependencies"] == {}
    assert without_empty(obj, type_) == {"items": {"properties": {"a": {}}}}


def test_an_object_without_empty_lists_is_returned_as_it_is() -> None:
    config_map = TABLE.types["io.k8s.api.core.v1.ConfigMap"]
    obj, _, has_empty = decode_as_given({"data": {"a": ""}, "metadata": {"name": "x"}}, config_map)
    assert not has_empty
    assert without_empty(obj, config_map) is obj


@pytest.mark.parametrize("row", list(TABLE), ids=lambda row: f"{row.group_version}/{row.name}")
def test_it_is_what_protobuf_gives_back(row: Resource) -> None:
    @settings(max_examples=6)
    @given(values(row.type))
    def gives_back(value: dict[str, object]) -> None:
        obj = normalize(value, row.type)
        back = from_protobuf(to_protobuf(obj, row.type), row.type)
        assert as_stored(obj, row.type) == back

    gives_back()
