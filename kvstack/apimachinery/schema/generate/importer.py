"""Writing the text tables from a directory of published sources."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kvstack.apimachinery.schema.generate import text_tables
from kvstack.apimachinery.schema.generate.openapi_documents import (
    read_schemas,
    returned_when_deleted,
)
from kvstack.apimachinery.schema.generate.packages import Source, openapi_package
from kvstack.apimachinery.schema.generate.resources_import import read_resources
from kvstack.apimachinery.schema.generate.types_import import (
    internal_rows,
    schemas_of_embedded,
    versioned_rows,
)

_MORE: Final = (  # never in an OpenAPI document, but spoken or stored
    "k8s.io/api/admission/v1",
    "k8s.io/api/admission/v1beta1",
    "k8s.io/api/apidiscovery/v2",
    "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1",
    "k8s.io/apimachinery/pkg/apis/meta/v1beta1",
    "k8s.io/apimachinery/pkg/types",
)
_INTERNAL: Final = "k8s.io/kubernetes/pkg/apis"
_INTERNAL_ELSEWHERE: Final = (
    "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions",
    "k8s.io/kube-aggregator/pkg/apis/apiregistration",
)


def import_release(root: Path, target: Path = text_tables.SOURCES) -> None:
    """Write the tables of types and resources that the sources in `root` declare."""
    source = Source(root)
    specification = source.folder("k8s.io/kubernetes/api")
    schemas = read_schemas(specification / "openapi-spec" / "v3")
    _renew(target / "types")
    paths = sorted({*_packages_of(schemas), *_MORE})
    schemas |= schemas_of_embedded([source.package(path) for path in paths], schemas)
    for path in paths:
        rows = versioned_rows(source.package(path), schemas, source.package)
        _write(target / "types", path, text_tables.types_text(path, rows))
    _renew(target / "internal")
    for path in _internal_packages(source):
        rows = internal_rows(source.package(path))
        _write(target / "internal", path, text_tables.types_text(path, rows))
    returned = returned_when_deleted(specification / "openapi-spec" / "v3")
    resources = read_resources(specification / "discovery", returned)
    (target / "resources.json").write_text(text_tables.rows_text(resources), encoding="utf-8")


def _packages_of(schemas: dict[str, dict[str, object]]) -> Iterator[str]:
    for name in schemas:
        parts = name.split(".")
        path = "/".join(["k8s.io", *parts[2:-1]])
        if f"{openapi_package(path)}.{parts[-1]}" != name:
            raise ValueError(f"{name} is in no package of k8s.io")
        yield path


def _internal_packages(source: Source) -> Iterator[str]:
    root = source.folder(_INTERNAL)
    for folder in sorted(root.iterdir()):
        if (folder / "types.go").exists():
            yield f"{_INTERNAL}/{folder.name}"
    yield from _INTERNAL_ELSEWHERE


def _renew(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.json"):
        path.unlink()


def _write(folder: Path, package: str, text: str) -> None:
    name = text_tables.short_package(package).replace("/", "-")
    (folder / f"{name}.json").write_text(text, encoding="utf-8")
