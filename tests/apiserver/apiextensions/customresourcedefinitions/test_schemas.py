"""What a schema may say, structural or not; what its defaults must be; paths into it."""

from typing import Any

import pytest
from typing_extensions import override

from kvstack.apimachinery.objects.field_errors import INVALID
from kvstack.apiserver.apiextensions.customresourcedefinitions.defaults import default_errors
from kvstack.apiserver.apiextensions.customresourcedefinitions.pruning import prune
from kvstack.apiserver.apiextensions.customresourcedefinitions.rule_costs import more_values
from kvstack.apiserver.apiextensions.customresourcedefinitions.schema_rules import (
    Options,
    check_schema,
)
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import (
    PathError,
    everywhere,
    find_field,
    unsupported,
)
from kvstack.apiserver.apiextensions.customresourcedefinitions.structural import structural_errors
from kvstack.apiserver.kinds.expressions import (
    Problem,
    RuleFindings,
    SchemaRule,
)
from kvstack.apiserver.kinds.expressions_in_cel import CEL
from tests.apiserver.apiextensions.customresourcedefinitions.examples import of_spec
from tests.apiserver.kinds.hooks import UNCHECKED, UncheckedExpressions

OBJECT = {"type": "object"}
EMBEDDED = "x-kubernetes-embedded-resource"
ITEMS_LIST = 's.items: Invalid value: {"Schema":null,"'
PRESERVE = "x-kubernetes-preserve-unknown-fields"


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (OBJECT, []),
        ({}, ["s.type: Required value: must not be empty at the root"]),
        ({"type": "array"}, [
            "s.items: Required value: must be specified",
            's.type: Invalid value: "array": must be object at the root',
        ]),
        ({**OBJECT, "additionalProperties": OBJECT},
         ["s.additionalProperties: Forbidden: must not be used at the root"]),
        (of_spec({"type": "array", "items": {}}),
         ["s.properties[spec].items.type: Required value: must not be empty for specified array"
          " items"]),
        (of_spec({PRESERVE: True}), []),
        (of_spec({"x-kubernetes-int-or-string": True,
                  "anyOf": [{"type": "integer"}, {"type": "string"}]}), []),
        (of_spec({"x-kubernetes-int-or-string": True,
                  "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"minLength": 1}],
                  }), []),
        (of_spec({"x-kubernetes-int-or-string": True, PRESERVE: True}),
         [f"s.properties[spec].{PRESERVE}: Invalid value: true: must be false if"
          " x-kubernetes-int-or-string is true"]),
        (of_spec({EMBEDDED: True, **OBJECT}),
         [f"s.properties[spec].properties: Required value: must not be empty if {EMBEDDED} is true"
          f" without {PRESERVE}"]),
        (of_spec({EMBEDDED: True, PRESERVE: True}),
         [f"s.properties[spec].type: Required value: must be object if {EMBEDDED} is true"]),
        ({**OBJECT, "properties": {"metadata": {**OBJECT, "properties": {"name": OBJECT}}}}, []),
        ({**OBJECT, "properties": {"metadata": {**OBJECT, "properties": {"labels": OBJECT}}}},
         ["s.properties[metadata]: Forbidden: must not specify anything other than name and"
          " generateName, but metadata is implicitly specified"]),
        ({**OBJECT, "properties": {"kind": OBJECT}},
         ['s.properties[kind].type: Invalid value: "object": must be string']),
        (of_spec({**OBJECT, "not": {"required": ["a"], "nullable": True}}),
         ["s.properties[spec].not.nullable: Forbidden: must be false to be structural"]),
        ({**OBJECT, "not": {"nullable": True, "default": False, "title": "t"}}, [
            "s.not.default: Forbidden: must be undefined to be structural",
            "s.not.nullable: Forbidden: must be false to be structural",
            "s.not.title: Forbidden: must be empty to be structural",
        ]),
        ({**OBJECT, "oneOf": [{"properties": {"a": {"minLength": 1}}}]},
         ["s.properties[a]: Required value: because it is defined in s.oneOf[0].properties[a]"]),
        ({**OBJECT, "anyOf": [{"properties": {"metadata": {}}}],
          "properties": {"metadata": OBJECT}},
         ["s.anyOf[0].properties[metadata]: Forbidden: must not be specified in a nested context"]),
        (of_spec({"type": "string", "pattern": "*"}),
         ['s.properties[spec].pattern: Invalid value: "*": must be a valid regular expression, but'
          " isn't: error parsing regexp: missing argument to repetition operator: `*`"]),
    ],
)  # fmt: skip
def test_structure(schema: dict[str, Any], expected: list[str]) -> None:
    """Every value has one type, and nothing is said of values that have none."""
    assert [str(each) for each in structural_errors(schema, "s")] == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (of_spec({"type": "bogus"}),
         ['s.properties[spec].type: Unsupported value: "bogus": supported values: "array",'
          ' "boolean", "integer", "number", "object", "string"']),
        ({**OBJECT, "properties": {"metadata": {"default": {}}}},
         ["s.properties[metadata].default: Forbidden: must not be set in top-level metadata"]),
        ({**OBJECT, "$ref": ""}, ["s.$ref: Forbidden: $ref is not supported"]),
        ({**OBJECT, "id": "a", "definitions": {"b": {"uniqueItems": True}}}, [
            "s.id: Forbidden: id is not supported",
            "s.definitions: Forbidden: definitions is not supported",
            "s.definitions[b].uniqueItems: Forbidden: uniqueItems cannot be set to true since the"
            " runtime complexity becomes quadratic",
        ]),
        ({**OBJECT, "additionalProperties": {}, "properties": {"a": {}}},
         ["s.additionalProperties: Forbidden: additionalProperties and properties are mutual"
          " exclusive"]),
        ({"type": "string", "x-kubernetes-map-type": "a"}, [
            's.type: Invalid value: "string": must be object if x-kubernetes-map-type is specified',
            's.x-kubernetes-map-type: Unsupported value: "a": supported values: "atomic",'
            ' "granular"',
        ]),
        ({"type": "array", "items": OBJECT, "x-kubernetes-list-type": "set"},
         ["s.items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list"
          " with"
          " x-kubernetes-list-type=set"]),
        ({"type": "array", "items": [{}], "x-kubernetes-list-type": "map"}, [
            "s.items: Forbidden: items must be a schema object and not an array",
            "s.x-kubernetes-list-map-keys: Required value: must not be empty if"
            " x-kubernetes-list-type is map",
            ITEMS_LIST,
        ]),
        ({"type": "array", "x-kubernetes-list-type": "map",
          "x-kubernetes-list-map-keys": ["a", "a"],
          "items": {**OBJECT, "properties": {"a": {"type": "string", "nullable": True}}}}, [
            's.x-kubernetes-list-map-keys: Invalid value: ["a","a"]: must not contain duplicate'
            " entries",
            *["s.items.properties[a].default: Required value: this property is in"
              " x-kubernetes-list-map-keys, so it must have a default or be a required property",
              "s.items.properties[a].nullable: Forbidden: this property is in"
              " x-kubernetes-list-map-keys, so it cannot be nullable"] * 2,
        ]),
        ({**OBJECT, "x-kubernetes-validations": [{"rule": " "}, {"rule": "a\nb"}]}, [
            "s.x-kubernetes-validations[0].rule: Required value: rule is not specified",
            "s.x-kubernetes-validations[1].message: Required value: message must be specified if"
            " rule contains line breaks",
        ]),
        ({**OBJECT, "x-kubernetes-validations": [{"rule": "a", "fieldPath": ".b"}]},
         ['s.x-kubernetes-validations[0].fieldPath: Invalid value: ".b": must be a valid path']),
    ],
)  # fmt: skip
def test_rules(schema: dict[str, Any], expected: list[str]) -> None:
    """What is refused in any schema."""
    found = [str(each) for each in check_schema(schema, "s", Options(UNCHECKED)).errors]
    assert [
        each[: len(ITEMS_LIST)] if each.startswith(ITEMS_LIST) else each for each in found
    ] == expected


