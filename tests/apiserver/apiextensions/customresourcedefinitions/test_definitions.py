"""What CustomResourceDefinitions may be, and what of a stored one may stay."""

from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.apiextensions.customresourcedefinitions.strategy import (
    CUSTOM_RESOURCE_DEFINITIONS as CRDS,
)
from tests.apiserver.apiextensions.customresourcedefinitions.examples import (
    SCHEMA,
    definition,
    established,
    of_spec,
    versions,
)
from tests.apiserver.kinds.hooks import (
    cells_of,
    change_refusals,
    changed,
    prepared_object,
    refusals,
    warnings_of,
    warnings_of_change,
)

APPROVAL = "metadata.annotations[api-approved.kubernetes.io]"
SEE = "see https://github.com/kubernetes/enhancements/pull/1111"
NEEDED = 'protected groups must have approval annotation "api-approved.kubernetes.io"'


def test_defaults() -> None:
    """Names follow the kind; objects are not converted; the stored version is noted."""
    found = prepared_object(CRDS, definition())
    assert found["spec"]["names"] == {
        "plural": "foos",
        "kind": "Foo",
        "singular": "foo",
        "listKind": "FooList",
    }
    assert found["spec"]["conversion"] == {"strategy": "None"}
    assert found["status"] == {"storedVersions": ["v1"]}
    assert found["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"group": "example"}, [
            'metadata.name: Invalid value: "foos.example.com": must be'
            ' spec.names.plural+"."+spec.group',
            'spec.group: Invalid value: "example": should be a domain with at least one dot',
        ]),
        ({"scope": "World"},
         ['spec.scope: Unsupported value: "World": supported values: "Cluster", "Namespaced"']),
        ({"names": {"plural": "foos"}}, [
            "spec.names.singular: Required value",
            "spec.names.kind: Required value",
            "spec.names.listKind: Required value",
        ]),
        ({"names": {"plural": "foos", "kind": "Foo", "listKind": "Foo"}},
         ['spec.names.listKind: Invalid value: "Foo": kind and listKind may not be the same']),
        ({"preserveUnknownFields": True},
         ["spec.preserveUnknownFields: Invalid value: true: cannot set to true, set"
          " x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"]),
        ({"conversion": {"strategy": "Webhook"}}, [
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to"
            " Webhook",
            "spec.conversion.conversionReviewVersions: Required value",
        ]),
        ({"conversion": {"strategy": "Webhook", "webhook": {
            "clientConfig": {"url": "http://h"}, "conversionReviewVersions": ["v9", "v9"]}}}, [
            "spec.conversion.webhookClientConfig.url: Invalid value: \"http\": 'https' is the only"
            " allowed URL scheme; desired format: https://host[/path]",
            'spec.conversion.conversionReviewVersions[1]: Invalid value: "v9": duplicate version',
            'spec.conversion.conversionReviewVersions: Invalid value: ["v9","v9"]: must include at'
            " least one of v1, v1beta1",
        ]),
        ({"conversion": {"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}}},
         ["spec.conversion.conversionReviewVersions: Forbidden: should not be set when strategy is"
          " not set to Webhook"]),
    ],
)  # fmt: skip
def test_specs(spec: dict[str, Any], expected: list[str]) -> None:
    """Groups, names, scopes and conversion."""
    assert refusals(CRDS, definition(**spec)) == expected


