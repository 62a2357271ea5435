"""Requests from HTTP to the store and back: objects, errors, limits, the past."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from random import Random

import orjson
import pytest
from typing_extensions import override

from kvstack.apiserver.http import encoding
from kvstack.apiserver.registry.compaction import Compaction
from kvstack.apiserver.verbs.environment import Settings
from kvstack.apiserver.verbs.writing.identifiers import SUFFIXES, Identifiers
from kvstore.client.errors import OutcomeUnknownError, UnavailableError
from tests.apiserver.support.sites import Api, site
from tests.apiserver.support.virtual_time import run

MAPS = "/api/v1/namespaces/a/configmaps"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


def run_story(story: Callable[[Api], Awaitable[None]], **options: object) -> None:
    """Tell a story to an API of its own."""

    async def main() -> None:
        async with site(**options) as api:  # type: ignore[arg-type]
            await story(api)

    run(main())


def config_map(name: str, **data: str) -> dict[str, object]:
    """Return a ConfigMap as clients send it."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_an_object_from_its_beginning_to_its_end() -> None:
    """Create, get, list, update, patch, apply, delete."""

    async def story(api: Api) -> None:
        made = await api.ask("POST", MAPS, config_map("x", a="1"))
        assert made.status == 201
        assert made.json["metadata"]["managedFields"][0]["manager"] == "tests"
        assert (await api.ask("GET", f"{MAPS}/x")).body == made.body
        listed = (await api.ask("GET", MAPS)).json
        assert [each["data"] for each in listed["items"]] == [{"a": "1"}]
        again = await api.ask("POST", MAPS, config_map("x"))
        assert (again.status, again.json["reason"]) == (409, "AlreadyExists")
        put = await api.ask("PUT", f"{MAPS}/x", {**made.json, "data": {"a": "2"}})
        assert (put.status, put.json["data"]) == (200, {"a": "2"})
        stale = await api.ask("PUT", f"{MAPS}/x", {**made.json, "data": {"a": "3"}})
        assert (stale.status, stale.json["reason"]) == (409, "Conflict")
        same = await api.ask("PUT", f"{MAPS}/x", put.json)
        assert same.body == put.body
        patched = await api.ask("PATCH", f"{MAPS}/x", {"data": {"b": "1"}}, content_type=MERGE)
        assert patched.json["data"] == {"a": "2", "b": "1"}
        applied = await api.ask(
            "PATCH", f"{MAPS}/x?fieldManager=m", config_map("x", c="1"), content_type=APPLY
        )
        assert applied.json["data"] == {"a": "2", "b": "1", "c": "1"}
        gone = await api.ask("DELETE", f"{MAPS}/x")
        assert gone.json["details"]["uid"] == made.json["metadata"]["uid"]
        assert (await api.ask("GET", f"{MAPS}/x")).status == 404

    run_story(story)


def test_a_dry_run_stores_nothing() -> None:
    """But is answered as if it did."""

    async def story(api: Api) -> None:
        revision = api.world.store.revision
        made = await api.ask("POST", f"{MAPS}?dryRun=All", config_map("x"))
        assert made.status == 201
        assert "resourceVersion" not in made.json["metadata"]
        assert api.world.store.revision == revision

    run_story(story)


class Suffixes(Random):
    """Chance that makes the same name twice."""

    @override
    def getrandbits(self, k: int, /) -> int:
        # The ends of many names are drawn at once, the first of them the highest bits.
        if k != 64 * SUFFIXES:
            return super().getrandbits(k)
        return sum(number << (k - 64 * place) for place, number in enumerate([7, 7, 8], 1))


def test_generated_names_are_tried_again() -> None:
    """When somebody has them."""

    async def story(api: Api) -> None:
        api.env.identifiers = Identifiers(Suffixes(1))
        body = {"metadata": {"generateName": "x-"}}
        names = [(await api.ask("POST", MAPS, body)).json["metadata"]["name"] for _ in range(2)]
        assert names == ["x-kbbbb", "x-lbbbb"]

    run_story(story)


