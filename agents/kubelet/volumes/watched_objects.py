"""The config maps and secrets of a node's volumes, each by a watch of its own.

    watched.follow(uid, {("ConfigMap", "default", "settings")})     from now on
    watched.get(("ConfigMap", "default", "settings"))               its last state of the watch
    watched.forget(uid)                                             the pod is gone

A node may read what its pods refer to and nothing else, so there is a watch for each name, which
ends with the last pod that uses it. What is immutable is not watched any longer than until it is
known. Followers of an object are notified when it differs from what was read last.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final, TypeAlias

from kvstack.agents.client.api import Api, Event
from kvstack.agents.client.built_in import CONFIG_MAPS, SECRETS
from kvstack.agents.client.reflector import Reflector
from kvstack.agents.client.resource_type import ResourceType
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

Key: TypeAlias = tuple[str, str, str]
"""Kind, namespace, name."""

RESOURCES: Final[dict[str, ResourceType]] = {"ConfigMap": CONFIG_MAPS, "Secret": SECRETS}


class NotKnownError(Exception):
    """The watch of an object has not returned it yet."""


class _Watched:
    """One object; the sink of its reflector."""

    def __init__(self, on_change: Callable[["_Watched"], None]) -> None:
        self.users: set[str] = set()
        self.is_known = False
        self.object: Object | None = None
        self.read_version: str | None = None
        """The version that was read last; empty: it did not exist; None: not read."""
        self.task: asyncio.Task[None] | None = None
        self._on_change = on_change

    def replace(self, objects: list[Object], resource_version: str) -> None:
        """Replace all objects."""
        self._set(objects[0] if objects else None)

    def apply(self, events: list[Event]) -> None:
        """Apply changes."""
        for kind, obj in events:
            if kind != "BOOKMARK":
                self._set(None if kind == "DELETED" else obj)

    def _set(self, obj: Object | None) -> None:
        self.is_known, self.object = True, obj
        if version_of(obj) != self.read_version:
            self.read_version = version_of(obj)
            self._on_change(self)
        if obj is not None and obj.get("immutable") and self.task is not None:
            self.task.cancel()


class WatchedObjects:
    """The objects that volumes of one node's pods show; used on one loop."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        on_change: Callable[[str], None],
    ) -> None:
        """on_change: called with the uid of each pod that follows an object that changed."""
        self._api = api
        self._clock = clock
        self._random = random
        self._logger = logger
        self._on_change = on_change
        self._watched: dict[Key, _Watched] = {}
        self._of_pod: dict[str, set[Key]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def follow(self, uid: str, keys: Collection[Key]) -> None:
        """Follow exactly these objects for a pod."""
        before = self._of_pod.get(uid, set())
        for key in before.difference(keys):
            self._let_go(uid, key)
        for key in set(keys) - before:
            self._add(uid, key)
        if keys:
            self._of_pod[uid] = set(keys)
        else:
            self._of_pod.pop(uid, None)

    def forget(self, uid: str) -> None:
        """Stop following for a pod."""
        self.follow(uid, ())

    def get(self, key: Key) -> Object | None:
        """Return an object in its last watched state, None: it does not exist; NotKnownError."""
        watched = self._watched.get(key)
        if watched is None or not watched.is_known:
            raise NotKnownError
        return watched.object

    def note(self, key: Key, obj: Object | None) -> None:
        """Remember what was read of an object, so that this state is not reported again."""
        if (watched := self._watched.get(key)) is not None:
            watched.read_version = version_of(obj)

    async def close(self) -> None:
        """End all watches."""
        for uid in list(self._of_pod):
            self.forget(uid)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _add(self, uid: str, key: Key) -> None:
        watched = self._watched.get(key)
        if watched is None:
            watched = self._watched[key] = _Watched(self._changed)
            kind, namespace, name = key
            reflector = Reflector(
                self._api,
                RESOURCES[kind],
                watched,
                self._clock,
                self._random,
                self._logger,
                namespace=namespace,
                fields=f"metadata.name={name}",
            )
            loop = asyncio.get_running_loop()
            watched.task = loop.create_task(reflector.run(), name=f"watch of {'/'.join(key)}")
        watched.users.add(uid)

    def _let_go(self, uid: str, key: Key) -> None:
        watched = self._watched[key]
        watched.users.discard(uid)
        if not watched.users:
            del self._watched[key]
            if watched.task is not None:
                self._ending.add(watched.task)
                watched.task.add_done_callback(self._ending.discard)
                watched.task.cancel()

    def _changed(self, watched: _Watched) -> None:
        for uid in watched.users:
            self._on_change(uid)


def version_of(obj: Object | None) -> str:
    """Return the resourceVersion of an object; empty: there is none."""
    return "" if obj is None else str(obj["metadata"]["resourceVersion"])