def with_version(**members: Any) -> Object:
    """Return a definition whose version has more members."""
    return definition(versions=[{**versions("v1")[0], **members}])


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"schema": None}, ["spec.versions[0].schema.openAPIV3Schema: Required value"]),
        ({"deprecationWarning": "x"},
         ['spec.versions[0].deprecationWarning: Invalid value: "x": can only be set for deprecated'
          " versions"]),
        ({"deprecated": True, "deprecationWarning": "ü\n"},
         ['spec.versions[0].deprecationWarning: Invalid value: "ü\\n": must only contain printable'
          " UTF-8 characters; non-printable character found at index 2"]),
        ({"additionalPrinterColumns": [{"type": "text", "format": "a", "jsonPath": "x"}]}, [
            "spec.additionalPrinterColumns[0].name: Required value",
            'spec.additionalPrinterColumns[0].type: Invalid value: "text": must be one of'
            " boolean,date,integer,number,string",
            'spec.additionalPrinterColumns[0].format: Invalid value: "a": must be one of'
            " byte,date,date-time,double,float,int32,int64,password",
            'spec.additionalPrinterColumns[0].JSONPath: Invalid value: "x": must be a simple json'
            " path starting with .",
        ]),
        ({"subresources": {"scale": {"specReplicasPath": ".a", "labelSelectorPath": ".b"}}}, [
            'spec.subresources.scale.specReplicasPath: Invalid value: ".a": should be a json path'
            " under .spec",
            "spec.subresources.scale.statusReplicasPath: Required value",
            'spec.subresources.scale.labelSelectorPath: Invalid value: ".b": should be a json path'
            " under either .spec or .status",
        ]),
        ({"selectableFields": [{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.a"},
                               {"jsonPath": ".spec"}, {"jsonPath": ".x"}, {}]}, [
            'spec.selectableFields[1].jsonPath: Duplicate value: ".spec.a"',
            'spec.selectableFields[2].jsonPath: Invalid value: ".spec": must point to a field of'
             ' type'
            " string, boolean or integer. Enum string fields and strings with formats are allowed.",
            'spec.selectableFields[3].jsonPath: Invalid value: ".x": is an invalid path: does not'
            " refer to a valid field",
            "spec.selectableFields[4].jsonPath: Required value",
        ]),
        ({"schema": {"openAPIV3Schema": {**SCHEMA, "nullable": True}}},
         ["spec.validation.openAPIV3Schema.nullable: Forbidden: nullable cannot be true at the root"
          ]),
        ({"schema": {"openAPIV3Schema": {**SCHEMA, "$schema": "x"}}},
         ["spec.validation.openAPIV3Schema: Invalid value: \"\": OpenAPIV3Schema 'schema' is not"
          " supported"]),
        ({"schema": {"openAPIV3Schema": {**SCHEMA, "type": "array"}},
          "subresources": {"status": {}}},
         [
            'spec.validation.openAPIV3Schema.type: Invalid value: "array": only "object" is allowed'
            " as the type at the root of the schema if the status subresource is enabled",
            "spec.validation.openAPIV3Schema.items: Required value: must be specified",
            'spec.validation.openAPIV3Schema.type: Invalid value: "array": must be object at the'
            " root",
         ]),
    ],
)  # fmt: skip
def test_versions(members: dict[str, Any], expected: list[str]) -> None:
    """What all versions share is told of the whole."""
    assert refusals(CRDS, with_version(**members)) == expected


def test_fields_at_the_root() -> None:
    """A status of its own allows few of them."""
    schema = {**SCHEMA, "maxProperties": 3}
    obj = with_version(schema={"openAPIV3Schema": schema}, subresources={"status": {}})
    (message,) = refusals(CRDS, obj)
    assert message.startswith('spec.validation.openAPIV3Schema: Invalid value: {"ID":"",')
    assert "]: only [Description Type " not in message
    assert " XValidations] fields are allowed at the root of the schema if the status" in message


def test_versions_that_differ() -> None:
    """They are told one by one, and printed in full."""
    two = versions("v1", "v1")
    two[1]["schema"]["openAPIV3Schema"] = {}
    messages = refusals(CRDS, definition(versions=two))
    path = "spec.versions[1].schema.openAPIV3Schema.type"
    assert messages[0] == f"{path}: Required value: must not be empty at the root"
    assert messages[1].startswith('spec.versions: Invalid value: [{"Name":"v1",')
    assert messages[1].endswith("}]: must contain unique version names")
    assert messages[2].endswith("}]: must have exactly one version marked as storage version")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, [f"{APPROVAL}: Required value: {NEEDED}, {SEE}"]),
        ("x", [f'{APPROVAL}: Invalid value: "x": {NEEDED} with either a URL or a reason starting'
               f' with "unapproved", {SEE}']),
        ("unapproved, a test", []),
        ("https://github.com/kubernetes/kubernetes/pull/78458", []),
    ],
)  # fmt: skip
def test_approval(text: str | None, expected: list[str]) -> None:
    """Kinds in groups of Kubernetes need one."""
    obj = definition(group="x.k8s.io")
    obj["metadata"]["name"] = "foos.x.k8s.io"
    if text is not None:
        obj["metadata"]["annotations"] = {"api-approved.kubernetes.io": text}
    assert refusals(CRDS, obj) == expected


def test_changes() -> None:
    """Group and plural never change, scope and kind not once the kind is served."""
    old = established(definition())
    new = definition(group="example.org", scope="Cluster", names={"plural": "bars", "kind": "Bar"})
    immutable = "field is immutable"
    assert change_refusals(CRDS, new, old) == [
        f'spec.scope: Invalid value: "Cluster": {immutable}',
        f'spec.names.kind: Invalid value: "Bar": {immutable}',
        f'spec.group: Invalid value: "example.org": {immutable}',
        f'spec.names.plural: Invalid value: "bars": {immutable}',
    ]
    old["status"]["conditions"] = []
    assert len(change_refusals(CRDS, new, old)) == 2