@pytest.mark.parametrize(
    ("method", "target", "token", "status"),
    [
        ("GET", MAPS, "alice-token", 403),
        ("GET", MAPS, "", 403),
        ("GET", MAPS, "wrong", 401),
        ("GET", "/version", "", 200),
        ("GET", "/bogus", "admin-token", 404),
        ("GET", "/apis/apps/v9/deployments", "admin-token", 404),
        ("POST", f"{MAPS}/x", "admin-token", 405),
        ("PUT", MAPS, "admin-token", 405),
        ("GET", f"{MAPS}?limit=x", "admin-token", 400),
        ("GET", f"{MAPS}?resourceVersionMatch=Exact", "admin-token", 422),
        ("GET", f"{MAPS}/x?timeout=bad", "admin-token", 400),
    ],
)
def test_refusals(method: str, target: str, token: str, status: int) -> None:
    """Each with its code."""

    async def story(api: Api) -> None:
        assert (await api.ask(method, target, token=token)).status == status

    run_story(story)


@pytest.mark.parametrize(
    ("method", "content_type", "status"),
    [
        ("POST", "application/json", 400),
        ("PATCH", MERGE, 422),
        ("PATCH", APPLY, 500),
    ],
)
def test_what_defaults_cannot_read(method: str, content_type: str, status: int) -> None:
    """An annotation that has to be a number is refused where it is not, as upstream converts it."""

    async def story(api: Api) -> None:
        path = "/apis/apps/v1/namespaces/a/daemonsets"
        template = {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        body = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
        }
        assert (await api.ask("POST", path, body)).status == 201
        annotation = {"deprecated.daemonset.template.generation": "x"}
        body["metadata"] = {"name": "d", "annotations": annotation}
        target = path if method == "POST" else f"{path}/d?fieldManager=m"
        if content_type == APPLY:
            target += "&force=true"
        answer = await api.ask(method, target, body, content_type=content_type)
        assert answer.status == status
        assert 'strconv.ParseInt: parsing "x": invalid syntax' in answer.json["message"]

    run_story(story)


def test_what_cannot_be_read_can_be_deleted() -> None:
    """By who says that it may be unread; until then it spoils lists."""

    async def story(api: Api) -> None:
        await api.world.store.put(b"/registry/configmaps/a/bad", b"\0")
        assert (await api.ask("GET", MAPS)).status == 500
        assert (await api.ask("DELETE", f"{MAPS}/bad")).status == 500
        option = "ignoreStoreReadErrorWithClusterBreakingPotential=true"
        gone = await api.ask("DELETE", f"{MAPS}/bad?{option}")
        assert (gone.status, gone.json["status"]) == (200, "Success")
        assert (await api.ask("GET", MAPS)).json["items"] == []

    run_story(story)


def test_warnings_and_what_all_answers_have() -> None:
    """Unknown fields are told; the audit id is the client's."""

    async def story(api: Api) -> None:
        body = {**config_map("x"), "bogus": 1}
        made = await api.ask("POST", MAPS, body, audit_id="abc")
        assert made.all("warning") == ['299 - "unknown field \\"bogus\\""']
        assert (made.header("audit-id"), made.header("cache-control")) == (
            "abc",
            "no-cache, private",
        )
        strict = await api.ask("POST", f"{MAPS}?fieldValidation=Strict", body)
        assert strict.status == 400

    run_story(story)


def test_representations() -> None:
    """YAML, metadata alone, Tables, protobuf; and what cannot be had."""

    async def story(api: Api) -> None:
        await api.ask("POST", MAPS, config_map("x", a="1"))
        meta = "g=meta.k8s.io;v=v1"
        yaml = await api.ask("GET", f"{MAPS}/x", accept="application/yaml")
        assert yaml.body.startswith(b"apiVersion: v1\ndata:\n  a: ")
        part = await api.ask(
            "GET", f"{MAPS}/x", accept=f"application/json;as=PartialObjectMetadata;{meta}"
        )
        assert (part.json["kind"], "data" in part.json) == ("PartialObjectMetadata", False)
        table = await api.ask("GET", MAPS, accept=f"application/json;as=Table;{meta}")
        assert table.json["rows"][0]["cells"][:2] == ["x", 1]
        bytes_ = await api.ask("GET", f"{MAPS}/x", accept="application/vnd.kubernetes.protobuf")
        assert bytes_.body[:4] == b"k8s\0"
        assert (await api.ask("GET", MAPS, accept="text/html")).status == 406
        odd = await api.ask("POST", MAPS, b"x", content_type="text/plain")
        assert odd.status == 415
        pretty = await api.ask("GET", f"{MAPS}/x?pretty=true")
        assert orjson.loads(pretty.body)["data"] == {"a": "1"}
        assert b'\n  "kind"' in pretty.body

    run_story(story)


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (f"{MAPS}/nobody", 404),
        ("/apis", 200),
        ("/api", 200),
        ("/apis/apps", 200),
        ("/apis/apps/v1", 200),
        ("/api/v1/bogus", 404),
    ],
)
def test_errors_and_discovery_are_indented_if_that_is_asked(target: str, code: int) -> None:
    """As objects are: by the parameter, by Accept, or for a person's tool."""

    async def story(api: Api) -> None:
        compact = await api.ask("GET", target)
        assert compact.status == code
        assert compact.body == orjson.dumps(compact.json) + b"\n"
        for query, headers in (
            ("?pretty=1", {}),
            ("?pretty=true", {}),
            ("", {"accept": "application/json;pretty=1"}),
            ("?pretty=", {"user-agent": "curl/8.5"}),
        ):
            pretty = await api.ask("GET", target + query, **headers)
            assert pretty.body.startswith(b'{\n  "kind"'), (query, headers)
            assert (pretty.status, pretty.json) == (code, compact.json)
        for query in ("?pretty=0", "?pretty=bogus"):
            plain = await api.ask("GET", target + query, **{"user-agent": "curl/8.5"})
            assert plain.body == compact.body
        yaml = await api.ask("GET", f"{target}?pretty=1", accept="application/yaml")
        assert not yaml.body.startswith(b"{")

    run_story(story)


