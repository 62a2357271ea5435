"""Decoding by type: what Go would write after reading, and what it says of what it cannot read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.schema.decode import UNKNOWN_MAX, DecodeError, decode, normalize
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.types import Field, Shape, Type

TABLE = load()


def type_of(name: str) -> Type:
    return TABLE.types[f"io.k8s.api.{name}"]


DEPLOYMENT = type_of("apps.v1.Deployment")
POD = type_of("core.v1.Pod")
CONFIG_MAP = type_of("core.v1.ConfigMap")
SECRET = type_of("core.v1.Secret")
EVENT = type_of("core.v1.Event")


def test_what_go_always_writes_is_added() -> None:
    assert normalize({}, DEPLOYMENT) == {
        "metadata": {},
        "spec": {
            "selector": None,
            "template": {"metadata": {}, "spec": {"containers": None}},
            "strategy": {},
        },
        "status": {},
    }
    assert normalize({}, type_of("core.v1.Service"))["status"] == {"loadBalancer": {}}
    assert normalize({}, EVENT)["firstTimestamp"] is None


def test_what_was_added_is_not_shared() -> None:
    first, second = normalize({}, DEPLOYMENT), normalize({}, DEPLOYMENT)
    first["spec"]["template"]["spec"]["containers"] = []
    assert second["spec"]["template"]["spec"]["containers"] is None


def test_fields_come_in_the_order_of_the_struct_and_keys_sorted() -> None:
    body = {"data": {"b": "1", "a": "2"}, "metadata": {"name": "x"}, "kind": "ConfigMap"}
    found = normalize(body, CONFIG_MAP)
    assert list(found) == ["kind", "metadata", "data"]
    assert list(found["data"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("given_value", "kept"),
    [("", False), (None, False), ("x", True)],
)
def test_zero_strings_are_left_out(given_value: str | None, kept: bool) -> None:  # noqa: FBT001
    found = normalize({"metadata": {"name": given_value}}, CONFIG_MAP)
    assert ("name" in found["metadata"]) is kept


def test_pointers_keep_zeros() -> None:
    spec = normalize({"spec": {"replicas": 0, "paused": False}}, DEPLOYMENT)["spec"]
    assert spec["replicas"] == 0
    assert "paused" not in spec


def test_empty_lists_and_maps_are_left_out_where_go_does() -> None:
    found = normalize({"data": {}, "metadata": {"labels": {}, "finalizers": []}}, CONFIG_MAP)
    assert found == {"metadata": {}}
    assert normalize({"spec": {"containers": []}}, POD)["spec"] == {"containers": []}


def test_nulls_in_lists_and_maps_are_zeros() -> None:
    assert normalize({"data": {"a": None}}, CONFIG_MAP)["data"] == {"a": ""}
    assert normalize({"data": {"a": None}}, SECRET)["data"] == {"a": None}
    containers = normalize({"spec": {"containers": [None]}}, POD)["spec"]["containers"]
    assert containers == [{"name": "", "resources": {}}]


def test_quantities_times_and_bytes_become_canonical() -> None:
    resources = {"limits": {"cpu": 1, "memory": "1024Mi", "x": "0.5"}}
    container = {"name": "c", "resources": resources}
    spec = normalize({"spec": {"containers": [container]}}, POD)["spec"]
    assert spec["containers"][0]["resources"]["limits"] == {
        "cpu": "1",
        "memory": "1Gi",
        "x": "500m",
    }
    event = normalize({"lastTimestamp": "2024-01-02T03:04:05.678+01:00"}, EVENT)
    assert event["lastTimestamp"] == "2024-01-02T02:04:05Z"
    assert normalize({"data": {"a": "YQ\n=="}}, SECRET)["data"] == {"a": "YQ=="}


def test_creation_timestamp_is_left_out_when_zero() -> None:
    assert normalize({"metadata": {"creationTimestamp": None}}, CONFIG_MAP) == {"metadata": {}}


def test_unknown_fields_are_dropped_and_reported_with_their_paths() -> None:
    body: dict[str, Any] = {
        "metadata": {"bogus": 1},
        "spec": {"containers": [{"name": "a"}, {"name": "b", "x": 1, "env": [{"y": {}}]}]},
        "Spec": {},
    }
    found = decode(body, POD)
    assert found.unknown == [
        'unknown field "metadata.bogus"',
        'unknown field "spec.containers[1].x"',
        'unknown field "spec.containers[1].env[0].y"',
        'unknown field "Spec"',
    ]
    assert found.obj["spec"]["containers"][1] == {
        "name": "b",
        "env": [{"name": ""}],
        "resources": {},
    }


def test_only_so_many_unknown_fields_are_reported() -> None:
    body = {f"x{number}": 1 for number in range(UNKNOWN_MAX + 1)}
    assert len(decode(body, CONFIG_MAP).unknown) == UNKNOWN_MAX


REPLICAS = "struct field DeploymentSpec.spec.replicas of type int32"


@pytest.mark.parametrize(
    ("body", "found", "expected"),
    [
        ({"spec": {"replicas": "2"}}, "string", REPLICAS),
        ({"spec": {"replicas": 1.5}}, "number 1.5", REPLICAS),
        ({"spec": {"replicas": 2**31}}, "number 2147483648", REPLICAS),
        ({"spec": {"replicas": True}}, "bool", REPLICAS),
        ({"spec": []}, "array", "struct field Deployment.spec of type v1.DeploymentSpec"),
        ({"kind": 1}, "number", "struct field Deployment.TypeMeta.kind of type string"),
        (
            {"metadata": {"labels": {"a": 1}}},
            "number",
            "struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            {"spec": {"template": {"spec": {"containers": {}}}}},
            "object",
            "struct field PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
        ([], "array", "value of type v1.Deployment"),
    ],
)
def test_type_errors_read_as_those_of_go(body: object, found: str, expected: str) -> None:
    with pytest.raises(DecodeError) as error:
        decode(body, DEPLOYMENT)
    assert str(error.value) == f"json: cannot unmarshal {found} into Go {expected}"


def test_the_first_type_error_is_reported_unless_reading_stops_at_another() -> None:
    body: dict[str, Any] = {"spec": {"containers": [{"name": 1}], "hostNetwork": "x"}}
    with pytest.raises(DecodeError, match=r"Container\.spec\.containers\.name"):
        decode(body, POD)
    body["spec"]["overhead"] = {"cpu": "abc"}
    with pytest.raises(DecodeError, match="quantities must match"):
        decode(body, POD)


@pytest.mark.parametrize(
    ("text", "position"),
    [("!", 0), ("YQ=", 3), ("YWJj!", 4), ("YQ==x", 4), ("Y", 0), ("YQ", 0), ("=", 0), ("YQ=x", 2)],
)
def test_bad_base64_is_reported_with_the_position_of_go(text: str, position: int) -> None:
    with pytest.raises(DecodeError, match=f"illegal base64 data at input byte {position}$"):
        decode({"data": {"a": text}}, SECRET)


def test_bits_left_over_in_base64_are_dropped() -> None:
    assert normalize({"data": {"a": "YR=="}}, SECRET)["data"] == {"a": "YQ=="}


def test_a_list_of_numbers_is_taken_for_bytes() -> None:
    assert normalize({"data": {"a": [97, None]}}, SECRET)["data"] == {"a": "YQA="}
    with pytest.raises(DecodeError, match=r"number 256 .* Secret\.data of type uint8"):
        decode({"data": {"a": [256]}}, SECRET)


def test_schemas_of_definitions_may_be_bools_or_lists() -> None:
    definition = TABLE.types[
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"
    ]

    def schema(value: dict[str, Any]) -> Any:
        version = {"name": "v1", "schema": {"openAPIV3Schema": value}}
        found = normalize({"spec": {"versions": [version]}}, definition)
        return found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    assert schema({"additionalProperties": True}) == {"additionalProperties": True}
    assert schema({"items": {"type": "string", "no": 1}}) == {"items": {"type": "string"}}
    assert schema({"items": [{"type": "string"}]}) == {"items": [{"type": "string"}]}
    assert schema({"dependencies": {"a": ["b"]}}) == {"dependencies": {"a": ["b"]}}
    with pytest.raises(DecodeError, match=r"^boolean or JSON schema expected$"):
        schema({"additionalProperties": "x"})


def test_members_that_a_custom_type_does_not_declare() -> None:
    type_ = Type(Shape.STRUCT, "Thing")
    type_.fields = {"a": Field("a", Type(Shape.STRING))}
    assert decode({"a": "x", "b": 1}, type_).unknown == ['unknown field "b"']
    kept = Type(Shape.STRUCT, "Thing")
    kept.fields = type_.fields
    kept.preserves_unknown = True
    assert decode({"b": {"c": 1}, "a": "x"}, kept) == ({"a": "x", "b": {"c": 1}}, [])
    typed = Type(Shape.STRUCT, "Thing")
    typed.fields = type_.fields
    typed.additional = type_
    assert decode({"b": {"a": "x", "c": 1}}, typed) == (
        {"b": {"a": "x"}},
        ['unknown field "b.c"'],
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*POD.fields, "containers", "name", "env", "x"]), inner)
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_read_or_refused_and_reading_again_changes_nothing(value: object) -> None:
    try:
        found = normalize({"spec": value}, POD)
    except DecodeError:
        return
    again = decode(found, POD)
    assert (again.obj, again.unknown) == (found, [])
    assert repr(again.obj) == repr(found)
