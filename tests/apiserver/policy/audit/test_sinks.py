import asyncio
import gzip
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
from aiohttp import web

from kvstack.apiserver.policy.audit.batches import Batching, Buffered
from kvstack.apiserver.policy.audit.log_file import MEGABYTE, LogFile, Rotation
from kvstack.apiserver.policy.audit.policy import REQUEST_RESPONSE, STARTED
from kvstack.apiserver.policy.audit.sinks import (
    LEGACY,
    Errors,
    LineSink,
    Several,
    Truncating,
    json_line,
)
from kvstack.apiserver.policy.audit.webhook import Webhook
from kvstack.apiserver.policy.remote.kubeconfig import Target
from tests.apiserver.policy.audit.events import USER, KeptEvents, audit_context, event
from tests.apiserver.policy.clocks import FakeClock
from tests.apiserver.support.registries import Lines
from tests.apiserver.support.virtual_time import run

if TYPE_CHECKING:
    from kvstack.apimachinery.objects.json_object import Object


def test_an_event_has_the_members_of_upstream_in_their_order() -> None:
    found = audit_context(REQUEST_RESPONSE)
    found.annotate("b", "1")
    found.annotate("a", "2")
    found.annotate("b", "3")
    found.record_request({"metadata": {"name": "other", "uid": "u2"}, "data": {}})
    found.record_response({"kind": "Pod"})
    found.impersonated_user, found.constraint = USER, "impersonate:user-info"
    found.status = {"metadata": {}, "code": 200}
    made = found.event(STARTED, 1_800_000_000_223_456)
    assert made == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "auditID": "id-1",
        "stage": "ResponseStarted",
        "requestURI": "/api/v1/namespaces/a/pods/web",
        "verb": "get",
        "user": {"username": "alice", "uid": "u1", "groups": ["devs"], "extra": {"k": ["v"]}},
        "impersonatedUser": USER.to_object(),
        "authenticationMetadata": {"impersonationConstraint": "impersonate:user-info"},
        "sourceIPs": ["192.0.2.1"],
        "userAgent": "kubectl",
        "objectRef": {
            "resource": "pods",
            "namespace": "a",
            "name": "web",
            "uid": "u2",
            "apiVersion": "v1",
        },
        "responseStatus": {"metadata": {}, "code": 200},
        "requestObject": {"metadata": {"name": "other", "uid": "u2"}, "data": {}},
        "responseObject": {"kind": "Pod"},
        "requestReceivedTimestamp": "2027-01-15T08:00:00.123456Z",
        "stageTimestamp": "2027-01-15T08:00:00.223456Z",
        "annotations": {"a": "2", "b": "1"},
    }
    order = [*made][:8] + [*made][-3:]
    assert order[0] == "kind"
    assert order[-1] == "annotations"


def test_managed_fields_are_left_out_where_the_policy_says_so() -> None:
    found = audit_context(REQUEST_RESPONSE, omit_managed_fields=True)
    managed = {"metadata": {"name": "x", "managedFields": [{}]}}
    found.record_request(managed)
    found.record_response({"kind": "List", "items": [managed]})
    made = found.event(STARTED, 0)
    assert made["requestObject"] == {"metadata": {"name": "x"}}
    assert made["responseObject"]["items"] == [{"metadata": {"name": "x"}}]
    assert managed["metadata"]["managedFields"] == [{}]


def test_lines_are_json_or_legacy() -> None:
    lines: list[bytes] = []
    LineSink(lines.append, Errors(Lines())).process([event(), event()])
    assert [orjson.loads(each)["auditID"] for each in lines[0].splitlines()] == ["id-1"] * 2
    status = {"metadata": {}, "code": 404}
    LineSink(lines.append, Errors(Lines()), LEGACY).process([event(responseStatus=status)])
    assert lines[1] == (
        b'2027-01-15T08:00:00.123456Z AUDIT: id="id-1" stage="ResponseComplete" ip="192.0.2.1"'
        b' method="get" user="alice" groups="\\"devs\\"" as="<self>" asgroups="<lookup>"'
        b' user-agent="kubectl" namespace="a" uri="/api/v1/namespaces/a/pods/web"'
        b' response="404"\n'
    )


def test_a_line_that_cannot_be_written_is_lost() -> None:
    def full(_data: bytes) -> None:
        raise OSError("no space")

    errors = Errors(Lines())
    assert LineSink(full, errors).process([event()]) is False
    assert errors.counts == {"log": 1}


def test_large_events_lose_their_objects() -> None:
    kept, errors = KeptEvents(), Errors(Lines())
    small = event()
    size = len(json_line(small))
    large = event(REQUEST_RESPONSE, requestObject={"data": "x" * 1000})
    hopeless = event(userAgent="x" * 2000)
    sink = Truncating(kept, errors, size + 200, 2 * size + 200)
    assert sink.process([small, large, hopeless, small, small]) is True
    assert "requestObject" not in kept.events[1]
    assert kept.events[1]["annotations"] == {"audit.k8s.io/truncated": "true"}
    assert len(kept.events) == 4
    assert max(kept.batches) < 4
    assert errors.counts == {"truncate": 1}