@pytest.mark.parametrize(
    "target",
    [
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        "/api/v1/namespaces/a/pods/x/eviction",
    ],
)
def test_what_can_only_be_created_is_no_table(target: str) -> None:
    """Upstream has no columns for reviews, bindings and evictions."""

    async def story(api: Api) -> None:
        answer = await api.ask(
            "POST", target, {}, accept="application/json;as=Table;v=v1;g=meta.k8s.io"
        )
        assert answer.status == 406
        assert answer.json["reason"] == "NotAcceptable"
        assert answer.json["message"].startswith("only the following media types are accepted: ")

    run_story(story)


@pytest.mark.parametrize(
    ("method", "target", "code"),
    [
        ("GET", "/version", 200),
        ("GET", "/version/", 200),
        ("HEAD", "/version", 405),
        ("GET", "/openapi/v2", 200),
        ("GET", "/openapi/v2/", 404),
        ("GET", "/metrics/", 404),
        ("GET", "/api/", 200),
        ("GET", "//api/v1/nodes", 404),
        ("GET", "//apis/apps/v1/deployments", 404),
        ("GET", "/api/v1/nodes", 200),
    ],
)
def test_paths_and_methods_that_upstream_does_not_route(
    method: str, target: str, code: int
) -> None:
    """Only what upstream routes by go-restful takes a slash at the end, and no HEAD."""

    async def story(api: Api) -> None:
        answer = await api.ask(method, target)
        assert answer.status == code
        if code == 404:
            assert answer.body == b"404 page not found\n"

    run_story(story)


