"""From the discovery documents of a release to the table of resources.

Storage, selectable fields and columns are not published; `sources/storage.json` and its neighbours
hold them and are kept by hand.
"""

import json
from collections.abc import Container, Iterator
from pathlib import Path

from kvstack.apimachinery.schema.generate.text_tables import Row


def read_resources(folder: Path, returned: Container[tuple[str, str, str]]) -> list[Row]:
    """Return the rows of all resources: the core group first, then as the groups are listed.

    `returned` has the (group, version, resource) whose deletes answer the deleted object.
    """
    groups = json.loads((folder / "apis.json").read_text(encoding="utf-8"))["groups"]
    rows = list(_resources(folder / "api__v1.json", "", "v1"))
    for group in groups:
        for version in group["versions"]:
            file = folder / f"apis__{group['name']}__{version['version']}.json"
            rows.extend(_resources(file, group["name"], version["version"]))
    for row in rows:
        if (row["group"], row["version"], row["resource"]) in returned:
            row["returnsDeleted"] = True
    return rows


def _resources(file: Path, group: str, version: str) -> Iterator[Row]:
    listed = json.loads(file.read_text(encoding="utf-8"))["resources"]
    mains = {each["name"]: each for each in listed if "/" not in each["name"]}
    below: dict[str, list[Row]] = {}
    for each in listed:
        name, slash, subresource = each["name"].partition("/")
        if slash:
            row = {"name": subresource, "kind": each["kind"], "verbs": each["verbs"]}
            if "version" in each:
                row |= {"group": each["group"], "version": each["version"]}
            below.setdefault(name, []).append(row)
    for name in sorted(mains.keys() | below.keys()):
        yield _row(group, version, name, mains.get(name), below.get(name, []))


def _row(group: str, version: str, name: str, listed: Row | None, subresources: list[Row]) -> Row:
    if listed is None:
        raise ValueError(f"{group}/{version}: subresources of {name}, which is not listed")
    row: Row = {"group": group, "version": version, "resource": name, "kind": listed["kind"]}
    if listed.get("version"):
        row |= {"kind_group": listed.get("group", ""), "kind_version": listed["version"]}
    row["singular"] = listed["singularName"]
    row["namespaced"] = listed["namespaced"]
    row["verbs"] = listed["verbs"]
    for key in ("shortNames", "categories", "storageVersionHash"):
        if listed.get(key):
            row[key] = listed[key]
    if subresources:
        row["subresources"] = subresources
    return row
