"""What storing does to empty lists and maps."""

import pytest
from hypothesis import given, settings

from kvstack.apiserver.schema.decode import normalize
from kvstack.apiserver.schema.load import load
from kvstack.apiserver.schema.protobuf.codec import from_protobuf, to_protobuf
from kvstack.apiserver.schema.resource import Resource
from kvstack.apiserver.schema.stored_form import as_stored
from tests.apiserver.schema.strategies import values

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


@pytest.mark.parametrize("row", list(TABLE), ids=lambda row: f"{row.group_version}/{row.name}")
def test_it_is_what_protobuf_gives_back(row: Resource) -> None:
    @settings(max_examples=6)
    @given(values(row.type))
    def gives_back(value: dict[str, object]) -> None:
        obj = normalize(value, row.type)
        back = from_protobuf(to_protobuf(obj, row.type), row.type)
        assert as_stored(obj, row.type) == back

    gives_back()