def test_all_of_several_sinks_take_events() -> None:
    first, second = KeptEvents(), KeptEvents()
    second.takes = False
    assert Several([first, second]).process([event()]) is False
    assert len(first.events) == len(second.events) == 1


# Batches


def run_story(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    run(main())


def test_batches_go_when_they_are_full_or_old() -> None:
    async def story() -> None:
        kept = KeptEvents()
        sink = Buffered(kept, Errors(Lines()), Batching(size=3, wait_s=5, throttles=False))
        for _ in range(7):
            assert sink.process([event()])
        await asyncio.sleep(1)
        assert kept.batches == [3, 3]
        await asyncio.sleep(5)
        assert kept.batches == [3, 3, 1]
        sink.process([event()])
        await sink.stop()
        assert kept.batches == [3, 3, 1, 1]
        assert kept.is_stopped

    run_story(story)


def test_batches_are_throttled() -> None:
    async def story() -> None:
        kept = KeptEvents()
        sink = Buffered(kept, Errors(Lines()), Batching(size=1, wait_s=0, qps=2, burst=3))
        for _ in range(9):
            sink.process([event()])
        await asyncio.sleep(0.1)
        assert len(kept.batches) == 3
        await asyncio.sleep(2)
        assert len(kept.batches) == 7
        await sink.stop()
        assert len(kept.batches) == 9

    run_story(story)


def test_what_finds_the_buffer_full_is_lost() -> None:
    async def story() -> None:
        kept, errors = KeptEvents(), Errors(Lines())
        sink = Buffered(kept, errors, Batching(buffer=2, size=10, throttles=False))
        assert all(sink.process([event()]) for _ in range(5))
        await sink.stop()
        assert len(kept.events) == 2
        assert errors.counts == {"buffered": 3}

    run_story(story)


# Files


def test_a_large_file_is_put_aside(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "logs" / "audit.log"
    file = LogFile(path, Rotation(1, 2, 0, compresses=True), clock.unix_ms)
    for number in range(5):
        clock.seconds += 1.5
        file.write(str(number).encode() * (MEGABYTE - 10))
    file.close()
    names = sorted(each.name for each in path.parent.iterdir())
    assert names[0] == "audit-2027-01-15T08-00-06.000.log.gz"
    assert names[1:] == ["audit-2027-01-15T08-00-07.500.log.gz", "audit.log"]
    assert path.read_bytes()[:1] == b"4"
    with gzip.open(path.parent / names[1]) as packed:
        assert packed.read(1) == b"3"
    assert path.stat().st_mode & 0o777 == 0o600
    again = LogFile(path, Rotation(1, 2, 0), clock.unix_ms)
    again.write(b"x")
    again.close()
    assert path.stat().st_size == MEGABYTE - 10 + 1


def test_old_files_are_removed(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "audit.log"
    (tmp_path / "audit-2026-01-15T08-00-06.000.log").write_bytes(b"old")
    (tmp_path / "audit-other.log").write_bytes(b"of somebody else")
    file = LogFile(path, Rotation(1, 0, 30), clock.unix_ms)
    file.write(b"x" * MEGABYTE)
    file.write(b"x")
    file.close()
    names = {each.name for each in tmp_path.iterdir()}
    assert names == {"audit.log", "audit-other.log", "audit-2027-01-15T08-00-00.000.log"}


# Webhooks


class Receiver:
    """A server that takes lists of events, after some failures."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.lists: list[Object] = []
        self.headers: list[str] = []
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/events", self._take)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/events"

    async def stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        if self.failures:
            self.failures -= 1
            return web.Response(status=503)
        self.headers.append(request.headers.get("Authorization", ""))
        self.lists.append(orjson.loads(await request.read()))
        return web.Response()


@pytest.mark.parametrize(("failures", "is_taken"), [(0, True), (2, True), (99, False)])
def test_events_are_sent_until_they_are_taken(failures: int, is_taken: bool) -> None:  # noqa: FBT001
    async def main() -> None:
        receiver, errors = Receiver(failures), Errors(Lines())
        await receiver.start()
        hook = Webhook(Target(receiver.url, token="t"), errors, 0.01)
        assert await hook.process([event(), event()]) is is_taken
        await hook.stop()
        await receiver.stop()
        if is_taken:
            (found,) = receiver.lists
            assert (found["kind"], len(found["items"])) == ("EventList", 2)
            assert receiver.headers == ["Bearer t"]
        assert errors.counts == ({} if is_taken else {"webhook": 2})

    asyncio.run(main())
