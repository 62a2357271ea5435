"""Discovery documents: the list of groups, versions and resources.

    /api                 api_versions       or aggregated, if the client requests it
    /apis                group_list         or aggregated
    /apis/{group}        group_document
    /api/v1, /apis/{group}/{version}   resource_list

All are made from rows of the table that the caller has chosen (what is switched on, what is
established) and put in order. A document is a dict in the order Go writes, and an object of a type
of the table, so that its YAML and protobuf forms are made as those of any object.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import orjson

from kvstack.apimachinery.schema.resource import Kind, Resource, Subresource

Document = dict[str, Any]

CURRENT: Final = "Current"
STALE: Final = "Stale"


class Version(NamedTuple):
    """One version of a group and its resources, in the order they are to be listed."""

    name: str
    rows: Sequence[Resource]
    freshness: str = CURRENT
    """STALE: an aggregated server did not answer, so this is its last answer."""
    aggregated: Sequence[Document] = ()
    """For an aggregated server: the resources that it returned."""


class Group(NamedTuple):
    """One group and its versions, the preferred one first."""

    name: str
    versions: Sequence[Version]


class RemoteVersion(NamedTuple):
    """One version of a group that an aggregated server serves."""

    group: str
    version: str
    group_priority: int
    version_priority: int
    resources: Sequence[Document]
    freshness: str


def groups_of(rows: Iterable[Resource]) -> list[Group]:
    """Return rows by group and version, in the order they come."""
    found: dict[str, dict[str, list[Resource]]] = {}
    for row in rows:
        found.setdefault(row.group, {}).setdefault(row.version, []).append(row)
    return [
        Group(group, [Version(version, listed) for version, listed in versions.items()])
        for group, versions in found.items()
    ]


def with_remotes(
    groups: Sequence[Group],
    remotes: Iterable[RemoteVersion],
    priority: Callable[[str, str], tuple[int, int]],
) -> list[Group]:
    """Return groups with those of aggregated servers in the order of their priorities.

    priority: returns those of what this server serves itself, by group and version; higher is
    earlier.
    """
    merged = list(groups)
    for remote in remotes:
        version = Version(remote.version, (), remote.freshness, remote.resources)
        position = next((at for at, group in enumerate(merged) if group.name == remote.group), -1)
        if position < 0:
            position = _position(merged, remote, priority)
            merged.insert(position, Group(remote.group, [version]))
            continue
        group = merged[position]
        others = [other for other in group.versions if other.name != remote.version]
        before = [
            other
            for other in others
            if priority(remote.group, other.name)[1] >= remote.version_priority
        ]
        versions = [*before, version, *others[len(before) :]]
        merged[position] = Group(remote.group, versions)
    return merged


def _position(
    groups: Sequence[Group],
    remote: RemoteVersion,
    priority: Callable[[str, str], tuple[int, int]],
) -> int:
    for position, group in enumerate(groups):
        own = priority(group.name, group.versions[0].name)[0] if group.name else _FIRST
        if (-own, group.name) > (-remote.group_priority, remote.group) and position:
            return position
    return len(groups)


_FIRST: Final = 1 << 30
"""The priority of the core group."""


def api_versions(server_address: str) -> Document:
    """Return the versions of the core group; `server_address` is host:port."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [
            {"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}
        ],
    }


def group_list(groups: Iterable[Group]) -> Document:
    """Return the list of all groups but the core group."""
    listed = [_group(each) for each in groups if each.name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def group_document(group: Group) -> Document:
    """Return one group."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group)}


def resource_list(group: str, version: Version) -> Document:
    """Return the resources of one version of a group, subresources as entries of their own."""
    head = {"kind": "APIResourceList"} | ({"apiVersion": "v1"} if group else {})
    listed = [entry for row in version.rows for entry in _entries(row)]
    name = f"{group}/{version.name}" if group else version.name
    return {**head, "groupVersion": name, "resources": listed}


def aggregated(groups: Iterable[Group]) -> Document:
    """Return all of these groups in one document, in the form of `apidiscovery.k8s.io/v2`."""
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [_aggregated_group(each) for each in groups],
    }


def etag(document: Document) -> str:
    """Return the hash of an aggregated document, with its quotes; kind and version do not count."""
    hashed = {key: value for key, value in document.items() if key not in {"kind", "apiVersion"}}
    return f'"{hashlib.sha512(orjson.dumps(hashed)).hexdigest().upper()}"'


def _group(group: Group) -> Document:
    versions = [
        {"groupVersion": f"{group.name}/{each.name}", "version": each.name}
        for each in group.versions
    ]
    return {"name": group.name, "versions": versions, "preferredVersion": versions[0]}


def _entries(row: Resource) -> list[Document]:
    main = {
        "name": row.name,
        "singularName": row.singular,
        "namespaced": row.is_namespaced,
        **_foreign(row.kind, row),
        "kind": row.kind.kind,
        "verbs": list(row.verbs),
        **_lists(row),
    }
    if row.storage_version_hash:
        main["storageVersionHash"] = row.storage_version_hash
    below = [
        {
            "name": f"{row.name}/{each.name}",
            "singularName": "",
            "namespaced": row.is_namespaced,
            **_foreign(each.kind, row),
            "kind": each.kind.kind,
            "verbs": list(each.verbs),
        }
        for each in row.subresources.values()
    ]
    return [main, *below]


def _foreign(kind: Kind, row: Resource) -> Document:
    """Return the group and version of a kind where they are not those of the resource."""
    if (kind.group, kind.version) == (row.group, row.version):
        return {}
    group = {"group": kind.group} if kind.group else {}
    return {**group, "version": kind.version}


def _lists(row: Resource) -> Document:
    found: Document = {}
    if row.short_names:
        found["shortNames"] = list(row.short_names)
    if row.categories:
        found["categories"] = list(row.categories)
    return found


def _aggregated_group(group: Group) -> Document:
    return {
        "metadata": {"name": group.name} if group.name else {},
        "versions": [
            {
                "version": each.name,
                **_aggregated_resources(each),
                "freshness": each.freshness,
            }
            for each in group.versions
        ],
    }


def _aggregated_resources(version: Version) -> Document:
    found = [*map(_aggregated_resource, version.rows), *version.aggregated]
    return {"resources": found} if found or version.freshness == CURRENT else {}


def _aggregated_resource(row: Resource) -> Document:
    document = {
        "resource": row.name,
        "responseKind": _response_kind(row.kind, row),
        "scope": "Namespaced" if row.is_namespaced else "Cluster",
        "singularResource": row.singular,
        "verbs": list(row.verbs),
        **_lists(row),
    }
    if row.subresources:
        below = row.subresources.values()
        document["subresources"] = [_aggregated_subresource(each, row) for each in below]
    return document


def _aggregated_subresource(subresource: Subresource, row: Resource) -> Document:
    return {
        "subresource": subresource.name,
        "responseKind": _response_kind(subresource.kind, row),
        "verbs": list(subresource.verbs),
    }


def _response_kind(kind: Kind, row: Resource) -> Document:
    is_own = (kind.group, kind.version) == (row.group, row.version)
    group, version = ("", "") if is_own else (kind.group, kind.version)
    return {"group": group, "version": version, "kind": kind.kind}
