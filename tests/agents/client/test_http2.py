"""The client's side of HTTP/2 against `h2`, an independent server's side, in memory."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import hpack
import pytest
from typing_extensions import override

from kvstack.agents.client.http2.connection import Http2Connection
from kvstack.agents.client.http2.hpack import Decoder, Encoder, HeadersError
from kvstack.agents.client.http2.huffman import HuffmanError, decoded
from kvstack.agents.client.http2.stream import WINDOW_BYTES, NotProcessedError, Stream
from kvstack.agents.client.transport import UnreachableError


def _headers(decoded: object) -> dict[str, str]:
    """Return what `hpack` decoded as a dict; without raw=True it decodes texts."""
    return dict(cast("list[tuple[str, str]]", decoded))


class _Wire(asyncio.Transport):
    """Carries what the client writes to the server of `h2`, and notes what it says."""

    def __init__(self, settings: dict[h2.settings.SettingCodes | int, int]) -> None:
        super().__init__()
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        self.server = h2.connection.H2Connection(config)
        self.server.initiate_connection()
        if settings:
            self.server.update_settings(settings)
        self.events: list[h2.events.Event] = []
        self.client: Http2Connection | None = None
        self.is_closed = False

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.events += self.server.receive_data(bytes(data))

    @override
    def close(self) -> None:
        self.is_closed = True

    @override
    def abort(self) -> None:
        self.is_closed = True

    def reply(self) -> None:
        """Give the client what the server has to say."""
        assert self.client is not None
        self.client.data_received(self.server.data_to_send())

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class _World:
    def __init__(self, settings: dict[h2.settings.SettingCodes | int, int] | None = None) -> None:
        self.lost: list[Http2Connection] = []
        self.wire = _Wire(settings or {})
        self.client = Http2Connection("example:6443", self.lost.append)
        self.wire.client = self.client
        self.client.connection_made(self.wire)

    async def settle(self) -> None:
        """Let both sides say what they have to, twice."""
        for _ in range(2):
            await asyncio.sleep(0)
            self.wire.reply()

    async def ask(self, body: bytes = b"", path: str = "/api") -> Stream:
        method = "POST" if body else "GET"
        stream = self.client.request(method, path, [("Accept", "application/json")], body)
        await self.settle()
        return stream

    def answer(self, stream: Stream, status: str, body: bytes) -> None:
        headers = [(":status", status), ("audit-id", f"a{stream.number}"), ("Retry-After", "1")]
        headers = [(name.lower(), value) for name, value in headers]
        self.wire.server.send_headers(stream.number, headers)
        self.wire.server.send_data(stream.number, body, end_stream=True)
        self.wire.reply()


Script = Callable[[], Awaitable[None]]


def _play(script: Script) -> None:
    async def main() -> None:
        await asyncio.wait_for(script(), 10)

    asyncio.run(main())


def test_requests_that_share_a_connection() -> None:
    async def script() -> None:
        world = _World()
        await world.settle()
        first = await world.ask(path="/one")
        second = await world.ask(b'{"kind":"Pod"}', path="/two?dryRun=All")
        asked = [dict(event.headers) for event in world.wire.of(h2.events.RequestReceived)]
        assert [each[":path"] for each in asked] == ["/one", "/two?dryRun=All"]
        assert [each[":method"] for each in asked] == ["GET", "POST"]
        assert asked[1][":authority"] == "example:6443"
        assert asked[1]["accept"] == "application/json"
        assert asked[1]["content-length"] == "14"
        assert [e.data for e in world.wire.of(h2.events.DataReceived)] == [b'{"kind":"Pod"}']
        world.answer(second, "201", b"made")
        world.answer(first, "200", b"read")
        await first.headed()
        assert (first.status, await first.read()) == (200, b"read")
        assert (second.status, await second.read()) == (201, b"made")
        assert second.header("Audit-Id") == f"a{second.number}"
        assert second.header("retry-after") == "1"
        assert second.header("location") == ""
        assert world.client.is_idle

    _play(script)


def test_headers_that_come_again_are_named_by_their_index() -> None:
    encoder, server = Encoder("example:6443"), hpack.Decoder()
    encoder.use_table(None)
    headers = [("Authorization", "Bearer " + "x" * 900), ("Accept", "application/json")]
    blocks = [encoder.block("POST", f"/p/{n}", headers, n) for n in range(4)]
    for number, block in enumerate(blocks):
        found = _headers(server.decode(block))
        assert found["authorization"] == headers[0][1]
        assert found[":path"] == f"/p/{number}"
        assert found.get("content-length") == (str(number) if number else None)
    assert len(blocks[0]) > 900
    assert len(blocks[3]) < 30


def test_a_table_is_never_filled_beyond_its_size() -> None:
    encoder, server = Encoder("example:6443"), hpack.Decoder()
    server.max_allowed_table_size = 256
    server.header_table_size = 256
    assert encoder.use_table(256)
    for number in range(50):
        headers = [("User-Agent", f"agent-{number}"), ("Authorization", f"Bearer {number}")]
        found = _headers(server.decode(encoder.block("GET", "/", headers, 0)))
        assert found["user-agent"] == f"agent-{number}"
        assert found["authorization"] == f"Bearer {number}"
    assert not encoder.use_table(0)


def test_before_the_servers_settings_nothing_is_put_into_its_table() -> None:
    encoder, server = Encoder("example:6443"), hpack.Decoder()
    server.max_allowed_table_size = 0
    server.header_table_size = 0
    assert (
        _headers(server.decode(encoder.block("GET", "/x", [("Accept", "a")], 0)))["accept"] == "a"
    )


@pytest.mark.parametrize("is_coded", [True, False])
def test_headers_of_answers_are_read(*, is_coded: bool) -> None:
    server, decoder = hpack.Encoder(), Decoder()
    for number in range(300):
        sent = [
            (b":status", b"20%d" % (number % 5)),
            (b"audit-id", b"%036d" % number),
            (b"x-kubernetes-pf-flowschema-uid", b"f" * (number % 150)),
            (b"warning", '299 - "ä"'.encode()),
        ]
        found = decoder.fields(server.encode(sent, huffman=is_coded))
        assert [(each.name, each.value) for each in found] == sent


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",
        b"\xff\xff\xff\xff\xff\x7f",
        b"\xfe",
        b"\x40",
        b"\x40\x05ab",
        b"\x3f\xff\x7f",
        b"\x00",
    ],
)
def test_blocks_that_cannot_be_read(block: bytes) -> None:
    with pytest.raises(HeadersError):
        Decoder().fields(block)


def test_texts_that_are_not_of_the_code() -> None:
    for wrong in (b"\x00", b"\xff\xff\xff\xff", b"\x1e"):
        with pytest.raises(HuffmanError):
            decoded(wrong)


def test_a_body_larger_than_the_windows() -> None:
    async def script() -> None:
        world = _World({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10_000})
        await world.settle()
        body = bytes(range(256)) * 800
        stream = await world.ask(body)
        server = world.wire.server

        def received() -> bytes:
            return b"".join(event.data for event in world.wire.of(h2.events.DataReceived))

        assert len(received()) == 10_000
        while len(received()) < len(body):
            before = len(received())
            server.increment_flow_control_window(30_000)
            server.increment_flow_control_window(30_000, stream.number)
            await world.settle()
            assert len(received()) > before
        assert received() == body
        assert world.wire.of(h2.events.StreamEnded)
        world.answer(stream, "200", b"")
        assert await stream.read() == b""

    _play(script)


def test_an_answer_larger_than_the_window_that_nobody_reads_waits() -> None:
    async def script() -> None:
        world = _World()
        await world.settle()
        stream = await world.ask()
        server = world.wire.server
        server.send_headers(stream.number, [(":status", "200")])
        sent = 0
        while (room := server.local_flow_control_window(stream.number)) > 0:
            size = min(room, server.max_outbound_frame_size)
            server.send_data(stream.number, b"x" * size)
            sent += size
        await world.settle()
        assert sent == WINDOW_BYTES
        pieces = stream.pieces()
        assert len(await anext(pieces)) == WINDOW_BYTES
        await world.settle()
        assert server.local_flow_control_window(stream.number) == WINDOW_BYTES

    _play(script)


def test_a_whole_answer_is_read_although_it_is_larger_than_the_window() -> None:
    async def script() -> None:
        world = _World()
        await world.settle()
        stream = await world.ask()
        server = world.wire.server
        server.send_headers(stream.number, [(":status", "200")])
        reading = asyncio.ensure_future(stream.read())
        left = 3 * WINDOW_BYTES
        while left:
            window = server.local_flow_control_window(stream.number)
            size = min(left, window, server.max_outbound_frame_size)
            assert size
            left -= size
            server.send_data(stream.number, b"x" * size, end_stream=not left)
            await world.settle()
        assert len(await reading) == 3 * WINDOW_BYTES

    _play(script)


def test_an_answer_that_nobody_awaits_any_more_is_cancelled() -> None:
    async def script() -> None:
        world = _World()
        await world.settle()
        stream = await world.ask()
        stream.close()
        await world.settle()
        (reset,) = world.wire.of(h2.events.StreamReset)
        assert (reset.stream_id, reset.error_code) == (1, h2.errors.ErrorCodes.CANCEL)
        with pytest.raises(UnreachableError):
            await stream.read()
        assert world.client.is_idle
        after = await world.ask()
        world.answer(after, "200", b"still there")
        assert await after.read() == b"still there"

    _play(script)


def test_what_the_server_has_not_begun_may_be_sent_again() -> None:
    async def script() -> None:
        world = _World()
        await world.settle()
        streams = [await world.ask() for _ in range(3)]
        refused = h2.errors.ErrorCodes.REFUSED_STREAM
        world.wire.server.reset_stream(streams[0].number, refused)
        world.wire.server.close_connection(last_stream_id=streams[1].number)
        # The state of `h2` is closed now; what it still has to say are bytes of an earlier answer.
        world.wire.reply()
        for stream in (streams[0], streams[2]):
            with pytest.raises(NotProcessedError):
                await stream.headed()
        assert not world.client.has_room
        assert not streams[1].is_over
        world.client.connection_lost(None)
        with pytest.raises(UnreachableError) as caught:
            await streams[1].headed()
        assert not isinstance(caught.value, NotProcessedError)
        assert world.lost == [world.client]

    _play(script)


def test_a_reset_breaks_an_answer_off() -> None:
    async def script() -> None:
        world = _World()
        await world.settle()
        stream = await world.ask()
        world.wire.server.send_headers(stream.number, [(":status", "200")])
        world.wire.server.send_data(stream.number, b"a part")
        world.wire.server.reset_stream(stream.number, h2.errors.ErrorCodes.INTERNAL_ERROR)
        world.wire.reply()
        pieces = stream.pieces()
        assert await anext(pieces) == b"a part"
        with pytest.raises(UnreachableError, match="HTTP/2 error 2"):
            await anext(pieces)

    _play(script)


def test_the_servers_limit_of_streams_is_kept() -> None:
    async def script() -> None:
        world = _World({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 2})
        await world.settle()
        first, _ = await world.ask(), await world.ask()
        assert not world.client.has_room
        world.answer(first, "200", b"")
        assert world.client.has_room

    _play(script)


def test_pings_are_answered() -> None:
    async def script() -> None:
        world = _World()
        await world.settle()
        world.wire.server.ping(b"12345678")
        await world.settle()
        await world.settle()
        (pong,) = world.wire.of(h2.events.PingAckReceived)
        assert pong.ping_data == b"12345678"

    _play(script)


def test_a_silent_server_is_given_up() -> None:
    async def script() -> None:
        world = _World()
        await world.settle()
        stream = await world.ask()
        world.client._look()
        world.client._look()  # nothing came since: a ping
        await asyncio.sleep(0)
        assert world.wire.of(h2.events.PingReceived)
        assert not world.lost
        world.client._look()
        assert world.lost
        with pytest.raises(UnreachableError, match="does not answer a ping"):
            await stream.headed()

    _play(script)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x01\x01\x04\x00\x00\x00\x01\x80",  # a header of index 0
        b"\x00\x00\x04\x05\x04\x00\x00\x00\x01\x00\x00\x00\x02",  # a push
        b"\x00\x00\x01\x00\x08\x00\x00\x00\x01\x05",  # more padding than there is
        b"\x00\x00\x02\x08\x00\x00\x00\x00\x00\x00\x01",  # half a window
    ],
)
def test_what_is_no_http2_ends_the_connection(data: bytes) -> None:
    async def script() -> None:
        world = _World()
        await world.settle()
        stream = await world.ask()
        world.client.data_received(data)
        assert world.wire.is_closed
        with pytest.raises(UnreachableError, match="does not speak HTTP/2"):
            await stream.headed()

    _play(script)


def test_bytes_may_come_one_by_one() -> None:
    async def script() -> None:
        world = _World()
        await world.settle()
        stream = await world.ask()
        server = world.wire.server
        server.send_headers(stream.number, [(":status", "200"), ("etag", "e" * 40)])
        server.send_data(stream.number, b"body", end_stream=True)
        for byte in server.data_to_send():
            world.client.data_received(bytes((byte,)))
        assert (stream.status, await stream.read()) == (200, b"body")

    _play(script)
