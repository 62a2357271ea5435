"""Contents of an API server, of any from 1.28 on, by its API alone.

    source = ApiServerSource(cluster, "prod")
    contents = await source.read(ReadOptions(at="2026-11-22T10:00:00Z"), progress)

    discovery ──► aggregated groups and definitions ──► everything else that can be listed

Whatever is listed is listed at the revision of the first answer, so that it is one state. Ours can
be read as they were at a time (`/at/…`), any server at a revision that it still has. Kinds that the
user may not list are left out and named.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from typing_extensions import override

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.built_in import NAMESPACES
from kvstack.agents.client.discovery import Discovery, discover
from kvstack.agents.client.kubeconfig import Cluster, connect
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.core import group_resources
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from kvstack.clusters.contents import ROOT, Contents, LeftOut, Origin
from kvstack.clusters.kinds import Kinds
from kvstack.clusters.sources.api_changes import changes_of
from kvstack.clusters.sources.api_kinds import (
    ListedResource,
    aggregated_versions,
    chosen,
)
from kvstack.clusters.sources.api_listing import Encoder, Listed, Listing
from kvstack.clusters.sources.source import (
    Progress,
    ReadOptions,
    Source,
    SourceError,
    TooManyObjectsError,
)
from kvstack.clusters.sources.store_records import StoreRecords
from kvstack.component.clock import SystemClock
from kvstack.component.version import KUBERNETES_VERSION
from kvstore.client.values import KeyValue

T = TypeVar("T")

KIND: Final = "API server"
CONCURRENT: Final = 8
"""Resources that are listed at once."""
TIMEOUT_S: Final = 60.0
_EVENTS: Final = "events"
_DEFINITIONS: Final = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
_API_SERVICES: Final = ResourceType(
    "apiregistration.k8s.io", "v1", "apiservices", "APIService", is_namespaced=False
)
_ORDER: Final = attrgetter("mod_revision", "key")
_NO_PAST: Final = (
    "this server does not show its past state, unlike those of kvstack; --at takes a "
    "revision here, and an etcd snapshot of that time can be opened"
)


class ApiServerSource(Source):
    """One context of a kubeconfig."""

    def __init__(self, cluster: Cluster, context: str) -> None:
        self._cluster: Final = cluster
        self._context: Final = context

    @property
    @override
    def name(self) -> str:
        return self._context

    @override
    async def read(self, options: ReadOptions, progress: Progress) -> Contents:
        api = Api(connect(self._cluster), Options(user_agent="kvstack", timeout_s=TIMEOUT_S))
        progress.say(f"connecting to {self._cluster.server}")
        try:
            return await _Reading(api, self._context, options, progress).read()
        except (ApiError, UnreachableError) as error:
            raise SourceError(f"{self._cluster.server}: {error}") from error
        finally:
            await api.close()


class _ListedKind(NamedTuple):
    """A resource that was listed."""

    listed: ListedResource
    namespace: str
    """The namespace that was listed; empty: all."""
    answer: Listed


class _Reading:
    """One reading of one server."""

    def __init__(self, api: Api, context: str, options: ReadOptions, progress: Progress) -> None:
        self._api: Final = api
        self._context: Final = context
        self._options: Final = options
        self._progress: Final = progress
        self._kinds: Final = Kinds()
        self._left_out: list[LeftOut] = []
        self._unread: Final[set[GroupResource]] = set()
        self._count = 0
        self._slots: Final = asyncio.Semaphore(CONCURRENT)
        is_revision = options.at.isascii() and options.at.isdigit()
        self._root: Final = f"/at/{options.at}" if options.at and not is_revision else ""
        self._revision = int(options.at) if is_revision else 0
        self._encoder = Encoder(self._kinds, is_own=False)
        self._listing = self._new_listing()

    async def read(self) -> Contents:
        """Return the contents."""
        version = await self._version()
        self._progress.say("reading discovery")
        discovery = await discover(self._api)
        aggregated = aggregated_versions(await self._api_services())
        self._revision = await self._revision_to_read(discovery)
        first = await self._first_revision()
        everything, _ = chosen(discovery, self._kinds, aggregated)
        definitions = [each for each in everything if _is_of(each, _DEFINITIONS)]
        listed = await self._list(definitions, first)
        for each in listed:
            for kv in each.answer.rows:
                self._kinds.define(kv)
        # Again: now it is known in which version custom resources are stored.
        everything, left_out = chosen(discovery, self._kinds, aggregated)
        self._left_out += left_out
        rest = [each for each in everything if not _is_of(each, _DEFINITIONS)]
        if not self._options.has_events:
            rest = [each for each in rest if each.prefix != _EVENTS]
        listed += await self._list(rest, first)
        if not listed:
            raise SourceError(f"no resource can be listed: {self._left_out[0].why}")
        changes = await self._changes(listed, first) if first < self._revision else []
        return await self._contents(listed, changes, first, version)

    # What the server is, and when.

    async def _version(self) -> str:
        """Return the server's version; empty: unknown."""
        try:
            info = await self._api.call("GET", "/version")
        except ApiError:
            return ""
        version = str(info.get("gitVersion", ""))
        is_ours = str(info.get("goVersion")).startswith("python")
        if not is_ours and (self._root or self._options.since_s):
            # A user without rights to all paths would be answered that it is forbidden.
            flag = f"--at {self._options.at}" if self._root else "--since"
            raise SourceError(f"{flag}: {_NO_PAST}")
        if is_ours and version == f"v{KUBERNETES_VERSION}":
            self._encoder = Encoder(self._kinds, is_own=True)
            self._listing = self._new_listing()
        return version

    def _new_listing(self) -> Listing:
        return Listing(self._api, self._encoder, root=self._root, on_rows=self._count_objects)

    async def _api_services(self) -> Sequence[dict[str, Any]]:
        try:
            return await self._api.list_all(_API_SERVICES)
        except ApiError:
            return ()  # unknown: computed objects have no uid

    async def _revision_to_read(self, discovery: Discovery) -> int:
        """Return the revision that everything is read at."""
        if self._revision:
            return self._revision
        refusal: ApiError | None = None
        readable = [each.resource for each in discovery.served if "list" in each.verbs]
        for resource in (NAMESPACES, *readable):
            for namespace in self._namespaces(resource):
                path = self._root + resource.path(namespace)
                try:
                    answer = await self._api.call("GET", path, {"limit": 1})
                except ApiError as error:
                    if self._root and (error.is_not_found or error.is_gone):
                        # The first answer says it: others come from aggregated servers.
                        why = _NO_PAST if error.is_not_found else error
                        raise SourceError(f"--at {self._options.at}: {why}") from error
                    refusal = refusal or error
                    continue
                text = str((answer.get("metadata") or {}).get("resourceVersion") or "")
                if text.isascii() and text.isdigit() and int(text):
                    return int(text)
        raise SourceError(f"no resource can be listed: {refusal}")

    async def _first_revision(self) -> int:
        """Return the revision at which the history begins."""
        since_s = self._options.since_s
        if not since_s:
            return self._revision
        if self._options.at:
            raise SourceError("a history is read up to now: --at and --since exclude each other")
        moment = format_time(int(SystemClock().unix_ms() / 1000 - since_s))
        path = f"/at/{moment}{NAMESPACES.path()}"
        try:
            answer = await self._api.call("GET", path, {"limit": 1})
        except ApiError as error:
            if error.is_not_found:
                raise SourceError(f"--since: {_NO_PAST}") from error
            raise
        return int(answer["metadata"]["resourceVersion"])

    # Reading.

    def _namespaces(self, resource: ResourceType) -> tuple[str, ...]:
        """Return in which namespaces a resource is listed; an empty one: in all at once."""
        return (self._options.namespaces if resource.is_namespaced else ()) or ("",)

    async def _list(self, resources: Sequence[ListedResource], revision: int) -> list[_ListedKind]:
        """Return the objects of resources that can be read; the others are left out."""
        jobs = [
            (each, namespace) for each in resources for namespace in self._namespaces(each.resource)
        ]
        answers = await _together(self._list_one(*job, revision) for job in jobs)
        found = []
        for (listed, namespace), answer in zip(jobs, answers, strict=True):
            if isinstance(answer, LeftOut):
                self._unread.add(GroupResource(listed.resource.group, listed.resource.name))
                where = f" in {namespace}" if namespace else ""
                self._left_out.append(answer._replace(what=answer.what + where))
            else:
                found.append(_ListedKind(listed, namespace, answer))
        return found

    async def _list_one(
        self, listed: ListedResource, namespace: str, revision: int
    ) -> Listed | LeftOut:
        is_past = bool(self._options.at or self._options.since_s)
        async with self._slots:
            answer = await self._listing.read(listed, namespace, revision, may_be_newer=not is_past)
            if (
                isinstance(answer, LeftOut)
                and _is_of(listed, group_resources.NAMESPACES)
                and not is_past
            ):
                return await self._read_namespaces(listed, revision) or answer
            return answer

    async def _read_namespaces(self, listed: ListedResource, revision: int) -> Listed | None:
        """Return the namespaces that are read, by name; None: one cannot be read.

        Rights in a namespace contain reading its object, and without it nothing can be created in a
        fork.
        """
        rows = []
        for name in self._options.namespaces:
            try:
                obj = await self._api.call("GET", listed.resource.path(name=name))
            except ApiError:
                return None  # the refusal of the list says it
            rows.append(self._encoder.row(listed, obj))
            self._count_objects(listed, 1)
        return Listed(rows, revision) if rows else None

    async def _changes(self, listed: Sequence[_ListedKind], first: int) -> list[KeyValue]:
        """Return what changed since the first revision."""
        self._progress.say("reading the history")
        unwatched = [each for each in listed if not each.listed.can_be_watched]
        self._left_out += [
            LeftOut(str(each.listed.resource), f"as of revision {first}") for each in unwatched
        ]
        changed = await _together(
            changes_of(
                self._api,
                self._encoder,
                each.listed,
                each.namespace,
                each.answer.rows,
                (first, self._revision),
            )
            for each in listed
            if each.listed.can_be_watched
        )
        return [kv for each in changed for kv in each]

    def _count_objects(self, listed: ListedResource, number: int) -> None:
        self._count += number
        if self._count > self._options.objects_max:
            raise TooManyObjectsError(self._options.objects_max, str(listed.resource))
        self._progress.say(f"reading: {self._count} objects")

    # The result.

    async def _contents(
        self,
        kinds_listed: Sequence[_ListedKind],
        changes: list[KeyValue],
        first: int,
        version: str,
    ) -> Contents:
        revision = self._revision
        for listed, _, answer in kinds_listed:
            newest = max((kv.mod_revision for kv in answer.rows), default=0)
            if answer.newer_because or newest > first:
                because = answer.newer_because or "the server does not read at a revision"
                at = max(answer.revision, newest)
                why = f"read at revision {at} and not {first}: {because}"
                self._left_out.append(LeftOut(str(listed.resource), why))
                revision = max(revision, at)
        options = self._options._replace(since_s=None, etcd_prefix=ROOT.decode())
        records = StoreRecords(options, self._progress)
        for kv in sorted((kv for each in kinds_listed for kv in each.answer.rows), key=_ORDER):
            records.add(kv)
        for kv in sorted(changes, key=_ORDER):
            records.add(kv)
        readable_from = first if self._options.since_s else revision
        contents = await records.contents(
            Origin(KIND, self._context, version), revision, readable_from, {}
        )
        contents.left_out = [*self._left_out, *contents.left_out]
        contents.unread |= self._unread
        return contents


async def _together(jobs: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return what all of them return; the first error ends the others."""
    tasks = [asyncio.ensure_future(each) for each in jobs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for each in tasks:
            each.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _is_of(listed: ListedResource, resource: GroupResource) -> bool:
    return (listed.resource.group, listed.resource.name) == resource