@pytest.mark.parametrize("piece_bytes", [1, 500, 1_000, 1 << 20])
def test_lists_are_joined_whatever_the_pieces(
    piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All objects, each once, in valid JSON; the objects that are kept are as before."""
    monkeypatch.setattr(encoding, "WHOLE_BYTES_MAX", 0)
    monkeypatch.setattr(encoding, "PIECE_BYTES", piece_bytes)

    async def story(api: Api) -> None:
        for name in ("x", "y", "z"):
            await api.ask("POST", MAPS, config_map(name, a="1"))
        single = (await api.ask("GET", f"{MAPS}/x")).body
        for _ in range(2):
            listed = (await api.ask("GET", MAPS)).json
            assert listed["kind"] == "ConfigMapList"
            assert [each["metadata"]["name"] for each in listed["items"]] == ["x", "y", "z"]
        page = (await api.ask("GET", f"{MAPS}?limit=2")).json
        assert [each["metadata"]["name"] for each in page["items"]] == ["x", "y"]
        assert page["metadata"]["remainingItemCount"] == 1
        assert (await api.ask("GET", f"{MAPS}/x")).body == single

    run_story(story)


def test_large_answers_are_compressed() -> None:
    """For clients that take it."""

    async def story(api: Api) -> None:
        await api.ask("POST", MAPS, config_map("x", a="y" * 200_000))
        plain = await api.ask("GET", f"{MAPS}/x")
        packed = await api.ask("GET", f"{MAPS}/x", accept_encoding="gzip")
        assert plain.header("content-encoding") == ""
        assert packed.header("content-encoding") == "gzip"
        assert len(packed.body) < len(plain.body) // 10

    run_story(story)


@pytest.mark.parametrize(
    ("error", "reason", "is_repeated"),
    [
        (UnavailableError("no leader"), "ServerTimeout", True),
        (OutcomeUnknownError("lost"), None, False),
    ],
)
def test_a_store_that_fails(error: Exception, reason: str | None, *, is_repeated: bool) -> None:
    """Reads and writes of the present end in errors; any state is still served."""

    async def story(api: Api) -> None:
        await api.ask("POST", MAPS, config_map("x"))
        await api.world.settle()
        api.world.store.failing = error  # type: ignore[assignment]
        for method, target, body in (
            ("GET", MAPS, None),
            ("POST", MAPS, config_map("y")),
            ("DELETE", f"{MAPS}/x", None),
        ):
            answer = await api.ask(method, target, body)
            assert (answer.status, answer.json.get("reason")) == (500, reason)
            assert bool(answer.header("retry-after")) == is_repeated
        assert (await api.ask("GET", f"{MAPS}?resourceVersion=0")).status == 200
        api.world.store.failing = None
        assert (await api.ask("POST", MAPS, config_map("y"))).status == 201

    run_story(story)


def test_a_store_that_stalls_ends_requests_after_their_time() -> None:
    """504, after a minute or the time that the request gives."""

    async def story(api: Api) -> None:
        api.world.store.stalled = asyncio.Event()
        kept, task = api.begin("GET", f"{MAPS}?timeout=5s")
        await asyncio.sleep(4)
        assert not task.done()
        await asyncio.sleep(4)
        assert (kept.status, kept.json["reason"]) == (504, "Timeout")

    run_story(story)


def test_a_write_that_takes_too_long() -> None:
    """504 after 34 seconds; what becomes of it in the store is not known."""

    async def story(api: Api) -> None:
        stalled = asyncio.Event()

        async def txn(*_given: object, **_named: object) -> None:
            await stalled.wait()

        api.world.store.txn = txn  # type: ignore[assignment]
        kept, task = api.begin("POST", MAPS, config_map("x"))
        await asyncio.sleep(33)
        assert not task.done()
        await asyncio.sleep(3)
        assert (kept.status, kept.json["message"]) == (
            504,
            "Timeout: request did not complete within requested timeout - context deadline"
            " exceeded",
        )

    run_story(story)


def test_too_many_requests() -> None:
    """429 above the limit of reads or of writes; administrators are not counted out."""

    async def story(api: Api) -> None:
        api.world.store.stalled = asyncio.Event()
        begun = [api.begin("GET", MAPS) for _ in range(3)]
        await asyncio.sleep(0)
        refused = await api.ask("GET", "/version", token="alice-token")
        assert (refused.status, refused.header("retry-after")) == (429, "1")
        api.world.store.stalled.set()
        for _, task in begun:
            await task
        assert (await api.ask("GET", "/version", token="alice-token")).status == 200

    run_story(story, reads_max=2)


def test_the_past() -> None:
    """By revision and by time, read-only; what is forgotten tells the oldest time."""

    async def story(api: Api) -> None:
        await asyncio.sleep(30)
        made = await api.ask("POST", MAPS, config_map("x", a="1"))
        version = made.json["metadata"]["resourceVersion"]
        await asyncio.sleep(30)
        between = "2027-01-15T08:00:55Z"
        await api.ask("PUT", f"{MAPS}/x", config_map("x", a="2"))
        await api.ask("POST", MAPS, config_map("y"))
        await asyncio.sleep(30)
        for at in (version, between):
            old = await api.ask("GET", f"/at/{at}{MAPS}/x")
            assert old.body == made.body
            listed = (await api.ask("GET", f"/at/{at}{MAPS}")).json
            assert [each["metadata"]["name"] for each in listed["items"]] == ["x"]
        assert (await api.ask("GET", f"/at/2027-01-15T08:00:20Z{MAPS}")).json["items"] == []
        assert (await api.ask("DELETE", f"/at/{version}{MAPS}/x")).status == 405
        assert (await api.ask("GET", f"/at/{version}{MAPS}?watch=1")).status == 400
        assert (await api.ask("GET", f"/at/nonsense{MAPS}")).status == 400
        assert (await api.ask("GET", f"/at/2030-01-01T00:00:00Z{MAPS}")).status == 400
        older = await api.ask("GET", f"/at/2020-01-01T00:00:00Z{MAPS}")
        assert (older.status, older.json["reason"]) == (410, "Expired")
        assert "The oldest available time is 2027-01-15T08:00:0" in (older.json["message"])
        rounds = Compaction(api.world.store, api.world.registry.times, api.world.clock)
        await rounds.round()
        await rounds.round()
        api.world.config_maps.window.since = api.world.store.revision
        assert (await api.ask("GET", f"/at/{version}{MAPS}")).status == 410

    run_story(story, settings=Settings())


def test_metrics() -> None:
    """Requests are counted under upstream's names."""

    async def story(api: Api) -> None:
        await api.ask("POST", MAPS, config_map("x"))
        await api.ask("GET", MAPS)
        await api.ask("GET", f"{MAPS}/nope")
        text = (await api.ask("GET", "/metrics")).body.decode()
        head = 'component="apiserver",dry_run="",group="",resource="configmaps"'
        for line in (
            f'apiserver_request_total{{code="201",{head},scope="resource",subresource="",'
            'verb="POST",version="v1"} 1',
            f'apiserver_request_total{{code="200",{head},scope="namespace",subresource="",'
            'verb="LIST",version="v1"} 1',
            f'apiserver_request_total{{code="404",{head},scope="resource",subresource="",'
            'verb="GET",version="v1"} 1',
            'apiserver_current_inflight_requests{request_kind="readOnly"} 1',
            'apiserver_resource_objects{group="",resource="configmaps"} 1',
            'etcd_requests_total{group="",operation="create",resource="configmaps"} 1',
            'etcd_request_duration_seconds_count{group="",operation="create",'
            'resource="configmaps"} 1',
            'apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 4096',
        ):
            assert line in text, line

    run_story(story)


def test_a_list_that_is_asked_for_again_is_the_same_to_the_byte() -> None:
    """But for the resourceVersion, which is that of the whole store; also compressed, and paged."""

    async def story(api: Api) -> None:
        for name in ("x", "y"):
            await api.ask("POST", MAPS, config_map(name, a="v" * 100_000))
        bodies = [(await api.ask("GET", MAPS)).body for _ in range(4)]
        assert len(set(bodies)) == 1
        packed = [await api.ask("GET", MAPS, accept_encoding="gzip") for _ in range(2)]
        for each in packed:
            assert each.header("content-encoding") == "gzip"
            assert gzip.decompress(each.body) == bodies[0]
        pages = [(await api.ask("GET", f"{MAPS}?limit=1")).json for _ in range(4)]
        assert pages[0] == pages[3]
        assert pages[3]["metadata"]["remainingItemCount"] == 1
        await api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
        later = (await api.ask("GET", MAPS)).json
        before = orjson.loads(bodies[0])
        assert int(later["metadata"]["resourceVersion"]) > int(
            before["metadata"]["resourceVersion"]
        )
        assert later["items"] == before["items"]
        await api.ask("DELETE", f"{MAPS}/x")
        assert [
            each["metadata"]["name"] for each in (await api.ask("GET", MAPS)).json["items"]
        ] == ["y"]
        table = await api.ask("GET", MAPS, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
        assert len(table.json["rows"]) == 1

    run_story(story)


@pytest.mark.parametrize("probe", ["livenessProbe", "readinessProbe", "startupProbe"])
@pytest.mark.parametrize("given", [{}, {"service": None}])
def test_a_grpc_probe_without_a_service_has_an_empty_one(
    probe: str, given: dict[str, object]
) -> None:
    """Of a pod and of a template, whatever comes of decoding; clients read a null as a crash."""
    container = {"name": "c", "image": "i", probe: {"grpc": {"port": 9090, **given}}}
    pod = {"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"containers": [container]}}
    deployment = {
        "metadata": {"name": "x"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": pod},
    }

    async def story(api: Api) -> None:
        made = await api.ask("POST", "/api/v1/namespaces/a/pods", pod)
        assert made.status == 201, made.json
        (found,) = made.json["spec"]["containers"]
        assert found[probe]["grpc"] == {"port": 9090, "service": ""}
        made = await api.ask("POST", "/apis/apps/v1/namespaces/a/deployments", deployment)
        assert made.status == 201, made.json
        (found,) = made.json["spec"]["template"]["spec"]["containers"]
        assert found[probe]["grpc"] == {"port": 9090, "service": ""}

    run_story(story)
