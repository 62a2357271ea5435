"""The text tables: read from Go, OpenAPI and discovery, compiled, and not stale."""

import json
from pathlib import Path

import pytest

from kvstack.apimachinery.schema import load
from kvstack.apimachinery.schema.decode import normalize
from kvstack.apimachinery.schema.generate import text_tables
from kvstack.apimachinery.schema.generate.__main__ import main
from kvstack.apimachinery.schema.generate.compiler import compile_tables
from kvstack.apimachinery.schema.generate.go_source import GoConstant, GoPackage, read_package
from kvstack.apimachinery.schema.generate.importer import import_release
from kvstack.apimachinery.schema.generate.types_import import versioned_rows
from kvstack.apimachinery.schema.resource import Column, Kind
from kvstack.apimachinery.schema.types import Shape

GO = """\
/*
type NotThis struct {
*/
package v1

import (
\tmetav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
\t"k8s.io/apimachinery/pkg/types"
)

// +enum
type Color string

const (
\tRed Color = "Red" // a comment
\tBlue Color = "Blue"
\tOther = "other"
)

type Alias = metav1.ObjectMeta

// Foo is a thing.
type Foo struct {
\tmetav1.TypeMeta `json:",inline"`
\t// not `a` tag
\tmetav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

\tSpec FooSpec `json:"spec" protobuf:"bytes,2,opt,name=spec"` // trailing
\thidden int
}

type FooSpec struct {
\tColors []Color `json:"colors,omitempty" protobuf:"bytes,1,rep,name=colors"`
\tSize *int32 `json:"size" protobuf:"varint,2,opt,name=size"`
\tOwners map[string]types.UID `json:"owners,omitempty" protobuf:"bytes,3,rep,name=owners"`
\tSecret string `json:"-"`
}

func (f Foo) DoIt() {
\ttype local struct {
\t}
}
"""

META = """\
package v1

type TypeMeta struct {
\tKind string `json:"kind,omitempty" protobuf:"bytes,1,opt,name=kind"`
\tAPIVersion string `json:"apiVersion,omitempty" protobuf:"bytes,2,opt,name=apiVersion"`
}

type ObjectMeta struct {
\tName string `json:"name,omitempty" protobuf:"bytes,1,opt,name=name"`
}

type Patch struct{}
"""

