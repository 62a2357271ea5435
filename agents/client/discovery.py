"""What an API server serves: resources of all groups and versions, with their verbs.

    found = await discover(api)
    found.preferred("list", "watch")            → one version of each resource
    found.of_kind("apps/v1", "Deployment")      → its ResourceType, or None
    discoverer = Discoverer(api)                for who asks again and again
    await discoverer.discover()                 the same object again, if nothing has changed

The aggregated form is requested. A version that an aggregated server does not answer for is stale:
it is among the failures, and its resources are unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kvstack.agents.client.api import Api
from kvstack.agents.client.resource_type import ResourceType
from kvstack.apimachinery.objects.json_object import Object

_ACCEPT: Final = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
)
_KIND: Final = "APIGroupDiscoveryList"
_ROOTS: Final = ("/api", "/apis")
_STALE: Final = "stale GroupVersion discovery: {}"


class ServedResource(NamedTuple):
    """One resource of one version."""

    resource: ResourceType
    verbs: frozenset[str]
    is_preferred: bool
    """Whether this is the version of the resource that its group prefers."""


@dataclass(slots=True)
class Discovery:
    """All that is served."""

    served: list[ServedResource] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    """Why discovery of a `group/version` failed."""

    def preferred(self, *verbs: str) -> list[ResourceType]:
        """Return the resources that have all these verbs, each in the version preferred."""
        wanted = frozenset(verbs)
        return [each.resource for each in self.served if each.is_preferred and wanted <= each.verbs]

    def verbs_of(self, resource: ResourceType) -> frozenset[str]:
        """Return the verbs of a resource; none if it is not served."""
        for each in self.served:
            if each.resource == resource:
                return each.verbs
        return frozenset()

    def of_kind(self, api_version: str, kind: str) -> ResourceType | None:
        """Return the resource whose objects are of a kind."""
        for each in self.served:
            if each.resource.kind == kind and each.resource.api_version == api_version:
                return each.resource
        return None

    def failure_text(self) -> str:
        """Return why discovery is incomplete, as client-go words it."""
        parts = ", ".join(f"{name}: {why}" for name, why in sorted(self.failures.items()))
        return f"unable to retrieve the complete list of server APIs: {parts}"


async def discover(api: Api) -> Discovery:
    """Discover all groups; raises ApiError or UnreachableError."""
    return await Discoverer(api).discover()


class Discoverer:
    """Asks one server from time to time; what has not changed is not sent or read again."""

    def __init__(self, api: Api) -> None:
        self._api: Final = api
        self._known: dict[str, tuple[str, Discovery]] = {}
        """By root: the ETag of the document, and its contents."""
        self._all = Discovery()

    async def discover(self) -> Discovery:
        """Discover all groups; raises ApiError or UnreachableError. Do not change the result."""
        changed = [await self._look(root) for root in _ROOTS]
        if any(changed):
            parts = [self._known[root][1] for root in _ROOTS]
            self._all = Discovery(
                [each for part in parts for each in part.served],
                {at: why for part in parts for at, why in part.failures.items()},
            )
        return self._all

    async def _look(self, root: str) -> bool:
        """Read the document of a root; return whether it has changed."""
        known = self._known[root][0] if root in self._known else ""
        document, etag = await self._api.get_changed(root, known, accept=_ACCEPT)
        if document is None:
            return False
        found = Discovery()
        if document.get("kind") == _KIND:
            _read_aggregated(document, found)
        else:
            await _read_each(self._api, root, document, found)
        self._known[root] = etag, found
        return True


def _read_aggregated(document: Object, discovery: Discovery) -> None:
    for item in document.get("items") or ():
        group = (item.get("metadata") or {}).get("name", "")
        group_versions_seen: set[str] = set()
        for version in item.get("versions") or ():
            name = version["version"]
            if version.get("freshness") == "Stale":
                at = _group_version(group, name)
                discovery.failures[at] = _STALE.format(at)
                continue
            rows = [
                (
                    each["resource"],
                    (each.get("responseKind") or {}).get("kind", ""),
                    each.get("scope") == "Namespaced",
                    each.get("verbs") or (),
                )
                for each in version.get("resources") or ()
            ]
            _add(discovery, group, name, rows, group_versions_seen)


async def _read_each(api: Api, root: str, document: Object, discovery: Discovery) -> None:
    """Read the documents of all versions, as older servers have them."""
    if root == "/api":
        groups = [("", document.get("versions") or [])]
    else:
        groups = [(each["name"], _preferred_first(each)) for each in document.get("groups") or ()]
    for group, versions in groups:
        seen: set[str] = set()
        for version in versions:
            at = _group_version(group, version)
            listed = await api.call("GET", f"{root}/{at}")
            rows = [
                (each["name"], each["kind"], each["namespaced"], each.get("verbs") or ())
                for each in listed.get("resources") or ()
                if "/" not in each["name"]
            ]
            _add(discovery, group, version, rows, seen)


def _preferred_first(group: Object) -> list[str]:
    versions = [each["version"] for each in group.get("versions") or ()]
    preferred = (group.get("preferredVersion") or {}).get("version")
    return sorted(versions, key=lambda version: version != preferred)


def _add(
    discovery: Discovery,
    group: str,
    version: str,
    rows: Sequence[tuple[str, str, bool, Sequence[str]]],
    seen: set[str],
) -> None:
    for name, kind, is_namespaced, verbs in rows:
        resource = ResourceType(group, version, name, kind, is_namespaced)
        discovery.served.append(ServedResource(resource, frozenset(verbs), name not in seen))
        seen.add(name)


def _group_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version
