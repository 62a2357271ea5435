"""OpenAPI documents, compared with those of a real server, and their forms."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from kvstack.apiserver.schema.load import load
from kvstack.apiserver.schema.openapi import v2
from kvstack.apiserver.schema.openapi.descriptions import Descriptions, load_descriptions
from kvstack.apiserver.schema.openapi.protobuf import encode_v2, encode_v3
from kvstack.apiserver.schema.openapi.v3 import Documents
from kvstack.apiserver.schema.protobuf.leaves import contents
from kvstack.apiserver.schema.resource import CUSTOM_PATCHES, Kind, Resource
from tests.apiserver.schema.recordings import lines

TABLE = load()
ROWS = [row for row in TABLE if "alpha" not in row.version and "beta" not in row.version]
DOCUMENTS = Documents(TABLE, ROWS, "1.37")


def without_descriptions(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: without_descriptions(each)
            for key, each in value.items()
            if key != "description" or not isinstance(each, str)
        }
    if isinstance(value, list):
        return [without_descriptions(each) for each in value]
    return value


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_documents_are_those_of_a_real_server() -> None:
    seen = 0
    for line in lines("openapi-v3"):
        if "names" in line:
            assert DOCUMENTS.names == line["names"]
        else:
            made = without_descriptions(DOCUMENTS.document(line["name"]))
            assert made == line["json"], line["name"]
            seen += 1
    assert seen == 4


def test_the_index_has_the_hashes_of_the_documents() -> None:
    documents = Documents(TABLE, [row for row in ROWS if row.group == "apps"], "1.37")
    paths = documents.index()["paths"]
    assert list(paths) == [
        ".well-known/openid-configuration",
        "api",
        "apis",
        "apis/apps",
        "apis/apps/v1",
        "openid/v1/jwks",
        "version",
    ]
    for name, entry in paths.items():
        digest = hashlib.sha512(documents.json(name)).hexdigest().upper()
        assert entry == {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"}
        assert json.loads(documents.json(name)) == documents.document(name)
    with pytest.raises(KeyError):
        documents.document("apis/batch/v1")


@pytest.mark.parametrize("name", DOCUMENTS.names)
def test_all_references_are_defined(name: str) -> None:
    document = DOCUMENTS.document(name)
    defined = document["components"].get("schemas", {})
    used = {each.removeprefix("#/components/schemas/") for each in references(document)}
    assert used <= set(defined)
    identities = [
        operation["operationId"]
        for item in document["paths"].values()
        for operation in item.values()
        if isinstance(operation, dict)
    ]
    assert len(set(identities)) == len(identities)


def test_patches_list_what_kubectl_looks_for() -> None:
    path = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    patch = DOCUMENTS.document("apis/apps/v1")["paths"][path]["patch"]
    names = {each["name"] for each in patch["parameters"]}
    assert {"dryRun", "fieldManager", "fieldValidation", "force"} <= names


def test_descriptions_are_there_for_explain() -> None:
    schemas = DOCUMENTS.document("api/v1")["components"]["schemas"]
    pod = schemas["io.k8s.api.core.v1.Pod"]
    assert pod["description"].startswith("Pod is a collection of containers")
    assert pod["properties"]["spec"]["allOf"][0]["$ref"].endswith("PodSpec")
    assert load_descriptions().get("io.example.Nothing") == ("", {})


def custom_row() -> Resource:
    pods = TABLE.resource("", "v1", "configmaps")
    assert pods is not None
    return Resource(
        group="example.com",
        version="v1",
        name="foos",
        kind=Kind("example.com", "v1", "Foo"),
        singular="foo",
        is_namespaced=False,
        verbs=("get", "list", "patch", "watch"),
        type=pods.type,
        patches=CUSTOM_PATCHES,
        is_custom=True,
    )


def test_custom_resources_have_no_protobuf_and_no_strategic_merge() -> None:
    table = load()
    row = custom_row()
    table.add(row)
    document = Documents(table, [row], "1.37", Descriptions({})).document("apis/example.com/v1")
    text = json.dumps({path: item for path, item in document["paths"].items() if "foos" in path})
    assert "protobuf" not in text
    assert "strategic" not in text
    assert "readExampleComV1Foo" in text


def test_version_two_says_the_same() -> None:
    made = v2.document(DOCUMENTS, "1.37")
    item = made["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]
    assert item["patch"]["consumes"] == [
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    ]
    assert item["put"]["parameters"][0] == {
        "in": "body",
        "name": "body",
        "required": True,
        "schema": {"$ref": "#/definitions/io.k8s.api.apps.v1.Deployment"},
    }
    spec = made["definitions"]["io.k8s.api.core.v1.ServiceSpec"]["properties"]
    assert spec["ports"]["x-kubernetes-patch-merge-key"] == "port"
    assert spec["type"]["type"] == "string"
    quantity = made["definitions"]["io.k8s.apimachinery.pkg.api.resource.Quantity"]
    assert quantity["type"] == "string"
    kinds = made["definitions"]["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"]
    assert {"group": "apps", "kind": "DeleteOptions", "version": "v1"} in kinds[
        "x-kubernetes-group-version-kind"
    ]
    used = {each.removeprefix("#/definitions/") for each in references(made)}
    assert used <= set(made["definitions"])


def test_protobuf_of_version_three() -> None:
    document = {
        "openapi": "3.0.0",
        "info": {"title": "K", "version": "1"},
        "paths": {"/a": {"get": {"responses": {"200": {"description": "OK"}}}}},
        "components": {
            "schemas": {
                "T": {
                    "type": "object",
                    "properties": {"a": {"$ref": "#/components/schemas/T"}},
                    "additionalProperties": True,
                    "x-kubernetes-map-type": "atomic",
                }
            }
        },
    }
    found = dict(contents(encode_v3(document), 0, len(encode_v3(document))))
    assert found[1] == b"3.0.0"
    assert found[2] == b"\x0a\x01K\x32\x011"
    assert b'\x0a\x15x-kubernetes-map-type\x12\x0b\x12\x09"atomic"\n' in found[5]
    assert b"\x12\x18\x0a\x16#/components/schemas/T" in found[5]
    with pytest.raises(ValueError, match="Schema has no member bogus"):
        encode_v3({"components": {"schemas": {"T": {"bogus": 1}}}})


@pytest.mark.parametrize("name", ["api/v1", "apis/apps/v1", "version"])
def test_whole_documents_have_a_protobuf_form(name: str) -> None:
    content = encode_v3(DOCUMENTS.document(name))
    numbers = [number for number, _ in contents(content, 0, len(content))]
    assert numbers == [1, 2, 4, 5]


def test_protobuf_of_version_two() -> None:
    content = encode_v2(v2.document(DOCUMENTS, "1.37"))
    numbers = [number for number, _ in contents(content, 0, len(content))]
    assert numbers == [1, 2, 8, 9, 12, 13]


def test_defaults_of_custom_resources_are_in_v2() -> None:
    """Also as protobuf, where a default is text of YAML."""
    schema = {"type": "string", "default": "red"}
    document = {"swagger": "2.0", "info": {}, "definitions": {"x": schema}, "paths": {}}
    assert b"red" in encode_v2(document)
