"""The text tables: JSON that is read as text, one type or field or resource a line.

    {"package": "k8s.io/api/apps/v1",
     "types": [
      {"name": "DaemonSet", "kinds": [["apps", "v1", "DaemonSet"]], "fields": [
       {"go": "TypeMeta", "type": "meta/v1.TypeMeta"},
       {"name": "spec", "go": "Spec", "type": "DaemonSetSpec", "number": 2, "default": {}}]},
      {"name": "DaemonSetConditionType", "is": "string"}]}

A new release is then a difference of single lines. What is empty, false or absent is not written.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

SOURCES: Final = Path(__file__).resolve().parent.parent / "sources"

Row = dict[str, Any]

_PREFIXES: Final = (
    "k8s.io/api/",
    "k8s.io/apimachinery/pkg/apis/",
    "k8s.io/apimachinery/pkg/util/",
    "k8s.io/apimachinery/pkg/",
    "k8s.io/apiextensions-apiserver/pkg/apis/",
    "k8s.io/kube-aggregator/pkg/apis/",
    "k8s.io/kubernetes/pkg/apis/",
)


def short_package(path: str) -> str:
    """Return the import path of a package without what all of its family share."""
    for prefix in _PREFIXES:
        if path.startswith(prefix):
            return path.removeprefix(prefix)
    return path


def types_text(package: str, types: Iterable[Row]) -> str:
    """Return the table of the types of one package."""
    rows = []
    for each in types:
        head = _line({key: value for key, value in each.items() if key != "fields"})
        if "fields" in each:
            fields = ",\n   ".join(_line(field) for field in each["fields"])
            head = head[:-1] + ', "fields": [' + (f"\n   {fields}" if fields else "") + "]}"
        rows.append(f"  {head}")
    body = ",\n".join(rows)
    return f'{{"package": {json.dumps(package)},\n "types": [\n{body}]}}\n'


def rows_text(rows: Iterable[object]) -> str:
    """Return a table with one line a row."""
    body = ",\n".join(f" {_line(row)}" for row in rows)
    return f"[\n{body}\n]\n"


def read(path: Path) -> Any:  # noqa: ANN401
    """Return what a table holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
