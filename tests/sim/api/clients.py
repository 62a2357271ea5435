"""Clients of several API servers: they write, read and watch ConfigMaps, and have all checked.

Objects are few, so that clients meet. Each write bears a tag of its own in `data`, which tells in
the history of the store what it has done; `n` counts updates.
"""

import asyncio
from contextlib import aclosing
from typing import Final

import orjson
from typing_extensions import override

from kvstack.agents.client.api import Api
from kvstack.agents.client.api import Event as WatchEvent
from kvstack.agents.client.built_in import CONFIG_MAPS
from kvstack.agents.client.informer import Informer
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.resource import MERGE_PATCH
from tests.sim.api.checks import Checks, WatchCheck, version_of
from tests.sim.api.oracle import Scope
from tests.sim.stack.base import BaseWorld
from tests.sim.stack.links import SimTransport
from tests.sim.stack.servers import ADMIN
from tests.sim.stack.timing import SimClock

NAMESPACES: Final = ("north", "south")
NAMES: Final = ("a", "b", "c", "d")
COLORS: Final = ("red", "blue")
SCOPES: Final = (Scope(), Scope("north"), Scope("south", "red"), Scope("", "blue"))
_REFUSALS: Final = frozenset((400, 403, 404, 409, 410, 422, 429))
"""Codes after which a write was certainly not done."""
_GONE: Final = 410


class Client:
    """One client, until it is stopped."""

    def __init__(self, world: BaseWorld, checks: Checks, name: str) -> None:
        """Do nothing yet."""
        self.name: Final = name
        self.is_stopped = self.is_over = False
        self._world = world
        self._rng = world.rng
        self._checks = checks
        self._api = Api(SimTransport(world.network, name, ADMIN))
        self.pause_s = self._rng.choice((0.05, 0.1, 0.3))
        self._seen = 0  # the last revision of its own

    async def run(self) -> None:
        """Work until stopped."""
        while not self.is_stopped:
            await asyncio.sleep(self._rng.uniform(0, 2 * self.pause_s))
            try:
                await self._step()
            except UnreachableError:
                self._checks.count("unreachable")
            except ApiError as error:
                self._checks.count(f"error {error.code}")
        self.is_over = True

    async def _step(self) -> None:
        raise NotImplementedError

    def _random_key(self) -> tuple[str, str]:
        return self._rng.choice(NAMESPACES), self._rng.choice(NAMES)

    def _ceiling(self) -> int:
        """Return the newest revision of any member."""
        return self._world.members.revision()


class Writer(Client):
    """Creates, counts on, patches and deletes."""

    def __init__(self, world: BaseWorld, checks: Checks, name: str) -> None:
        super().__init__(world, checks, name)
        self._known: dict[tuple[str, str], Object] = {}
        self._number = 0

    @override
    async def _step(self) -> None:
        kinds = ("create", "update", "stale update", "patch", "delete", "delete this")
        kind = self._rng.choices(kinds, (3, 6, 2, 4, 1, 1))[0]
        namespace, name = place = self._random_key()
        self._number += 1
        tag = f"{self.name}-{self._number}"
        condition = 0
        data = {"n": "0", "tag": tag, "kind": kind.split()[-1]}
        try:
            if kind == "create":
                made = await self._api.create(CONFIG_MAPS, namespace, self._new(place, data))
            elif kind == "patch":
                del data["n"]
                labels = {"color": self._rng.choice((*COLORS, None))}
                body = {"metadata": {"labels": labels}, "data": data}
                made = await self._api.patch(CONFIG_MAPS, namespace, name, body, MERGE_PATCH)
            elif kind in ("update", "stale update"):
                obj = await self._base(place, is_stale=kind == "stale update")
                if obj is None:
                    return
                condition = version_of(obj)
                data["n"] = str(int(obj["data"]["n"]) + 1)
                changed = self._new(place, data)
                changed["metadata"] = {**obj["metadata"], **changed["metadata"]}
                made = await self._api.update(CONFIG_MAPS, changed)
            else:
                await self._delete(place, has_version=kind == "delete this")
                return
        except ApiError as error:
            if error.code in _REFUSALS:
                self._checks.refused(tag)
            raise
        self._checks.written(tag, made, condition)
        self._known[place] = made

    def _new(self, location: tuple[str, str], data: Object) -> Object:
        namespace, name = location
        labels = {"color": self._rng.choice(COLORS)}
        metadata = {"namespace": namespace, "name": name, "labels": labels}
        return {"metadata": metadata, "data": data}

    async def _base(self, location: tuple[str, str], *, is_stale: bool) -> Object | None:
        if is_stale:
            return self._known.get(location)
        return await self._api.get(CONFIG_MAPS, *location)

    async def _delete(self, location: tuple[str, str], *, has_version: bool) -> None:
        obj = await self._api.get(CONFIG_MAPS, *location)
        version = obj["metadata"]["resourceVersion"] if has_version else ""
        uid = obj["metadata"]["uid"]
        floor = self._checks.revealed if has_version else version_of(obj)
        floor = min(floor, version_of(obj))
        await self._api.delete(CONFIG_MAPS, *location, uid=uid, resource_version=version)
        self._checks.deleted(uid, floor, int(version or 0))