class Costly(UncheckedExpressions):
    """Finds that rules cost much, and those about `bad` wrong."""

    @override
    def check_rule(self, rule: SchemaRule) -> RuleFindings:
        """Return what is known by the text of the rule."""
        text = rule.schema["x-kubernetes-validations"][rule.position]["rule"]
        problem = Problem(INVALID, "compilation failed") if text == "bad" else None
        return RuleFindings(problem, cost=6_000_000, uses_old_self="oldSelf" in text)


def costly(schema: dict[str, Any], **options: Any) -> list[str]:
    """Return what is wrong with rules that cost much."""
    checked = check_schema(schema, "s", Options(Costly(), **options))
    return [str(each) for each in checked.errors + checked.budget.errors("s")]


def ruled(text: str, **more: Any) -> dict[str, Any]:
    """Return a schema with a rule."""
    return {**OBJECT, "x-kubernetes-validations": [{"rule": text}], **more}


def test_costs() -> None:
    """Each rule may cost so much for all values that there may be, and all together."""
    assert costly(of_spec(ruled("a"))) == []
    listed = of_spec({"type": "array", "maxItems": 2, "items": ruled("a")})
    (message,) = costly(listed)
    where = "s.properties[spec].items.x-kubernetes-validations[0].rule: Forbidden: "
    assert message.startswith(f"{where}estimated rule cost exceeds budget by factor of 1.200000x ")
    assert costly(listed, limits_rules=False) == []
    listed["properties"]["spec"]["maxItems"] = 1000
    first, second, third = costly(listed)
    assert "factor of more than 100x (" in first
    assert second == (
        f"{where}contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3"
        " schema"
    )
    assert third.startswith(
        "s: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3"
        " schema exceeds budget by factor of 60.0x ("
    )


