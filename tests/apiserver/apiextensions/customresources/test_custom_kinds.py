"""What is made of a definition: defaults, pruning, checks, columns, names, versions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.decode import decode
from kvstack.apimachinery.schema.openapi.descriptions import Descriptions
from kvstack.apiserver.apiextensions.customresourcedefinitions.conditions import (
    ESTABLISHED,
    NAMES_ACCEPTED,
    is_true,
    set_condition,
    with_names,
)
from kvstack.apiserver.apiextensions.customresourcedefinitions.pruning import prune
from kvstack.apiserver.apiextensions.customresourcedefinitions.values import ValueSchema
from kvstack.apiserver.apiextensions.customresources.columns import cells_of, columns_of
from kvstack.apiserver.apiextensions.customresources.defaulting import fill_defaults
from kvstack.apiserver.apiextensions.customresources.lists import has_unique_lists, list_errors
from kvstack.apiserver.apiextensions.customresources.paths import Finder
from kvstack.apiserver.apiextensions.customresources.publishing import component_name, components_of
from kvstack.apiserver.apiextensions.customresources.rows import rows_of
from kvstack.apiserver.apiextensions.customresources.scales import scaling_of
from kvstack.apiserver.apiextensions.customresources.types import type_of
from kvstack.apiserver.apiextensions.customresources.versions import version_rank
from kvstack.apiserver.kinds.strategy import Context

NOW = "2026-01-02T03:04:05Z"
TEXT: Object = {"type": "string"}
WITHIN: Object = {"type": "object", "properties": {"b": {**TEXT, "default": "d"}}}


def schema(**spec: Object) -> Object:
    """Return the schema of a resource with such a spec."""
    return {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": spec}},
    }


def definition(*versions: Object, plural: str = "tabs", kind: str = "Tab", **names: Any) -> Object:
    """Return a definition as it is stored, without conditions."""
    return {
        "metadata": {"name": f"{plural}.e.com"},
        "spec": {
            "group": "e.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "listKind": f"{kind}List", **names},
            "versions": list(versions) or [version("v1", schema(n={"type": "integer"}))],
        },
        "status": {"storedVersions": ["v1"]},
    }


def version(name: str, openapi: Object, **more: Any) -> Object:
    """Return a version that is served, and stored if it is v1."""
    return {
        "name": name,
        "served": True,
        "storage": name == "v1",
        "schema": {"openAPIV3Schema": openapi},
        **more,
    }


def rows(found: Object) -> dict[str, Any]:
    """Return the rows of a definition by version."""
    return {each.version: each for each in rows_of(with_names(found, [], NOW))}


@pytest.mark.parametrize(
    ("value", "property_", "filled"),
    [
        ({}, {**TEXT, "default": "d"}, {"a": "d"}),
        ({"a": None}, {**TEXT, "default": "d"}, {"a": "d"}),
        ({"a": None}, TEXT, {}),
        ({"a": None}, {**TEXT, "nullable": True, "default": "d"}, {"a": None}),
        ({"a": ""}, {**TEXT, "default": "d"}, {"a": ""}),
        ({}, WITHIN, {}),
        ({"a": {}}, WITHIN, {"a": {"b": "d"}}),
        ({"a": [None]}, {"type": "array", "items": {**TEXT, "default": "d"}}, {"a": ["d"]}),
        ({"a": {"x": None}}, {"type": "object", "additionalProperties": TEXT}, {"a": {}}),
        (
            {"a": {"x": {}}},
            {"type": "object", "additionalProperties": WITHIN},
            {"a": {"x": {"b": "d"}}},
        ),
    ],
)  # fmt: skip
def test_defaults_replace_what_is_missing_or_null(
    value: Object, property_: Object, filled: Object
) -> None:
    fill_defaults(value, {"type": "object", "properties": {"a": property_}})
    assert value == filled


def test_defaults_are_copied() -> None:
    """Objects do not share what a schema holds."""
    holder = {"type": "object", "properties": {"a": {"type": "object", "default": {"b": []}}}}
    one: Object = {}
    fill_defaults(one, holder)
    one["a"]["b"].append(1)
    other: Object = {}
    fill_defaults(other, holder)
    assert other == {"a": {"b": []}}


def test_pruning_tells_the_paths_of_what_it_drops() -> None:
    openapi = schema(
        items={"type": "array", "items": {"type": "object", "properties": {"a": TEXT}}},
        map={"type": "object", "additionalProperties": {"type": "object"}},
        free={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    )
    value = {
        "metadata": {"name": "x"},
        "top": 1,
        "spec": {"items": [{"a": "", "b": 1}], "map": {"k": {"z": 1}}, "free": {"any": 1}, "no": 1},
    }
    dropped: list[str] = []
    prune(value, openapi, is_resource=True, dropped=dropped)
    assert sorted(dropped) == ["spec.items[0].b", "spec.map.k.z", "spec.no", "top"]
    assert value == {
        "metadata": {"name": "x"},
        "spec": {"items": [{"a": ""}], "map": {"k": {}}, "free": {"any": 1}},
    }


def test_decoding_checks_the_metadata_and_drops_what_is_unknown() -> None:
    type_ = type_of(schema(n={"type": "number"}), "Tab")
    given_ = {
        "kind": "Tab",
        "metadata": {"name": "x", "creationTimestamp": None, "no": 1},
        "spec": {"n": 2.0, "z": 1},
    }
    found = decode(given_, type_)
    assert found.obj == {"kind": "Tab", "metadata": {"name": "x"}, "spec": {"n": 2}}
    assert type(found.obj["spec"]["n"]) is int
    assert found.unknown == ['unknown field "metadata.no"', 'unknown field "spec.z"']
    assert given_["spec"] == {"n": 2.0, "z": 1}, "the given object stays as it is"
    with pytest.raises(ValueError, match="labels"):
        decode({"metadata": {"labels": {"a": 1}}}, type_)


def test_items_of_sets_and_maps_are_reported_once() -> None:
    openapi = {
        "type": "object",
        "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
            "map": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": TEXT}},
            },
            "plain": {"type": "array", "items": TEXT},
        },
    }
    assert has_unique_lists(openapi)
    assert not has_unique_lists(schema(a=TEXT))
    value = {
        "set": ["a", "b", "a", "a"],
        "map": [{"k": "1", "v": 1}, {"k": "1", "v": 2}, {"v": 3}],
        "plain": ["a", "a"],
    }
    assert [str(each) for each in list_errors(value, openapi, "")] == [
        'set[2]: Duplicate value: "a"',
        'map[1]: Duplicate value: {"k":"1"}',
    ]


def test_columns_show_values_as_their_type_says() -> None:
    columns = [
        *(("string", f".spec.{each}") for each in ("s", "o", "b", "null")),
        *(("integer", f".spec.{each}") for each in ("f", "s")),
        ("number", ".spec.f"),
        ("boolean", ".spec.b"),
        *(("date", f".spec.{each}") for each in ("t", "s")),
        *(("string", f".spec.{each}") for each in ("no", "l[1].x", "l[?(@.x=='p')].y")),
    ]
    found = {
        "additionalPrinterColumns": [
            {"name": path, "type": type_, "jsonPath": path} for type_, path in columns
        ]
    }
    obj = {
        "metadata": {"name": "x"},
        "spec": {
            "s": "text",
            "o": {"b": 1, "a": [True]},
            "b": False,
            "null": None,
            "f": 2.5,
            "t": "2026-01-02T03:04:05Z",
            "l": [{"x": "p", "y": "q"}, {"x": 7}],
        },
    }
    assert cells_of(found)(obj, 1767323045 + 300) == [
        "x", "text", '{"a":[true],"b":1}', "false", "<no value>",
        2, None, 2.5, False, "5m", "<invalid>", None, "7", "q",
    ]  # fmt: skip
    assert [each.name for each in columns_of({})] == ["Name", "Age"]
    bad = {"additionalPrinterColumns": [{"name": "X", "type": "string", "jsonPath": ".a["}]}
    assert [each.name for each in columns_of(bad)] == ["Name", "Age"]


@given(
    st.recursive(st.integers() | st.text(), lambda x: st.dictionaries(st.text(), x), max_leaves=9)
)
def test_a_path_finds_the_value_that_is_there(value: Any) -> None:
    assert Finder(".spec.a").first({"spec": {"a": value}}) == value
    assert Finder(".spec.a[0]").first({"spec": {"a": [value]}}) == value
    assert Finder(".spec.b").first({"spec": {"a": value}}, "none") == "none"


def test_versions_are_ordered_by_stability_and_number() -> None:
    ordered = ["v10", "v2", "v0", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "foo1", "v1x"]
    assert sorted(set(ordered), key=version_rank) == ordered


def test_authorities_that_cannot_be_read_hold_a_definition_up() -> None:
    made = definition()
    client = {"url": "https://a", "caBundle": "bm8gY2VydGlmaWNhdGU="}
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    made["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    held = with_names(made, [], NOW)
    assert not is_true(held, ESTABLISHED)
    assert is_true(held, NAMES_ACCEPTED)
    [told] = [each for each in held["status"]["conditions"] if each["type"] == ESTABLISHED]
    assert (told["reason"], told["message"]) == (
        "InvalidCABundle",
        "The conversion webhook CABundle is invalid",
    )
    del held["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]
    assert is_true(with_names(held, [], NOW), ESTABLISHED)


def test_names_that_others_have_are_not_given() -> None:
    first = with_names(definition(singular="tab", shortNames=["t"]), [], NOW)
    assert is_true(first, ESTABLISHED)
    assert first["status"]["acceptedNames"] == {
        "plural": "tabs",
        "singular": "tab",
        "shortNames": ["t"],
        "kind": "Tab",
        "listKind": "TabList",
    }
    assert with_names(first, [first], "2027-01-01T00:00:00Z") == first, "nothing is new"
    bare = {**first, "status": {**first["status"], "conditions": []}}
    assert with_names(bare, [first], NOW) == bare, "names that are accepted are not told again"
    second = with_names(definition(plural="others", shortNames=["t"]), [first], NOW)
    assert not is_true(second, ESTABLISHED)
    conditions = {each["type"]: each for each in second["status"]["conditions"]}
    assert conditions[NAMES_ACCEPTED]["reason"] == "ListKindConflict"
    assert conditions[NAMES_ACCEPTED]["message"] == '"TabList" is already in use'
    assert conditions[ESTABLISHED]["reason"] == "NotAccepted"
    third = definition(plural="more", kind="More")
    third["spec"]["group"] = "other.com"
    assert is_true(with_names(third, [first, second], NOW), ESTABLISHED)


def test_the_time_of_a_condition_stays_while_its_value_does() -> None:
    status: Object = {}
    set_condition(status, "A", "True", "R", "m", NOW)
    set_condition(status, "A", "True", "Q", "n", "2030-01-01T00:00:00Z")
    assert [(e["reason"], e["lastTransitionTime"]) for e in status["conditions"]] == [("Q", NOW)]
    set_condition(status, "A", "False", "Q", "n", "2030-01-01T00:00:00Z")
    assert status["conditions"][0]["lastTransitionTime"] == "2030-01-01T00:00:00Z"


def test_what_was_wrong_before_may_stay() -> None:
    check = ValueSchema(
        {
            "type": "object",
            "properties": {
                "a": {"type": "string", "maxLength": 1},
                "m": {"type": "object", "required": ["y"], "properties": {"x": TEXT}},
                "l": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                    "items": {
                        "type": "object",
                        "properties": {"k": TEXT, "v": {"type": "integer", "maximum": 1}},
                    },
                },
            },
        }
    )
    old = {"a": "long", "m": {"x": "1"}, "l": [{"k": "a", "v": 9}]}
    assert len(check.errors(old, "")) == 3
    moved = {"a": "long", "m": {"x": "1"}, "l": [{"k": "b", "v": 1}, {"k": "a", "v": 9}]}
    assert check.errors(moved, "", old) == []
    worse = {"a": "other", "m": {"x": "2"}, "l": [{"k": "a", "v": 8}]}
    assert [each.field for each in check.errors(worse, "", old)] == ["a", "m.y", "l[0].v"]


def test_the_status_has_an_endpoint_of_its_own() -> None:
    row = rows(definition(version("v1", schema(n=TEXT), subresources={"status": {}})))["v1"]
    hooks, context = row.strategy, Context(NOW)
    new = {"metadata": {"name": "x"}, "spec": {"n": "1"}, "status": {"s": 1}}
    hooks.prepare_create(new, context)
    assert "status" not in new
    old = {**new, "metadata": {"name": "x", "generation": 4}, "status": {"s": 1}}
    changed = {"metadata": {"generation": 4}, "spec": {"n": "2"}, "status": {"s": 2}}
    hooks.prepare_update(changed, old, context)
    assert changed == {"metadata": {"generation": 5}, "spec": {"n": "2"}, "status": {"s": 1}}
    told = {
        "apiVersion": "e.com/v1", "kind": "Tab", "spec": {"n": "2"}, "status": {"s": 3},
        "metadata": {"labels": {"a": "b"}, "resourceVersion": "7", "generation": 4},
    }  # fmt: skip
    hooks.subresources["status"].prepare_update(told, old, context)
    assert told["status"] == {"s": 3}
    assert told["spec"] == {"n": "1"}
    assert told["metadata"] == {"name": "x", "generation": 4, "resourceVersion": "7"}


def test_nothing_is_made_of_a_definition_that_goes() -> None:
    found = with_names(definition(), [], NOW)
    set_condition(found["status"], "Terminating", "True", "R", "m", NOW)
    [row] = rows_of(found)
    with pytest.raises(ApiError, match="is terminating") as refusal:
        row.strategy.prepare_create({"metadata": {"name": "z"}}, Context(NOW))
    assert refusal.value.code == 403


def test_versions_have_rows_of_their_own() -> None:
    found = rows(
        definition(
            version("v1", schema(a=TEXT)),
            version("v2", schema(b=TEXT), selectableFields=[{"jsonPath": ".spec.b"}]),
            version("v1beta1", schema(a=TEXT), deprecated=True),
            version("v1alpha1", schema(a=TEXT), deprecated=True, deprecationWarning="old"),
            version("v0", schema(a=TEXT)) | {"served": False},
        )
    )
    assert [each for each in found if found[each].is_served] == ["v1", "v2", "v1beta1", "v1alpha1"]
    assert {each.storage.version for each in found.values()} == {"v1"}
    assert found["v1"].deprecation == ""
    assert found["v1beta1"].deprecation == "e.com/v1beta1 Tab is deprecated; use e.com/v2 Tab"
    assert found["v1alpha1"].deprecation == "old"
    assert found["v2"].selectable.resolve("spec.b") == "spec.b"
    assert found["v1"].selectable.resolve("spec.b") is None
    selectable = found["v2"].strategy.selectable
    assert selectable({"spec": {"b": "x"}}) == {"spec.b": "x"}
    assert selectable({}) == {"spec.b": ""}


def test_the_scale_is_where_the_definition_says() -> None:
    scaling = scaling_of(
        {
            "specReplicasPath": ".spec.size.n",
            "statusReplicasPath": ".status.n",
            "labelSelectorPath": ".status.s",
        }
    )
    obj: Object = {
        "metadata": {"name": "x"},
        "spec": {"size": {"n": 2}},
        "status": {"n": 1, "s": "a=b"},
    }
    scale = scaling.scale_of(obj)
    assert (scale["spec"], scale["status"]) == (
        {"replicas": 2},
        {"replicas": 1, "selector": "a=b"},
    )
    scaling.set_replicas(obj, {"spec": {"replicas": 5}})
    assert obj["spec"]["size"]["n"] == 5
    empty: Object = {"metadata": {"name": "x"}}
    assert scaling.read is not None
    with pytest.raises(ApiError, match="does not exist"):
        scaling.read(empty)
    assert scaling.scale_of(empty)["spec"] == {}
    assert scaling.before is not None
    with pytest.raises(
        ApiError, match=r'the spec replicas field "\.spec\.size\.n" cannot be empty'
    ):
        scaling.set_replicas(empty, scaling.before(empty))
    scaling.set_replicas(empty, {"spec": {}})
    assert empty["spec"] == {"size": {"n": 0}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"n": "2"}, ".spec.n accessor error: 2 is of the type string, expected int64"),
        ({"n": 2.5}, ".spec.n accessor error: 2.5 is of the type float64, expected int64"),
        ([1], ".spec.n accessor error: [1] is of the type []interface {}, expected map[string]i"),
    ],
)
def test_what_is_no_number_is_an_error(spec: object, message: str) -> None:
    scaling = scaling_of({"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"})
    with pytest.raises(ApiError) as raised:
        scaling.scale_of({"metadata": {"name": "x"}, "spec": spec})
    assert raised.value.status["message"].startswith(message)
    assert raised.value.code == 500


def test_components_say_what_every_resource_has() -> None:
    assert component_name("a.e.com", "v1", "Tab") == "com.e.a.v1.Tab"
    found = components_of("a.e.com", "v1", "Tab", "Tabs", schema(n=TEXT), Descriptions({}))
    own, listed = found["com.e.a.v1.Tab"], found["com.e.a.v1.TabList"]
    assert list(own["properties"]) == ["apiVersion", "kind", "metadata", "spec"]
    assert own["x-kubernetes-group-version-kind"] == [
        {"group": "a.e.com", "kind": "Tab", "version": "v1"}
    ]
    assert listed["properties"]["items"]["items"]["$ref"].endswith("com.e.a.v1.Tab")
    assert "x-kubernetes-selectable-fields" not in own
    found = components_of(
        "a.e.com", "v1", "Tab", "Tabs", schema(n=TEXT), Descriptions({}), ["spec.n"]
    )
    for each in found.values():
        assert each["x-kubernetes-selectable-fields"] == [{"fieldPath": "spec.n"}]


def test_fields_of_every_object_have_the_descriptions_that_there_are() -> None:
    fields = {"apiVersion": "A", "kind": "K", "metadata": "M"}
    given = Descriptions(
        {
            "io.k8s.api.core.v1.Pod": ("", fields),
            "io.k8s.api.core.v1.PodList": ("", {**fields, "metadata": "L"}),
        }
    )
    tab = schema(n=TEXT)
    found = components_of("a.e.com", "v1", "Tab", "Tabs", tab, given)
    own, listed = (found[name]["properties"] for name in ("com.e.a.v1.Tab", "com.e.a.v1.TabList"))
    assert [own[name]["description"] for name in fields] == ["A", "K", "M"]
    assert [listed[name]["description"] for name in fields] == ["A", "K", "L"]
    without = components_of("a.e.com", "v1", "Tab", "Tabs", tab, Descriptions({}))
    assert all(
        len(component["properties"][name]["description"]) > 10
        for component in without.values()
        for name in fields
    )