INFO = 'package version\n\ntype Info struct {\n\tMajor string `json:"major"`\n}\n'
PACKAGES = {
    "api/apps/v1/types.go": GO,
    "api/admission/v1/types.go": "package v1\n",
    "api/admission/v1beta1/types.go": "package v1beta1\n",
    "api/apidiscovery/v2/types.go": "package v2\n",
    "apiextensions-apiserver/pkg/apis/apiextensions/v1beta1/types.go": "package v1beta1\n",
    "apiextensions-apiserver/pkg/apis/apiextensions/types.go": "package apiextensions\n",
    "kube-aggregator/pkg/apis/apiregistration/types.go": "package apiregistration\n",
    "apimachinery@v0.1.2/pkg/apis/meta/v1/types.go": META,
    "apimachinery@v0.1.2/pkg/apis/meta/v1beta1/types.go": "package v1beta1\n",
    "apimachinery@v0.1.2/pkg/types/uid.go": "package types\n\ntype UID string\n",
    "apimachinery@v0.1.2/pkg/version/types.go": INFO,
    "kubernetes@v1.2.3/pkg/apis/apps/types.go": "type FooSpec struct {\n\tSize int\n}\n",
}
REFERENCE = "#/components/schemas/io.k8s.api.apps.v1.FooSpec"
KIND = {"group": "apps", "version": "v1", "kind": "Foo"}
SCHEMAS = {
    "io.k8s.api.apps.v1.Foo": {
        "description": "a thing",
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": {"allOf": [{"$ref": REFERENCE}], "default": {}}},
        "x-kubernetes-group-version-kind": [KIND],
    },
    "io.k8s.api.apps.v1.FooSpec": {
        "type": "object",
        "properties": {
            "colors": {
                "type": "array",
                "items": {"type": "string"},
                "x-kubernetes-list-type": "set",
            }
        },
    },
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {"type": "object"},
    "io.k8s.apimachinery.pkg.version.Info": {"type": "object"},
}
DISCOVERY = {
    "apis.json": {"groups": [{"name": "apps", "versions": [{"version": "v1"}]}]},
    "api__v1.json": {"resources": []},
    "apis__apps__v1.json": {
        "resources": [
            {
                "name": "foos",
                "singularName": "foo",
                "namespaced": True,
                "kind": "Foo",
                "verbs": ["get"],
                "shortNames": ["fo"],
            },
            {
                "name": "foos/status",
                "singularName": "",
                "namespaced": True,
                "kind": "Foo",
                "verbs": ["get"],
            },
        ]
    },
}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A directory of published sources with one kind."""
    root = tmp_path / "release"
    specification = root / "kubernetes@v1.2.3" / "api"
    files = {
        **PACKAGES,
        "kubernetes@v1.2.3/api/openapi-spec/v3/apis__apps__v1_openapi.json": json.dumps(
            {"components": {"schemas": SCHEMAS}}
        ),
    }
    for name, document in DISCOVERY.items():
        path = specification / "discovery" / name
        files[str(path.relative_to(root))] = json.dumps(document)
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def write_by_hand(target: Path, **tables: object) -> None:
    """Write the tables that are not imported."""
    tables = {"kinds": [], **tables}
    for name in (
        "storage",
        "selectable",
        "columns",
        "column_descriptions",
        "kinds",
        "priorities",
    ):
        text = json.dumps(tables.get(name, {}))
        (target / f"{name}.json").write_text(text, encoding="utf-8")


def test_the_data_files_are_those_of_the_text_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0
    assert capsys.readouterr().err == ""


def test_a_go_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "types.go"
    file.write_text(GO, encoding="utf-8")
    package = read_package("k8s.io/api/apps/v1", [file])
    assert set(package.types) == {"Color", "Alias", "Foo", "FooSpec"}
    assert package.types["Alias"].is_alias
    assert package.types["Color"].markers == ("enum",)
    assert package.constants == [
        GoConstant("Red", "Color", "Red"),
        GoConstant("Blue", "Color", "Blue"),
        GoConstant("Other", "", "other"),
    ]
    foo = package.types["Foo"].fields
    assert [each.name for each in foo] == ["", "", "Spec"]
    assert foo[0].type == "k8s.io/apimachinery/pkg/apis/meta/v1.TypeMeta"
    assert foo[2].tags["protobuf"] == "bytes,2,opt,name=spec"
    assert package.types["FooSpec"].fields[2].type == "map[string]k8s.io/apimachinery/pkg/types.UID"


def test_values_of_enumerations_are_conversions_and_constants_of_others_too(
    tmp_path: Path,
) -> None:
    """As upstream declares PathType and AddressType; an alias has the values of what it names."""
    core, discovery = tmp_path / "core.go", tmp_path / "discovery.go"
    core.write_text('package v1\n\nconst IPv4Protocol IPFamily = "IPv4"\n', encoding="utf-8")
    discovery.write_text(
        """package v1

import (
\tv1 "k8s.io/api/core/v1"
)

// +enum
type AddressType string

// +enum
type Old = AddressType

