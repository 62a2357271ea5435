"""Discovery and OpenAPI documents of aggregated API servers.

    discovery = RemoteDiscovery(remotes, backends, logger)
    await discovery.refresh()            fetches from all servers, then calls `on_change`
    discovery.versions                   their groups and versions, for discovery
    discovery.openapi                    names of their OpenAPI documents, and the hashes of these
    discovery.openapi_v2                 their parts of the OpenAPI v2 document

A server that does not answer is listed with its last documents, as Stale.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from operator import is_
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import orjson

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.discovery import CURRENT, STALE, RemoteVersion
from kvstack.apiserver.aggregation.backend import BackendError, Backends
from kvstack.apiserver.aggregation.openapi_v2 import Document, part_of
from kvstack.apiserver.aggregation.remotes import Remote, Remotes
from kvstack.component.logger import Logger

PERIOD_S: Final = 60.0
QUESTION_S: Final = 5.0
_BYTES_MAX: Final = 16 << 20
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_ACCEPT: Final = [("Accept", f"{_AGGREGATED},application/json")]
_JSON: Final = [("Accept", "application/json")]


class RemoteDiscovery:
    """The documents of all of them."""

    def __init__(self, remotes: Remotes, backends: Backends, logger: Logger) -> None:
        self._remotes: Final = remotes
        self._backends: Final = backends
        self._logger: Final = logger
        self._resources: dict[str, list[Object]] = {}
        self._openapi: dict[str, dict[str, str]] = {}
        self._openapi_v2: dict[str, _PartV2] = {}
        self._fresh: set[str] = set()
        self.versions: list[RemoteVersion] = []
        self.openapi: Mapping[str, str] = {}
        """Hashes of documents by name (`apis/metrics.k8s.io/v1beta1`); possibly empty."""
        self.openapi_v2: list[Document] = []
        self.on_change: list[Callable[[], None]] = []
        self._wake: Final = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Fetch periodically, and after changes."""
        self._task = asyncio.create_task(self._run(), name="discovery of aggregated servers")

    async def end(self) -> None:
        """Stop fetching."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def refresh(self) -> None:
        """Fetch the documents of all servers."""
        remotes = self._remotes.all
        fresh = await asyncio.gather(*(self._ask(each) for each in remotes))
        self._fresh = {each.name for each, is_it in zip(remotes, fresh, strict=True) if is_it}
        self._notify()

    def remotes_changed(self) -> None:
        """Update the set of servers, and fetch soon."""
        self._notify()
        self._wake.set()

    def _notify(self) -> None:
        remotes = self._remotes.all
        known = {each.name for each in remotes}
        for name in self._resources.keys() - known:
            del self._resources[name]
        for name in self._openapi.keys() - known:
            del self._openapi[name]
        for name in self._openapi_v2.keys() - known:
            del self._openapi_v2[name]
        versions = [
            RemoteVersion(
                remote.group,
                remote.version,
                remote.group_priority,
                remote.version_priority,
                self._resources.get(remote.name, []),
                CURRENT if remote.name in self._fresh else STALE,
            )
            for remote in remotes
        ]
        openapi = {name: each for kept in self._openapi.values() for name, each in kept.items()}
        parts = [
            self._openapi_v2[remote.name].part
            for remote in remotes
            if remote.name in self._openapi_v2
        ]
        is_known = len(parts) == len(self.openapi_v2) and all(map(is_, parts, self.openapi_v2))
        if (versions, openapi) != (self.versions, self.openapi) or not is_known:
            self.versions, self.openapi, self.openapi_v2 = versions, openapi, parts
            for each in self.on_change:
                each()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            await self.refresh()
            # Without servers there is nothing to fetch before `remotes_changed`.
            with suppress(TimeoutError):
                async with asyncio.timeout(PERIOD_S if self._remotes.all else None):
                    await self._wake.wait()

    async def _ask(self, remote: Remote) -> bool:
        """Fetch from one server; return whether it answered."""
        if not remote.is_available:
            return False
        try:
            async with asyncio.timeout(QUESTION_S):
                self._resources[remote.name] = await self._find_resources(remote)
                self._openapi[remote.name] = await self._find_openapi(remote)
                await self._find_openapi_v2(remote)
        except (BackendError, TimeoutError, ValueError, LookupError, TypeError) as error:
            self._logger.warning(
                "discovery of an aggregated server failed",
                name=remote.name,
                error=str(error) or type(error).__name__,
            )
            return False
        return True

    async def _find_resources(self, remote: Remote) -> list[Object]:
        code, type_, body = await self._backends.get(remote, "/apis", _ACCEPT, _BYTES_MAX)
        if code == 200 and "apidiscovery.k8s.io" in type_:
            for group in orjson.loads(body)["items"]:
                if (group["metadata"].get("name") or "") != remote.group:
                    continue
                for version in group["versions"]:
                    if version["version"] == remote.version:
                        return list(version.get("resources") or ())
        code, _, body = await self._backends.get(remote, remote.path, _JSON, _BYTES_MAX)
        if code != 200:
            raise BackendError(f"{remote.path} answered {code}")
        return as_aggregated(orjson.loads(body).get("resources") or ())

    async def _find_openapi(self, remote: Remote) -> dict[str, str]:
        code, _, body = await self._backends.get(remote, "/openapi/v3", _JSON, _BYTES_MAX)
        if code != 200:
            return {}
        paths = orjson.loads(body).get("paths") or {}
        name = remote.path.removeprefix("/")
        if name not in paths:
            return {}
        query = urlsplit(paths[name].get("serverRelativeURL") or "").query
        return {name: parse_qs(query).get("hash", [""])[0]}

    async def _find_openapi_v2(self, remote: Remote) -> None:
        code, _, body = await self._backends.get(remote, "/openapi/v2", _JSON, _BYTES_MAX)
        if code != 200:
            self._openapi_v2.pop(remote.name, None)
            return
        digest = hashlib.sha256(body).digest()
        known = self._openapi_v2.get(remote.name)
        if known is None or known.digest != digest:
            part = await asyncio.to_thread(lambda: part_of(orjson.loads(body), remote.path))
            self._openapi_v2[remote.name] = _PartV2(digest, part)


class _PartV2(NamedTuple):
    """The OpenAPI v2 document of a server."""

    digest: bytes
    """Hash of the whole document."""
    part: Document


def as_aggregated(resources: Iterable[Object]) -> list[Object]:
    """Return the resources of an APIResourceList in the form of aggregated discovery."""
    by_name: dict[str, Object] = {}
    for resource in resources:
        name, _, below = resource["name"].partition("/")
        kind = {
            "group": resource.get("group", ""),
            "version": resource.get("version", ""),
            "kind": resource.get("kind", ""),
        }
        if below:
            parent = by_name.setdefault(name, {"resource": name, "verbs": []})
            entry = {
                "subresource": below,
                "responseKind": kind,
                "verbs": resource.get("verbs") or [],
            }
            parent.setdefault("subresources", []).append(entry)
            continue
        aggregated: Object = {
            "resource": name,
            "responseKind": kind,
            "scope": "Namespaced" if resource.get("namespaced") else "Cluster",
            "singularResource": resource.get("singularName", ""),
            "verbs": resource.get("verbs") or [],
        }
        for member in ("shortNames", "categories"):
            if resource.get(member):
                aggregated[member] = resource[member]
        by_name[name] = {
            **aggregated,
            **{k: v for k, v in by_name.get(name, {}).items() if k not in aggregated},
        }
    return list(by_name.values())
