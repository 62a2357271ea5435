"""OpenAPI v2 of several servers: parts of documents, and one of all."""

from copy import deepcopy
from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.aggregation.openapi_v2 import merged, part_of

PATH = "/apis/agg.io/v1"


def reference(name: str, section: str = "definitions") -> Object:
    return {"$ref": f"#/{section}/{name}"}


def document(**more: Object) -> Object:
    return {
        "swagger": "2.0",
        "paths": {
            f"{PATH}/things": {"get": {"schema": reference("List")}},
            f"{PATH}0/things": {"get": {}},
            "/apis/": {"get": {}},
        },
        "definitions": {
            "List": {"items": reference("Thing")},
            "Thing": {"properties": {"again": reference("Thing")}},
            "Unused": {},
        },
        **more,
    }


def test_a_part_has_what_its_paths_refer_to() -> None:
    found = part_of(document(), PATH)
    assert list(found["paths"]) == [f"{PATH}/things"]
    assert sorted(found["definitions"]) == ["List", "Thing"]


def test_parameters_are_referred_to_like_definitions() -> None:
    given = document(parameters={"a-1": {"name": "a"}, "b-1": {"name": "b"}})
    given["paths"][f"{PATH}/things"]["parameters"] = [reference("a-1", "parameters")]
    part = part_of(given, PATH)
    assert part["parameters"] == {"a-1": {"name": "a"}}
    assert merged({"paths": {}}, [part])["parameters"] == {"a-1": {"name": "a"}}


@pytest.mark.parametrize("given", [[], "x", None, {"paths": []}, {"paths": {}, "definitions": 1}])
def test_what_is_no_document_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match="must be an object"):
        part_of(given, PATH)


def test_definitions_that_differ_get_names() -> None:
    """What is there first keeps its name, and the references of the second follow the new one."""
    own: dict[str, Any] = {
        "paths": {"/api/": {"get": {"own": True}}},
        "definitions": {"Thing": {"type": "string"}},
    }
    part = part_of(document(), PATH)
    found = merged(own, [part])
    assert sorted(found["definitions"]) == ["List", "Thing", "Thing_v2"]
    assert found["definitions"]["Thing"] == {"type": "string"}
    assert found["definitions"]["List"] == {"items": reference("Thing_v2")}
    assert found["definitions"]["Thing_v2"]["properties"]["again"] == reference("Thing_v2")
    assert found["paths"][f"{PATH}/things"]["get"]["schema"] == reference("List")
    assert list(own["paths"]) == ["/api/"]


def test_equal_definitions_are_one() -> None:
    part = {"paths": {}, "parameters": {}, "definitions": {"Thing": {"type": "object"}}}
    own = {"paths": {}, "definitions": {"Thing": {"type": "string"}}}
    found = merged(own, [part, deepcopy(part)])["definitions"]
    assert found == {"Thing": {"type": "string"}, "Thing_v2": {"type": "object"}}


def test_a_new_name_is_none_that_the_part_has_itself() -> None:
    own = {"paths": {}, "definitions": {"Thing": {"type": "string"}}}
    part = {
        "paths": {},
        "parameters": {},
        "definitions": {"Thing": {"type": "object"}, "Thing_v2": {"type": "array"}},
    }
    found = merged(own, [part])["definitions"]
    assert sorted(each["type"] for each in found.values()) == ["array", "object", "string"]


def test_kinds_of_one_definition_are_those_of_all() -> None:
    key = "x-kubernetes-group-version-kind"
    first, second = ({"group": group, "kind": "DeleteOptions"} for group in ("", "agg.io"))
    own = {"paths": {}, "definitions": {"Options": {"type": "object", key: [first]}}}
    part = {
        "paths": {},
        "parameters": {},
        "definitions": {"Options": {"type": "object", key: [first, second]}},
    }
    assert merged(own, [part])["definitions"]["Options"][key] == [first, second]
