"""What is served, as the two forms of discovery tell it."""

import asyncio

from kvstack.agents.client.discovery import Discoverer, Discovery, discover
from kvstack.apimachinery.objects.json_object import Object


class Scripted:
    """Answers by path."""

    def __init__(self, documents: dict[str, Object]) -> None:
        self._documents = documents
        self.unchanged = 0

    async def get_changed(self, path: str, etag: str, *, accept: str) -> tuple[Object | None, str]:
        document = await self.call("GET", path, accept=accept)
        now = document.get("etag", "")
        if etag and etag == now:
            self.unchanged += 1
            return None, etag
        return document, now

    async def call(self, method: str, path: str, *, accept: str = "") -> Object:
        assert method == "GET"
        return self._documents[path]


def discovered(documents: dict[str, Object]) -> Discovery:
    return asyncio.run(discover(Scripted(documents)))  # type: ignore[arg-type]


def aggregated(group: str, *versions: Object) -> Object:
    item = {"metadata": {"name": group}, "versions": list(versions)}
    return {"kind": "APIGroupDiscoveryList", "items": [item]}


def version(name: str, *resources: str, **more: str) -> Object:
    rows = [
        {
            "resource": each,
            "responseKind": {"kind": each.title()},
            "scope": "Namespaced",
            "verbs": ["get", "list"],
        }
        for each in resources
    ]
    return {"version": name, "resources": rows, **more}


EMPTY = {"kind": "APIGroupDiscoveryList", "items": []}


def test_the_first_version_of_a_resource_is_preferred() -> None:
    documents = {
        "/api": EMPTY,
        "/apis": aggregated("g", version("v2", "a"), version("v1", "a", "b")),
    }
    told = discovered(documents)
    assert [(each.version, each.name) for each in told.preferred("list")] == [
        ("v2", "a"),
        ("v1", "b"),
    ]
    assert told.preferred("list", "watch") == []
    resource = told.of_kind("g/v1", "A")
    assert resource is not None
    assert told.verbs_of(resource) == {"get", "list"}
    assert told.of_kind("g/v3", "A") is None


def test_a_stale_version_is_a_failure() -> None:
    told = discovered(
        {"/api": EMPTY, "/apis": aggregated("g", version("v1", "a", freshness="Stale"))}
    )
    assert told.served == []
    assert told.failure_text() == (
        "unable to retrieve the complete list of server APIs:"
        " g/v1: stale GroupVersion discovery: g/v1"
    )


def test_older_servers() -> None:
    pods = {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": ["list"]}
    status = {**pods, "name": "pods/status"}
    group = {
        "name": "g",
        "versions": [{"version": "v1"}, {"version": "v2"}],
        "preferredVersion": {"version": "v2"},
    }
    things = {"resources": [{"name": "things", "kind": "Thing", "namespaced": False, "verbs": []}]}
    told = discovered(
        {
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/api/v1": {"resources": [pods, status]},
            "/apis": {"kind": "APIGroupList", "groups": [group]},
            "/apis/g/v1": things,
            "/apis/g/v2": things,
        }
    )
    assert [(str(each), each.version) for each in told.preferred()] == [
        ("pods", "v1"),
        ("things.g", "v2"),
    ]


def test_what_has_not_changed_is_not_read_again() -> None:
    async def story() -> None:
        documents = {
            "/api": {**EMPTY, "etag": "a"},
            "/apis": {**aggregated("g", version("v1", "a")), "etag": "b"},
        }
        scripted = Scripted(documents)
        discoverer = Discoverer(scripted)  # type: ignore[arg-type]
        first = await discoverer.discover()
        assert await discoverer.discover() is first
        assert scripted.unchanged == 2
        documents["/apis"] = {**aggregated("g", version("v1", "a", "b")), "etag": "c"}
        second = await discoverer.discover()
        assert [each.name for each in second.preferred("list")] == ["a", "b"]
        assert [each.name for each in first.preferred("list")] == ["a"]
        assert scripted.unchanged == 3
        documents["/apis"] = EMPTY  # of a server that has no ETags
        assert not (await discoverer.discover()).served
        assert not (await discoverer.discover()).served

    asyncio.run(story())