def test_rules_that_do_not_compile() -> None:
    """The whole rule is shown; rules are not compiled when something else is wrong."""
    (message,) = costly(ruled("bad"))
    assert message == (
        's.x-kubernetes-validations[0].rule: Invalid value: {"Rule":"bad","Message":"",'
        '"MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation'
        " failed"
    )
    assert costly(ruled("bad", id="x")) == ["s.id: Forbidden: id is not supported"]
    assert costly(ruled("bad"), compiles_rules=False) == []
    assert costly({**OBJECT, "not": ruled("bad")}) == []


def test_transition_rules() -> None:
    """Values must be told from older ones for them."""
    items = of_spec({"type": "array", "maxItems": 1, "items": ruled("oldSelf")})
    assert costly(items) == [
        's.properties[spec].items.x-kubernetes-validations[0].rule: Invalid value: "oldSelf":'
        " oldSelf cannot be used on the uncorrelatable portion of the schema within"
        " s.properties[spec]"
    ]
    assert costly(of_spec(ruled("oldSelf"))) == []
    rule = {"rule": "a", "optionalOldSelf": True}
    assert costly({**OBJECT, "x-kubernetes-validations": [rule]}) == [
        "s.x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if"
        " oldSelf is not used in rule"
    ]


@pytest.mark.parametrize(
    ("schema", "cardinality", "expected"),
    [
        ({"type": "array", "maxItems": 10}, 3, 30),
        ({"type": "array"}, 3, None),
        ({"type": "array", "maxItems": -1}, 3, 0),
        ({"type": "object", "additionalProperties": {}, "maxProperties": 2}, 3, 6),
        ({"type": "object", "maxProperties": 2}, 3, 3),
        ({"type": "string"}, None, None),
        ({"type": "array", "maxItems": 2**40}, 2**40, 2**64 - 1),
    ],
)
def test_cardinality(schema: dict[str, Any], cardinality: int | None, expected: int | None) -> None:
    """Lists and maps may hold as many values as their limits say."""
    assert more_values(schema, cardinality) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (of_spec({"type": "integer", "default": 1}), []),
        (of_spec({"type": "integer", "default": "a"}),
         ['s.properties[spec].default: Invalid value: "string":  in body must be of type integer:'
          ' "string"']),
        (of_spec({**OBJECT, "default": {"a": 1}}),
         ['s.properties[spec].default: Invalid value: {"a":1}: must not have unknown fields']),
        (of_spec({**OBJECT, PRESERVE: True, "default": {"a": 1}}), []),
        (of_spec({**OBJECT, EMBEDDED: True, "properties": {}, "default": {"metadata": {}}}), [
            "s.properties[spec].default.apiVersion: Required value",
            "s.properties[spec].default.kind: Required value",
        ]),
        (of_spec({**OBJECT, EMBEDDED: True,
                  "default": {"apiVersion": "a/b/c", "kind": "", "metadata": {"name": "a/b"}}}), [
            's.properties[spec].default.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion'
            " string: a/b/c",
            's.properties[spec].default.kind: Invalid value: "": must not be empty',
            's.properties[spec].default.metadata.name: Invalid value: "a/b": may not contain \'/\'',
        ]),
        (of_spec({**OBJECT, EMBEDDED: True, "default": {"kind": 1}}),
         ["s.properties[spec].default.kind: Invalid value: 1: must be a string"]),
        (of_spec({**OBJECT, EMBEDDED: True, "default": {"metadata": 1}}),
         ["s.properties[spec].default.metadata: Invalid value: 1: json: cannot unmarshal number"
          " into"
          " Go value of type v1.ObjectMeta"]),
        (of_spec({**OBJECT, EMBEDDED: True, "properties": {
            "metadata": {**OBJECT, "properties": {"name": {"type": "string", "default": "a/b"}}}}}),
         ['s.properties[spec].properties[metadata].properties[name].default: Invalid value: "a/b":'
          ' must result in valid metadata: metadata.name: Invalid value: "a/b": may not contain'
          " '/'"]),
        (of_spec({"type": "array", "items": {"type": "string", "maxLength": 1, "default": "ab"}}),
         ["s.properties[spec].items.default: Too long: may not be more than 1 byte"]),
    ],
)  # fmt: skip
def test_defaults(schema: dict[str, Any], expected: list[str]) -> None:
    """They are values of their schema, without anything that it does not know."""
    assert [str(each) for each in default_errors(schema, "s", expressions=UNCHECKED)] == expected


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"rule": "self > 1"}, []),
        ({"rule": "self > 2", "message": "small"},
         ["s.properties[spec].default: Invalid value: 2: small"]),
        ({"rule": "self > oldSelf"},
         ["s.properties[spec].default: Invalid value: 2: failed rule: self > oldSelf"]),
        ({"rule": "oldSelf.hasValue()", "optionalOldSelf": True},
         ["s.properties[spec].default: Invalid value: 2: failed rule: oldSelf.hasValue()"]),
        ({"rule": "self.n > 1"},
         ['s.properties[spec].default: Invalid value: "integer": rule compile error: compilation'
          " failed: ERROR: <input>:1:5: type 'int' does not support field selection\n"
          " | self.n > 1\n | ....^"]),
    ],
)  # fmt: skip
def test_defaults_keep_the_rules(rule: dict[str, Any], expected: list[str]) -> None:
    """As new values and in place of themselves."""
    schema = of_spec({"type": "integer", "default": 2, "x-kubernetes-validations": [rule]})
    assert [str(each) for each in default_errors(schema, "s", expressions=CEL)] == expected


