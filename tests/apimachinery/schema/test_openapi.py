"""OpenAPI documents, compared with those of a real server, and their forms."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.openapi import descriptions, v2
from kvstack.apimachinery.schema.openapi.descriptions import (
    Descriptions,
    load_descriptions,
    read_descriptions,
)
from kvstack.apimachinery.schema.openapi.protobuf import encode_v2, encode_v3
from kvstack.apimachinery.schema.openapi.v3 import Documents
from kvstack.apimachinery.schema.protobuf.leaves import contents
from kvstack.apimachinery.schema.resource import CUSTOM_PATCHES, Kind, Resource
from tests.apimachinery.schema.recordings import lines
from tests.apiserver.player.documents import (
    HAS_DESCRIPTIONS,
    openapi_structure,
    without_descriptions,
)

TABLE = load()
ROWS = [row for row in TABLE if "alpha" not in row.version and "beta" not in row.version]
DOCUMENTS = Documents(TABLE, ROWS, "1.37")


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
            made = openapi_structure(DOCUMENTS.document(line["name"]))
            assert made == openapi_structure(line["json"]), line["name"]
            seen += 1
    assert seen == 4


@pytest.mark.parametrize(
    ("document", "type_name", "field", "values"),
    [
        (
            "apis/discovery.k8s.io/v1",
            "io.k8s.api.discovery.v1.EndpointSlice",
            "addressType",
            ["FQDN", "IPv4", "IPv6"],
        ),
        (
            "apis/networking.k8s.io/v1",
            "io.k8s.api.networking.v1.HTTPIngressPath",
            "pathType",
            ["Exact", "ImplementationSpecific", "Prefix"],
        ),
        (
            "apis/resource.k8s.io/v1",
            "io.k8s.api.resource.v1.ExactDeviceRequest",
            "allocationMode",
            ["All", "ExactCount"],
        ),
    ],
)
def test_enumerations_have_their_values(
    document: str, type_name: str, field: str, values: list[str]
) -> None:
    """Also those whose constants are conversions or constants of another package."""
    schemas = DOCUMENTS.document(document)["components"]["schemas"]
    assert schemas[type_name]["properties"][field]["enum"] == values
    swagger = v2.document(DOCUMENTS, "1.37")
    assert swagger["definitions"][type_name]["properties"][field]["enum"] == values


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


@pytest.mark.skipif(not HAS_DESCRIPTIONS, reason="needs the package kubernetes-validate")
def test_descriptions_of_the_package_are_there_for_explain() -> None:
    schemas = DOCUMENTS.document("api/v1")["components"]["schemas"]
    pod = schemas["io.k8s.api.core.v1.Pod"]
    assert pod["description"].startswith("Pod is a collection of containers")
    assert pod["properties"]["spec"]["allOf"][0]["$ref"].endswith("PodSpec")
    heads = {"apiVersion": "APIVersion defines", "metadata": "Standard object's metadata"}
    for name, text in heads.items():
        assert pod["properties"][name]["description"].startswith(text)


@pytest.mark.skipif(not HAS_DESCRIPTIONS, reason="needs the package kubernetes-validate")
def test_nearly_every_type_of_the_table_has_a_description_in_the_package() -> None:
    """So that a release of the package whose names are others does not go unseen."""
    descriptions = load_descriptions("1.37")
    assert descriptions.source == "kubernetes-validate v1.37.0"
    names = {
        name
        for document in DOCUMENTS.names
        for name in DOCUMENTS.document(document)["components"].get("schemas", {})
    }
    missing = {name for name in names if descriptions.get(name) == ("", {})}
    assert len(names) > 400
    assert len(missing) < len(names) / 100, sorted(missing)


def test_types_without_descriptions_have_the_same_structure() -> None:
    rows = [row for row in ROWS if row.group == "apps"]
    bare = Documents(TABLE, rows, "1.37", Descriptions({})).document("apis/apps/v1")
    texts = {"io.k8s.api.apps.v1.Deployment": ("D", {"spec": "S"})}
    whole = Documents(TABLE, rows, "1.37", Descriptions(texts)).document("apis/apps/v1")
    of_bare, of_whole = (each["components"]["schemas"] for each in (bare, whole))
    name = "io.k8s.api.apps.v1.Deployment"
    assert (of_whole[name]["description"], of_whole[name]["properties"]["spec"]["description"]) == (
        "D",
        "S",
    )
    assert "description" not in of_bare[name]
    assert without_descriptions(of_whole).keys() == of_bare.keys()
    for each, schema in of_bare.items():
        assert "description" not in json.dumps(
            {key: value for key, value in schema.items() if key != "properties"}
        )
        assert schema.get("properties", {}).keys() == of_whole[each].get("properties", {}).keys()


def package(root: Path, releases: dict[str, str]) -> list[Path]:
    """Write a folder such as the package has, with one type of this description by release."""
    for name, text in releases.items():
        folder = root / "kubernetes-json-schema" / name
        folder.mkdir(parents=True)
        defined = {"description": text, "properties": {"a": {"description": text}, "b": {}}}
        (folder / "_definitions.json").write_text(json.dumps({"$defs": {"io.T": defined}}))
    return [root]


@pytest.mark.parametrize(
    ("releases", "source"),
    [
        (["v1.36.0", "v1.37.0", "v1.38.0", "v1.9.0"], "kubernetes-validate v1.37.0"),
        (["v1.9.0", "v1.36.0", "v2.0.0"], "kubernetes-validate v1.36.0"),
        (["v1.37.0", "v1.37.2"], "kubernetes-validate v1.37.2"),
        (["v1.38.0"], ""),
        ([], ""),
    ],
)
def test_descriptions_are_of_the_newest_release_that_is_not_newer(
    releases: list[str], source: str, tmp_path: Path
) -> None:
    names = [f"{each}-local" for each in releases]
    roots = package(tmp_path, {each: each for each in [*names, "v1.37.9-local-strict"]})
    found = read_descriptions(roots, "1.37")
    assert found.source == source
    text = f"{source.split()[-1]}-local" if source else ""
    assert found.get("io.T") == ((text, {"a": text}) if text else ("", {}))
    assert found.get("io.example.Nothing") == ("", {})
    assert found.of_field("io.T", "b", "own") == "own"


def test_a_package_that_is_not_installed_has_no_descriptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(descriptions, "PACKAGE", "kubernetes_validate_that_is_not_installed")
    found = load_descriptions.__wrapped__("1.37")
    assert (found.source, found.get("io.k8s.api.core.v1.Pod")) == ("", ("", {}))


@pytest.mark.parametrize("content", ["{", "[]", '{"definitions": {}}', '{"$defs": []}'])
def test_a_file_that_is_not_readable_is_an_error_that_names_it(
    content: str, tmp_path: Path
) -> None:
    roots = package(tmp_path, {"v1.37.0-local": "x"})
    file = tmp_path / "kubernetes-json-schema" / "v1.37.0-local" / "_definitions.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=f"cannot be read from {file}: .*reinstall"):
        read_descriptions(roots, "1.37")


def test_hashes_of_custom_resources_differ_with_the_source_of_descriptions() -> None:
    """Or a client goes on with the document that it kept without them."""
    row = custom_row()
    row.fingerprint = "one"
    hashes = {
        Documents(TABLE, [row], "1.37", Descriptions({}, source)).hash("apis/example.com/v1")
        for source in ("", "kubernetes-validate v1.36.0", "kubernetes-validate v1.37.0")
    }
    assert len(hashes) == 3


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