def test_stored_versions() -> None:
    """A version that objects were stored in stays."""
    old = established(definition(versions=versions("v1", "v2")))
    new = definition(versions=versions("v1", "v2", storage="v2"))
    assert changed(CRDS, new, old)["status"]["storedVersions"] == ["v1", "v2"]
    (message,) = change_refusals(CRDS, definition(versions=versions("v2")), old)
    assert message.startswith(
        'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was'
    )
    assert refusals(CRDS, definition(versions=[{**versions("v1")[0], "storage": False}])) != []


def test_generation() -> None:
    """It counts changes of the spec; the status is others' part."""
    old = established(prepared_object(CRDS, definition()))
    new = {**definition(), "status": {}}
    new["metadata"]["generation"] = 1
    assert changed(CRDS, new, old)["metadata"]["generation"] == 1
    assert changed(CRDS, new, old)["status"] == old["status"]
    new["spec"]["names"]["shortNames"] = ["f"]
    assert changed(CRDS, new, old)["metadata"]["generation"] == 2
    status = CRDS.subresources["status"]
    assert changed(status, new, old)["spec"] == old["spec"]
    new["status"] = {"acceptedNames": {"plural": "A"}, "storedVersions": []}
    assert [each[:36] for each in change_refusals(status, new, old)] == [
        "status.acceptedNames.plural: Invalid"
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "bogus"},
        {"type": "array"},
        {"type": "array", "x-kubernetes-list-type": "set",
         "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"],
         "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        {"type": "object", "default": {"unknown": 1}},
    ],
)  # fmt: skip
def test_what_was_taken_before(schema: dict[str, Any]) -> None:
    """It may stay when something else changes, though no new one may have it."""
    bad = definition(of_spec(schema))
    assert refusals(CRDS, bad) != []
    new = definition(of_spec(schema))
    new["spec"]["names"]["shortNames"] = ["f"]
    if schema.get("type") in {"bogus", "array"} and len(schema) == 1:
        # What is pruned must be structural all the same.
        bad["spec"]["preserveUnknownFields"] = new["spec"]["preserveUnknownFields"] = True
    assert change_refusals(CRDS, new, established(bad)) == []


def test_bundles() -> None:
    """Only those of kinds that are served must be good, and only if they were before."""
    webhook = {
        "clientConfig": {"url": "https://h", "caBundle": "YQ=="},
        "conversionReviewVersions": ["v1"],
    }
    bad = definition(conversion={"strategy": "Webhook", "webhook": webhook})
    assert refusals(CRDS, bad) == []
    assert change_refusals(CRDS, bad, established(bad)) == []
    assert change_refusals(CRDS, bad, established(definition())) == [
        'spec.conversion.webhookClientConfig.caBundle: Invalid value: "YQ==": unable to load root'
        " certificates: unable to parse bytes as PEM block"
    ]


def test_many_selectable_fields() -> None:
    """No more than eight, but for what was there."""
    names = [f"f{number}" for number in range(9)]
    fields = {name: {"type": "string"} for name in names}
    version = {
        **versions("v1")[0],
        "schema": {"openAPIV3Schema": of_spec({"type": "object", "properties": fields})},
        "selectableFields": [{"jsonPath": f".spec.{name}"} for name in names],
    }
    obj = definition(versions=[version])
    assert refusals(CRDS, obj) == ["spec.selectableFields: Too many: 9: must have at most 8 items"]
    assert change_refusals(CRDS, obj, established(obj)) == []


def test_warnings() -> None:
    """Formats nobody checks, and sets of structs; what was told before is not told again."""
    schema = of_spec({
        "type": "array",
        "x-kubernetes-list-type": "set",
        "items": {"type": "object", "x-kubernetes-map-type": "atomic"},
        "format": "bogus",
    })  # fmt: skip
    obj = definition(schema)
    warnings = [
        'unrecognized format "bogus"',
        'x-kubernetes-list-type: set for items of type "object" is not supported by server-side'
        " apply or CEL validation rules",
    ]
    assert warnings_of(CRDS, obj) == warnings
    assert warnings_of_change(CRDS, obj, definition()) == warnings
    assert warnings_of_change(CRDS, obj, obj) == []


def test_cells() -> None:
    """Served versions, sorted; whether the kind is served."""
    obj = established(definition(versions=versions("v2", "v1")))
    obj["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    obj["spec"]["names"]["shortNames"] = ["f", "fo"]
    assert cells_of(CRDS, obj) == [
        "foos.example.com",
        "Namespaced",
        "v1,v2(storage)",
        "2026-01-01T00:00:00Z",
        "example.com",
        "Foo",
        "f,fo",
        True,
    ]