def test_defaults_that_were_taken_before() -> None:
    """They may have unknown fields."""
    schema = of_spec({**OBJECT, "default": {"a": 1}})
    assert default_errors(schema, "s", needs_pruned=False, expressions=UNCHECKED) == []


def test_pruning() -> None:
    """What is not known goes, but for the metadata of resources and below what preserves it."""
    schema = {
        "properties": {
            "a": {"items": {"properties": {"b": {}}}},
            "k": {PRESERVE: True, "properties": {"x": {"properties": {}}}},
            "m": {"additionalProperties": {"properties": {"y": {}}}},
            "e": {EMBEDDED: True},
        }
    }
    value = {
        "a": [{"b": 1, "c": 2}, 3],
        "k": {"u": {"v": 1}, "x": {"z": 1}},
        "m": {"one": {"y": 1, "z": 2}},
        "e": {"apiVersion": "v1", "kind": "K", "metadata": {"q": 1}, "spec": {}},
        "metadata": {"name": "n"},
        "z": 1,
    }
    prune(value, schema, is_resource=True)
    assert value == {
        "a": [{"b": 1}, 3],
        "k": {"u": {"v": 1}, "x": {}},
        "m": {"one": {"y": 1}},
        "e": {"apiVersion": "v1", "kind": "K", "metadata": {"q": 1}},
        "metadata": {"name": "n"},
    }


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".spec", "spec"),
        (".spec.m.k", "spec.m[k]"),
        (".spec.m['a.b\\'c']", "spec.m[a.b'c]"),
        ("['spec']", "spec"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    """They go through properties and keys of maps."""
    schema = of_spec({"properties": {"m": {"additionalProperties": {"type": "string"}}}})
    assert find_field(path, schema).path == expected


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("spec", "expected [ or . but got: spec"),
        (".", "unexpected end of JSON path"),
        (".bogus", "does not refer to a valid field"),
        (".spec.a.b", "does not refer to a valid field"),
        ("[spec]", "expected single quoted string but got spec"),
        ("['spec'", "unexpected end of JSON path"),
        ("['spec'.", "expected ] but got ."),
        ("['\\q']", "invalid string literal: invalid escape char \\q"),
    ],
)
def test_bad_paths(path: str, message: str) -> None:
    """They are told in words."""
    with pytest.raises(PathError) as caught:
        find_field(path, of_spec({"properties": {"a": {}}}))
    assert str(caught.value) == message


def test_walking() -> None:
    """Schemas are everywhere in schemas."""
    schema = {
        "items": [{"title": "a"}],
        "not": {"title": "b"},
        "allOf": [{"title": "c"}],
        "properties": {"x": {"items": {"title": "d"}}},
        "additionalProperties": {"title": "e"},
        "dependencies": {"x": ["y"], "z": {"title": "f"}},
    }
    assert sorted(each["title"] for each in everywhere(schema) if "title" in each) == list("abcdef")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, ""),
        ({"$schema": "x"}, "OpenAPIV3Schema 'schema' is not supported"),
        ({"$ref": ""}, ""),
        ({"allOf": [{"id": "a"}]}, "OpenAPIV3Schema 'id' is not supported"),
        ({"items": [{}]}, "OpenAPIV3Schema 'items' must be a schema, but is an array"),
        (of_spec({PRESERVE: False}),
         f"internal error: '{PRESERVE}' must be true or undefined"),
    ],
)  # fmt: skip
def test_unsupported(schema: dict[str, Any], expected: str) -> None:
    """Some schemas cannot be made structural at all."""
    assert unsupported(schema) == expected
