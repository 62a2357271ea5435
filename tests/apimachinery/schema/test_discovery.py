"""Discovery documents, compared with those of a real server."""

import base64
import json
from typing import Any

from kvstack.apimachinery.schema.discovery import (
    STALE,
    Group,
    Version,
    aggregated,
    api_versions,
    etag,
    group_document,
    group_list,
    groups_of,
    resource_list,
)
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.protobuf.codec import to_protobuf
from kvstack.apimachinery.schema.protobuf.envelope import wrap
from kvstack.apimachinery.schema.resource import Kind
from tests.apimachinery.schema.recordings import lines

TABLE = load()
GROUPS = {
    group.name: group
    for group in groups_of(
        row for row in TABLE if "alpha" not in row.version and "beta" not in row.version
    )
}
NAMED = [group for name, group in GROUPS.items() if name]


def document(path: str, *, is_aggregated: bool) -> dict[str, Any]:
    """Return what the path answers."""
    parts = path.strip("/").split("/")
    if is_aggregated:
        return aggregated([GROUPS[""]] if parts == ["api"] else NAMED)
    if parts == ["api"]:
        return api_versions("192.0.2.1:6443")
    if parts == ["apis"]:
        return group_list(NAMED)
    group = GROUPS["" if parts[0] == "api" else parts[1]]
    if len(parts) == 2 and parts[0] == "apis":
        return group_document(group)
    [version] = [each for each in group.versions if each.name == parts[-1]]
    return resource_list(group.name, version)


def protobuf(made: dict[str, Any]) -> bytes:
    api_version, kind = made.get("apiVersion", ""), made["kind"]
    group, _, version = (api_version or "v1").rpartition("/")
    type_ = TABLE.type_of(Kind(group, version, kind))
    assert type_ is not None
    return wrap(api_version, kind, to_protobuf(made, type_))


def test_documents_are_those_of_a_real_server() -> None:
    seen = 0
    for line in lines("discovery"):
        made = document(line["path"], is_aggregated=bool(line["etag"]))
        if "json" in line:
            assert json.dumps(made) == json.dumps(line["json"]), line["path"]
        else:
            assert protobuf(made) == base64.b64decode(line["base64"]), line["path"]
        if line["etag"]:
            assert etag(made) == line["etag"]
        seen += 1
    assert seen == 70


def test_a_group_that_does_not_answer_is_stale() -> None:
    made = aggregated([Group("example.com", [Version("v1", [], STALE)])])
    assert made["items"][0]["versions"] == [{"version": "v1", "freshness": "Stale"}]


def test_groups_come_by_priority() -> None:
    priorities = [
        TABLE.priorities[f"{name}/{group.versions[0].name}"].group
        for name, group in GROUPS.items()
        if name not in {"", "apiregistration.k8s.io"}
    ]
    assert priorities == sorted(priorities, reverse=True)
    assert TABLE.priorities["v1"] == (18000, 1)
