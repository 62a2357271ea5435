"""Watches on a stream without IO: what is asked of servers, what readers are told, what is kept."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kvstore import errors as texts
from kvstore.client.codec.decode import make_decoder
from kvstore.client.errors import (
    CallFailedError,
    ClosedError,
    PermissionDeniedError,
    StoreError,
    UnauthenticatedError,
)
from kvstore.client.options import ClientOptions
from kvstore.client.tokens import Tokens
from kvstore.client.values import (
    Compacted,
    Events,
    Interrupted,
    Progress,
    Restored,
    Resumed,
    Started,
)
from kvstore.client.watch import Watch
from kvstore.client.watch_session import WatchSession
from kvstore.errors import Code
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.fake_channel import FakeChannel, FakeStream

AWAY = CallFailedError(Code.UNAVAILABLE, "away", True)


class World:
    """A session on a fake channel."""

    def __init__(self, options: ClientOptions) -> None:
        self.channel = FakeChannel()
        self.revision = 5
        self.session = WatchSession(
            self.channel,
            Tokens(self.channel, options),
            make_decoder(),
            options,
            self.current_revision,
        )

    async def current_revision(self) -> int:
        return self.revision

    @property
    def stream(self) -> FakeStream:
        return self.channel.streams[-1]

    def watch(self, start_revision: int = 0, key: bytes = b"k") -> Watch:
        found = Watch(
            self.session, key, b"", start_revision, prev_kv=False, filters=(), progress_notify=False
        )
        self.session.add(found)
        return found

    async def reopened(self, count: int) -> FakeStream:
        """Wait until so many streams have been opened."""
        await self.channel.opened(count)
        return self.stream

    def created(self, watch: Watch, revision: int = 5, stream: FakeStream | None = None) -> None:
        header = pb.ResponseHeader(revision=revision)
        response = pb.WatchResponse(header=header, watch_id=watch.id, created=True)
        (stream or self.stream).tell(response.SerializeToString())

    def deliver(self, watch: Watch, *revisions: int) -> None:
        self.stream.tell(events(watch.id, *revisions))

    def progress(self, revision: int, watch_id: int = -1) -> None:
        header = pb.ResponseHeader(revision=revision)
        self.stream.tell(pb.WatchResponse(header=header, watch_id=watch_id).SerializeToString())


def events(watch_id: int, *revisions: int, size: int = 0) -> bytes:
    found = [
        kv_pb2.Event(kv=kv_pb2.KeyValue(key=b"k", value=bytes(size), mod_revision=each))
        for each in revisions
    ]
    header = pb.ResponseHeader(revision=revisions[-1])
    return pb.WatchResponse(header=header, watch_id=watch_id, events=found).SerializeToString()


def waiting(watch: Watch) -> list[object]:
    """Return what waits for a reader, with events as their revisions."""
    return [
        [e.kv.mod_revision for e in value.events] if isinstance(value, Events) else value
        for value, _ in watch._queue
    ]


def play(
    scenario: Callable[[World], Awaitable[None]], options: ClientOptions | None = None
) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await scenario(World(options or ClientOptions()))

    asyncio.run(bounded())


def test_one_stream_for_all_watches_and_none_without_watches() -> None:
    async def scenario(world: World) -> None:
        first, second = world.watch(), world.watch(start_revision=7)
        assert len(world.channel.streams) == 1
        assert world.stream.metadata == (("hasleader", "true"),)
        creates = [each.create_request for each in world.stream.requests()]
        assert [each.start_revision for each in creates] == [0, 7]
        assert [each.watch_id for each in creates] == [first.id, second.id] == [1, 2]
        world.created(first)
        first.cancel()
        [request] = world.stream.requests()
        assert request.cancel_request.watch_id == 1
        assert not world.stream.is_over
        second.cancel()
        assert world.stream.is_cancelled
        world.watch()
        assert len(world.channel.streams) == 2

    play(scenario)


def test_events_are_given_once_and_in_order() -> None:
    async def scenario(world: World) -> None:
        watch = world.watch()
        world.created(watch, 5)
        world.deliver(watch, 6, 6, 7)
        world.deliver(watch, 7, 8)
        world.deliver(watch, 6)
        world.stream.tell(events(99, 9))
        assert waiting(watch) == [Started(5), [6, 6, 7], [8]]
        assert world.stream.done_bytes > 0

    play(scenario)


def test_shared_tails_are_read_once() -> None:
    async def scenario(world: World) -> None:
        watches = [world.watch() for _ in range(3)]
        for each in watches:
            world.created(each)
        tail = events(0, 6)[4:]
        for each in watches:
            header = pb.ResponseHeader(revision=6)
            head = pb.WatchResponse(header=header, watch_id=each.id).SerializeToString()
            world.stream.tell(head, tail)
        found = [each._queue[-1][0] for each in watches]
        assert found[0] == found[1] == found[2]
        assert isinstance(found[0], Events)
        assert found[0].events is found[1].events is found[2].events  # type: ignore[union-attr]

    play(scenario)


def test_a_break_is_reported_and_the_watch_resumes() -> None:
    async def scenario(world: World) -> None:
        watch, late = world.watch(), world.watch()
        world.created(watch, 5)
        world.deliver(watch, 8)
        world.stream.break_off(AWAY)
        stream = await world.reopened(2)
        creates = [each.create_request for each in stream.requests()]
        assert [each.start_revision for each in creates] == [9, 0]
        world.created(watch, 9)
        world.created(late, 9)
        world.deliver(watch, 9)
        assert waiting(watch) == [Started(5), [8], Interrupted("away"), Resumed(9), [9]]
        assert waiting(late) == [Started(9)]

    play(scenario)


def test_the_first_revision_of_a_watch_from_now_on_is_kept() -> None:
    async def scenario(world: World) -> None:
        watch = world.watch()
        world.created(watch, 5)
        world.stream.requests()
        world.stream.break_off(None)
        stream = await world.reopened(2)
        assert stream.requests()[0].create_request.start_revision == 6

    play(scenario)


@pytest.mark.parametrize("code", [Code.UNAVAILABLE, Code.INTERNAL, Code.RESOURCE_EXHAUSTED])
def test_what_passes_is_tried_again_with_pauses(code: Code) -> None:
    async def scenario(world: World) -> None:
        watch = world.watch()
        for count in range(1, 6):
            (await world.reopened(count)).break_off(CallFailedError(code, "no", True))
        await world.reopened(6)
        world.created(watch)
        assert waiting(watch) == [Started(5)]
        assert world.session._pause_s > 0.05

    play(scenario)


def test_what_is_refused_for_good_ends_all() -> None:
    async def scenario(world: World) -> None:
        watches = [world.watch(), world.watch()]
        world.created(watches[0])
        world.stream.break_off(CallFailedError(*texts.PERMISSION_DENIED, True))
        assert await anext(watches[0]) == Started(5)
        for each in watches:
            with pytest.raises(PermissionDeniedError):
                await anext(each)
            with pytest.raises(StopAsyncIteration):
                await anext(each)
        assert len(world.channel.streams) == 1

    play(scenario)


def test_a_refusal_without_an_id_is_of_the_oldest_create() -> None:
    async def scenario(world: World) -> None:
        first, second, third = world.watch(), world.watch(), world.watch()
        world.created(first)
        refusal = pb.WatchResponse(
            watch_id=-1, created=True, canceled=True, cancel_reason=texts.PERMISSION_DENIED.text
        )
        world.stream.tell(refusal.SerializeToString())
        world.created(third)
        with pytest.raises(PermissionDeniedError):
            await anext(second)
        assert waiting(first) == waiting(third) == [Started(5)]

    play(scenario)


def test_a_token_that_was_forgotten_is_renewed() -> None:
    token = pb.AuthenticateResponse(token="t").SerializeToString()

    async def scenario(world: World) -> None:
        world.channel.replies = [token] * 10
        watch = world.watch()
        stream = await world.reopened(1)
        assert stream.metadata == (("token", "t"), ("hasleader", "true"))
        world.created(watch)
        other = world.watch()
        world.session._opened_at -= 3600
        refusal = pb.WatchResponse(
            watch_id=-1, created=True, canceled=True, cancel_reason=texts.PERMISSION_DENIED.text
        ).SerializeToString()
        stream.tell(refusal)
        await world.reopened(2)
        world.created(watch)
        assert waiting(watch)[1:] == [
            Interrupted(texts.PERMISSION_DENIED.text), Resumed(5),
        ]  # fmt: skip
        world.stream.tell(refusal)  # and again, with a token that is new
        with pytest.raises(PermissionDeniedError):
            await anext(other)

    play(scenario, ClientOptions(user="u", password="p"))


def test_a_user_who_is_not_known_ends_all() -> None:
    async def scenario(world: World) -> None:
        world.channel.replies = [CallFailedError(*texts.AUTH_FAILED, True)]
        with pytest.raises(UnauthenticatedError):
            await anext(world.watch())

    play(scenario, ClientOptions(user="u", password="wrong"))


def test_progress_goes_to_those_who_asked() -> None:
    async def scenario(world: World) -> None:
        watch, other = world.watch(), world.watch()
        world.created(watch)
        world.created(other)
        world.stream.requests()
        watch.request_progress()
        watch.request_progress()
        assert [each.HasField("progress_request") for each in world.stream.requests()] == [True]
        world.progress(9)
        assert waiting(watch) == [Started(5), Progress(9)]
        assert waiting(other) == [Started(5)]
        world.progress(12, other.id)  # its own notification
        assert waiting(other) == [Started(5), Progress(12)]
        world.progress(13, other.id)
        assert waiting(other) == [Started(5), Progress(13)]  # one that waits is enough
        world.stream.break_off(AWAY)
        stream = await world.reopened(2)
        starts = [each.create_request.start_revision for each in stream.requests()]
        assert starts == [9, 13]  # one revision early: else the server is silent about progress

    play(scenario)


def test_progress_is_asked_again_until_it_comes() -> None:
    async def scenario(world: World) -> None:
        watch = world.watch()
        watch.request_progress()  # before it has begun
        assert not any(each.HasField("progress_request") for each in world.stream.requests())
        world.created(watch)
        count = 0
        while count < 3:
            await asyncio.sleep(0.01)
            count += sum(each.HasField("progress_request") for each in world.stream.requests())
        world.progress(7)
        assert waiting(watch) == [Started(5), Progress(7)]
        watch.request_progress()
        watch.cancel()
        assert world.session._ask_timer is None

    play(scenario)


def test_a_watch_ahead_of_the_store_is_begun_earlier_for_progress() -> None:
    async def scenario(world: World) -> None:
        watch = world.watch(start_revision=6)
        other = world.watch()
        world.created(watch, 5)
        world.created(other, 5)
        world.stream.requests()
        first_id = watch.id
        other.request_progress()
        requests = world.stream.requests()
        assert requests[0].cancel_request.watch_id == first_id
        assert requests[1].create_request.start_revision == 5
        assert requests[2].HasField("progress_request")
        world.created(watch, 5)
        world.deliver(watch, 5)  # which it did not ask for
        world.deliver(watch, 6)
        assert waiting(watch) == [Started(5), [6]]

    play(scenario)


def test_an_early_start_that_is_compacted_is_no_end() -> None:
    async def scenario(world: World) -> None:
        watch = world.watch()
        world.created(watch, 5)
        world.deliver(watch, 8)
        watch.request_progress()
        world.stream.break_off(AWAY)
        stream = await world.reopened(2)
        assert stream.requests()[0].create_request.start_revision == 8
        gone = pb.WatchResponse(watch_id=watch.id, canceled=True, compact_revision=9)
        stream.tell(gone.SerializeToString())
        assert stream.requests()[0].create_request.start_revision == 9
        world.created(watch, 12)
        gone.watch_id, gone.compact_revision = watch.id, 10
        stream.tell(gone.SerializeToString())
        assert waiting(watch)[-2:] == [Resumed(12), Compacted(10)]
        assert watch.is_over

    play(scenario)


def test_what_is_not_read_is_bounded_and_comes_later() -> None:
    async def scenario(world: World) -> None:
        watch = world.watch()
        world.created(watch, 5)
        for revision in range(6, 30):
            world.stream.tell(events(watch.id, revision, size=1000))
        deliver = waiting(watch)
        assert isinstance(deliver[-1], Interrupted)
        assert watch.queued_bytes < 15_000
        revisions = deliver[-2]
        assert isinstance(revisions, list)
        [last] = revisions
        requests = world.stream.requests()
        assert requests[-1].HasField("cancel_request")
        for _ in deliver:
            await anext(watch)
        [request] = world.stream.requests()
        assert request.create_request.start_revision == last + 1
        world.created(watch, 40)
        assert waiting(watch) == [Resumed(40)]

    play(scenario, ClientOptions(watch_bytes_max=10_000))


def test_all_watches_share_a_limit() -> None:
    async def scenario(world: World) -> None:
        watches = [world.watch() for _ in range(10)]
        for each in watches:
            world.created(each)
        for revision in range(6, 30):
            for each in watches:
                world.stream.tell(events(each.id or 999, revision, size=1000))
        assert sum(each.queued_bytes for each in watches) < 60_000
        assert all(each.is_suspended for each in watches)
        for each in watches:
            each.cancel()
        assert world.session._queued_bytes == 0

    play(scenario, ClientOptions(watches_bytes_max=40_000))


def test_a_member_that_is_behind_is_no_store_restored() -> None:
    async def scenario(world: World) -> None:
        watch = world.watch()
        world.created(watch, 20)
        world.stream.break_off(AWAY)
        await world.reopened(2)
        world.revision = 21
        world.created(watch, 15)
        await asyncio.sleep(0.01)
        assert waiting(watch)[-1] == Resumed(15)
        world.stream.break_off(AWAY)
        await world.reopened(3)
        world.revision = 16
        world.created(watch, 16)
        await asyncio.sleep(0.01)
        assert waiting(watch)[-1] == Restored(16)
        assert watch.is_over

    play(scenario)


def test_the_close_ends_all() -> None:
    async def scenario(world: World) -> None:
        watch = world.watch()
        reading = asyncio.create_task(anext(watch))
        await asyncio.sleep(0)
        world.session.close()
        with pytest.raises(ClosedError):
            await reading
        assert world.stream.is_cancelled
        with pytest.raises(ClosedError):
            await anext(world.watch())

    play(scenario)


def test_reasons_end_one_watch_alone() -> None:
    async def scenario(world: World) -> None:
        watch, other = world.watch(), world.watch()
        world.created(watch)
        world.created(other)
        ended = pb.WatchResponse(watch_id=watch.id, canceled=True, cancel_reason="odd")
        world.stream.tell(ended.SerializeToString())
        assert await anext(watch) == Started(5)
        with pytest.raises(StoreError, match="odd"):
            await anext(watch)
        assert waiting(other) == [Started(5)]
        quiet = pb.WatchResponse(watch_id=other.id, canceled=True)
        world.stream.requests()
        world.stream.tell(quiet.SerializeToString())
        assert world.stream.requests()[0].create_request.start_revision == 6

    play(scenario)
