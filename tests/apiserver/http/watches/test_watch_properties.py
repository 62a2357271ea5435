"""Property: a list and the events of a watch from its revision on are the list of later."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kvstore.client.errors import UnavailableError
from tests.apiserver.support.sites import Api, KeptAnswer, site
from tests.apiserver.support.virtual_time import run

MAPS = "/api/v1/namespaces/a/configmaps"
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("vw"), st.sampled_from("01")),
        st.tuples(st.just("delete"), st.sampled_from("vw"), st.just("")),
        st.tuples(st.just("watch"), st.sampled_from(("", "l=1")), st.just("")),
        st.tuples(st.just("forget"), st.just(""), st.just("")),
        st.tuples(st.just("break"), st.just(""), st.just("")),
        st.tuples(st.just("wait"), st.just(""), st.just("")),
    ),
    max_size=30,
)


class Follower:
    """A client that lists, then watches, and begins anew from where it was when a watch ends."""

    def __init__(self, api: Api, selector: str) -> None:
        """Follow what a selector of labels selects."""
        self.query = f"labelSelector={selector.replace('=', '%3D')}"
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = ""
        self._api = api
        self._kept = KeptAnswer()
        self._task: asyncio.Task[None] | None = None
        self._taken = 0

    async def begin(self) -> None:
        """List and watch."""
        listed = (await self._api.ask("GET", f"{MAPS}?{self.query}")).json
        self.objects = {each["metadata"]["name"]: each for each in listed["items"]}
        self.version = listed["metadata"]["resourceVersion"]
        self._watch()

    def _watch(self) -> None:
        target = f"{MAPS}?{self.query}&watch=1&resourceVersion={self.version}"
        self._kept, self._task = self._api.begin("GET", target)
        self._taken = 0

    def take(self) -> None:
        """Apply what has come; watch again if the watch is over."""
        events = self._kept.lines[self._taken :]
        self._taken += len(events)
        for event in events:
            meta = event["object"]["metadata"]
            name = meta["name"]
            assert int(meta["resourceVersion"]) > int(self.version), "revisions go forward"
            self.version = meta["resourceVersion"]
            assert (name in self.objects) is (event["type"] != "ADDED"), event
            if event["type"] == "DELETED":
                del self.objects[name]
            else:
                self.objects[name] = event["object"]
        if self._task is not None and self._task.done():
            self._watch()


async def step(api: Api, followers: list[Follower], operation: str, name: str, label: str) -> None:
    """Do one thing."""
    store = api.world.store
    if operation == "put":
        body = {"metadata": {"name": name, "labels": {"l": label}}}
        made = await api.ask("POST", MAPS, body)
        if made.status == 409:
            await api.ask("PUT", f"{MAPS}/{name}", body)
    elif operation == "delete":
        await api.ask("DELETE", f"{MAPS}/{name}")
    elif operation == "watch":
        followers.append(Follower(api, name))
        await followers[-1].begin()
    elif operation == "forget":
        window = api.world.config_maps.window
        if api.world.registry.watch_cache.is_loaded and len(window):
            window.since = window._changes[-1].revision
            window._changes.clear()
    elif operation == "break":
        store.break_watches(UnavailableError("broken"))
        await asyncio.sleep(1)
    else:
        await asyncio.sleep(0.1)


async def settle(api: Api, followers: list[Follower]) -> None:
    """Let everything arrive."""
    await asyncio.sleep(1)
    await api.world.settle()
    for _ in range(3):
        await asyncio.sleep(0.1)
        for each in followers:
            each.take()


@settings(deadline=None, max_examples=40)
@given(STEPS)
def test_followers_see_what_is_there(steps: list[tuple[str, str, str]]) -> None:
    """Whatever is forgotten or broken on the way: nothing is lost, nothing comes twice."""

    async def main() -> None:
        async with site() as api:
            followers = [Follower(api, ""), Follower(api, "l=1")]
            for each in followers:
                await each.begin()
            for act, name, label in steps:
                await step(api, followers, act, name, label)
                if act == "wait":  # else they are late
                    for each in followers:
                        each.take()
            await settle(api, followers)
            for each in followers:
                listed = (await api.ask("GET", f"{MAPS}?{each.query}")).json["items"]
                assert sorted(each.objects) == [one["metadata"]["name"] for one in listed]
                for one in listed:
                    seen = each.objects[one["metadata"]["name"]]
                    assert seen["metadata"] == one["metadata"]

    run(main())