const (
\tIPv4 = AddressType(v1.IPv4Protocol)
\tFQDN = AddressType("FQDN")
\tName AddressType = FQDN // a comment
\tMost = 3
)
""",
        encoding="utf-8",
    )
    packages = {
        path: read_package(path, [file])
        for path, file in (("k8s.io/api/core/v1", core), ("k8s.io/api/discovery/v1", discovery))
    }
    rows = versioned_rows(packages["k8s.io/api/discovery/v1"], {}, packages.__getitem__)
    assert rows == [
        {"name": "AddressType", "is": "string", "enum": ["FQDN", "IPv4"]},
        {"name": "Old", "alias": "AddressType"},
    ]


def test_an_enumeration_without_values_is_refused(tmp_path: Path) -> None:
    """Its constants have a form that is not read: the table would miss them silently."""
    file = tmp_path / "types.go"
    file.write_text("// +enum\ntype Color string\n", encoding="utf-8")
    package = read_package("k8s.io/api/apps/v1", [file])
    no_packages: dict[str, GoPackage] = {}
    with pytest.raises(ValueError, match=r"k8s\.io/api/apps/v1\.Color has no values"):
        versioned_rows(package, {}, no_packages.__getitem__)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "types.go"
    file.write_text("type Foo struct {\n\tBar struct {\n", encoding="utf-8")
    with pytest.raises(ValueError, match="cannot read the field"):
        read_package("x", [file])
    file.write_text("type Foo map[string]struct {\n", encoding="utf-8")
    with pytest.raises(ValueError, match="cannot read the type"):
        read_package("x", [file])


def test_a_release_becomes_text_tables_and_a_table(release: Path, tmp_path: Path) -> None:
    target = tmp_path / "sources"
    import_release(release, target)
    text = (target / "types" / "apps-v1.json").read_text(encoding="utf-8")
    assert '"name": "Color", "is": "string", "enum": ["Blue", "Red"]}' in text
    assert '{"name": "colors", "go": "Colors", "type": "[]Color", "number": 1,' in text
    internal = text_tables.read(target / "internal" / "apps.json")
    assert internal["types"][0]["fields"] == [{"go": "Size", "type": "int"}]
    columns = [{"name": "Name", "type": "string", "format": "name"}]
    write_by_hand(
        target,
        columns={"Foo": columns},
        column_descriptions={"Name": "what it is called"},
        selectable={"foos.apps": {"fields": ["a"], "text": "{kind}: {quoted}"}},
    )
    table = load._read(compile_tables(target)).table()
    row = table.resource("apps", "v1", "foos")
    assert row is not None
    assert table.type_of(Kind("", "v1", "Thing")) is None
    assert row.columns == (Column("Name", "string", "name", "what it is called"),)
    assert row.selectable.refusal("b") == 'apps/v1, Kind=Foo: "b"'
    assert row.short_names == ("fo",)
    assert list(row.subresources) == ["status"]
    spec = row.type.fields["spec"]
    assert spec.required
    assert spec.default == {}
    colors = spec.type.fields["colors"]
    assert colors.type.list_type == "set"
    assert colors.type.go_kind == "[]v1.Color"
    assert spec.type.fields["owners"].type.go_kind == "map[string]types.UID"
    assert spec.type.fields["size"].type.shape is Shape.INT32
    assert normalize({}, row.type) == {"metadata": {}, "spec": {"size": None}}


def test_kinds_that_no_document_names_are_added(release: Path, tmp_path: Path) -> None:
    target = tmp_path / "sources"
    import_release(release, target)
    write_by_hand(target, kinds=[["", "v1", "Thing", "apps/v1.FooSpec"]])
    found = load._read(compile_tables(target)).table().type_of(Kind("", "v1", "Thing"))
    assert found is not None
    assert found.name == "io.k8s.api.apps.v1.FooSpec"


def test_storage_that_the_hash_contradicts_is_refused(release: Path, tmp_path: Path) -> None:
    target = tmp_path / "sources"
    import_release(release, target)
    rows = text_tables.read(target / "resources.json")
    rows[0]["storageVersionHash"] = "x"
    (target / "resources.json").write_text(json.dumps(rows), encoding="utf-8")
    write_by_hand(target, storage={"foos.apps": {"prefix": "foos", "version": "v1"}})
    with pytest.raises(ValueError, match="another storageVersionHash"):
        compile_tables(target)
