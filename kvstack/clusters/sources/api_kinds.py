"""The resources of an API server that are read, each in one version, and the keys of their objects.

    chosen(discovery, kinds, aggregated)   → [ListedResource(pods in v1, "pods"), …], and what not

A resource is read in the version that it is stored in, if that is served, or in another one that is
known here. One that is known in no served version is read as it is preferred, and kept below a
prefix that belongs to no kind. What an aggregated server has is in no store: it is left out.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from kvstack.agents.client.discovery import Discovery, ServedResource
from kvstack.agents.client.resource_type import ResourceType
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.clusters.contents import LeftOut
from kvstack.clusters.kinds import Kinds

AGGREGATED: Final = (
    "it is served by an aggregated server, whose objects are in no store of this one"
)
_LIST: Final = "list"
_IDENTITIES: Final = frozenset(
    (("internal.apiserver.k8s.io", "storageversions"), ("", "componentstatuses"))
)
"""Objects in which servers describe themselves."""


class ListedResource(NamedTuple):
    """A resource that is read."""

    resource: ResourceType
    prefix: str
    """The prefix of the keys of its objects."""
    can_be_watched: bool = True


def aggregated_versions(api_services: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Return the groups and versions that other servers serve."""
    specs = [each.get("spec") or {} for each in api_services]
    return {
        (str(spec.get("group", "")), str(spec.get("version", "")))
        for spec in specs
        if spec.get("service")
    }


def chosen(
    discovery: Discovery, kinds: Kinds, aggregated: Collection[tuple[str, str]]
) -> tuple[list[ListedResource], list[LeftOut]]:
    """Return what is read, and what is not."""
    by_name: dict[GroupResource, list[ServedResource]] = {}
    left_out = [
        LeftOut(
            at, AGGREGATED if tuple(at.split("/")) in aggregated else f"discovery failed: {why}"
        )
        for at, why in discovery.failures.items()
    ]
    for each in discovery.served:
        resource = each.resource
        name = GroupResource(resource.group, resource.name)
        if _LIST in each.verbs and tuple(name) not in _IDENTITIES:
            by_name.setdefault(name, []).append(each)
    resources: dict[str, ListedResource] = {}
    for name, versions in by_name.items():
        own = [v for v in versions if (v.resource.group, v.resource.version) not in aggregated]
        if not own:
            left_out.append(LeftOut(str(name), AGGREGATED))
            continue
        listed = _resource_of(name, own, kinds)
        if listed is None:
            continue
        before = resources.get(listed.prefix)
        if before is None:  # Events are in two groups
            resources[listed.prefix] = listed
    return list(resources.values()), left_out


def _resource_of(
    name: GroupResource, versions: list[ServedResource], kinds: Kinds
) -> ListedResource | None:
    """Return how a resource is read; None: its objects are not stored."""
    prefix = kinds.prefix_of(name)
    if prefix is not None:
        rows = {(row.group, row.version): row for row in kinds.resources[prefix]}
        known = [v for v in versions if (v.resource.group, v.resource.version) in rows]
        stored = next((row.storage for row in rows.values() if row.storage), None)
        if known:
            version = next(
                (v for v in known if stored and v.resource.version == stored.version), known[0]
            )
            return ListedResource(version.resource, prefix, "watch" in version.verbs)
    elif kinds.is_unstored(name):
        return None
    version = next((v for v in versions if v.is_preferred), versions[0])
    at = f"{name.group}/{name.resource}" if name.group else name.resource
    if prefix is not None:
        at = f"{at}.{version.resource.version}"  # in a version that cannot be read here
    return ListedResource(version.resource, at, "watch" in version.verbs)