class Reader(Client):
    """Lists and gets, in every way."""

    @override
    async def _step(self) -> None:
        kinds = (self._list, self._list_any, self._list_exactly, self._list_pages, self._get)
        await self._rng.choice(kinds)()

    async def _list(self) -> None:
        """List the present."""
        scope, floor = self._rng.choice(SCOPES), self._checks.revealed
        page = await self._api.list_page(CONFIG_MAPS, scope.namespace, labels=_labels(scope))
        self._take(scope, page.items, page.resource_version, floor)

    async def _list_any(self) -> None:
        """List any state, or one at least as new."""
        scope, floor = self._rng.choice(SCOPES), self._rng.choice((0, self._seen))
        page = await self._api.list_page(
            CONFIG_MAPS, scope.namespace, labels=_labels(scope), resource_version=str(floor)
        )
        self._take(scope, page.items, page.resource_version, floor)

    async def _list_exactly(self) -> None:
        """List the state of a revision, as long as it is kept."""
        scope, exact = self._rng.choice(SCOPES), self._seen - self._rng.randrange(20)
        if exact <= 0:
            return
        query = {"resourceVersion": str(exact), "resourceVersionMatch": "Exact"}
        if scope.color:
            query["labelSelector"] = _labels(scope)
        found = await self._api.call("GET", CONFIG_MAPS.path(scope.namespace), query)
        self._checks.listed(
            scope, found["items"], int(found["metadata"]["resourceVersion"]), exact, exact
        )

    async def _list_pages(self) -> None:
        """List the present in pages, which are all of one state."""
        scope, floor = self._rng.choice(SCOPES), self._checks.revealed
        items: list[Object] = []
        token = version = ""
        while True:
            page = await self._api.list_page(
                CONFIG_MAPS, scope.namespace, labels=_labels(scope), limit=2, continue_token=token
            )
            items += page.items
            token, version = page.continue_token, version or page.resource_version
            if not token:
                break
            await asyncio.sleep(self._rng.uniform(0, self.pause_s))
        self._take(scope, items, version, floor)

    async def _get(self) -> None:
        """Read the present of one object, or any state."""
        namespace, name = self._random_key()
        is_present = self._rng.random() < 0.7
        floor = self._checks.revealed if is_present else 0
        obj: Object | None = None
        try:
            version = None if is_present else "0"
            obj = await self._api.get(CONFIG_MAPS, namespace, name, resource_version=version)
        except ApiError as error:
            if error.code != 404:
                raise
        self._checks.read(f"{namespace}/{name}", obj, floor, self._ceiling())

    def _take(self, scope: Scope, items: list[Object], version: str, floor: int) -> None:
        self._seen = max(self._seen, int(version))
        self._checks.listed(scope, items, int(version), floor)


class Watcher(Client):
    """Watches a scope, from a list or from where it was, through every break."""

    def __init__(self, world: BaseWorld, checks: Checks, name: str, scope: Scope) -> None:
        super().__init__(world, checks, name)
        self.scope: Final = scope
        self.revision = 0  # 0: it has to list

    @override
    async def _step(self) -> None:
        try:
            if not self.revision:
                floor = self._checks.revealed
                page = await self._api.list_page(
                    CONFIG_MAPS, self.scope.namespace, labels=_labels(self.scope)
                )
                self.revision = int(page.resource_version)
                self._checks.listed(self.scope, page.items, self.revision, floor)
            await self._watch()
        except ApiError as error:
            if error.code == _GONE:
                self.revision = 0
            raise

    async def _watch(self) -> None:
        check = WatchCheck(self._checks, self.name, self.scope, self.revision)
        stream = self._api.watch(
            CONFIG_MAPS,
            self.scope.namespace,
            resource_version=str(self.revision),
            labels=_labels(self.scope),
            timeout_s=self._rng.choice((3, 30, 300)),
        )
        leaves_after = self._rng.choice((1, 10, 1000))
        async with aclosing(stream):
            async for events in stream:
                for kind, obj in events:
                    if kind == "BOOKMARK":
                        check.bookmark(version_of(obj))
                    else:
                        check.event(kind, obj)
                        leaves_after -= 1
                    self.revision = check.revision
                if leaves_after <= 0:
                    return

    def lacks(self, last: int) -> bool:
        """Whether it was not told of all changes up to the last of its scope."""
        return self.revision < last


class _Checked(Informer):
    """An informer whose store is compared with the history after each change."""

    def __init__(self, checks: Checks, api: Api, world: BaseWorld) -> None:
        chance = world.rng.random
        super().__init__(api, CONFIG_MAPS, SimClock(), chance, world.log)
        self._checks = checks

    @override
    def replace(self, objects: list[Object], resource_version: str) -> None:
        super().replace(objects, resource_version)
        self._check()

    @override
    def apply(self, events: list[WatchEvent]) -> None:
        super().apply(events)
        self._check()

    def _check(self) -> None:
        objects = {key_of(each): orjson.loads(orjson.dumps(each)) for each in self.store}
        self._checks.followed(Scope(), objects, int(self.store.resource_version))


class Follower(Client):
    """Follows everything with an informer, as controllers do."""

    def __init__(self, world: BaseWorld, checks: Checks, name: str) -> None:
        super().__init__(world, checks, name)
        self.scope: Final = Scope()
        self._informer = _Checked(checks, self._api, world)

    @override
    async def run(self) -> None:
        await self._informer.run()

    def lacks(self, last: int) -> bool:
        """Whether its store is older than the last change of its scope."""
        return int(self._informer.store.resource_version or 0) < last


def _labels(scope: Scope) -> str:
    return f"color={scope.color}" if scope.color else ""
