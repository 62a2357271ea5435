"""A Store on any channel: encodes values, makes calls, decodes answers.

    txn(...) ──► encode ──► Caller.call ──► channel ──► reply ──► decode ──► TxnResult

The three kinds of Store differ only in their channels.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from google.protobuf.message import Message

from kvstore.client.caller import Caller
from kvstore.client.channel import Channel, Metadata
from kvstore.client.codec import encode
from kvstore.client.codec.decode import make_decoder, parse, status_result
from kvstore.client.errors import (
    ClosedError,
    InvalidArgumentError,
    MalformedAnswerError,
    OutcomeUnknownError,
    StoreError,
    StoreTimeoutError,
)
from kvstore.client.keep_alive import KeepAlives
from kvstore.client.options import ClientOptions
from kvstore.client.question import SharedQuestion
from kvstore.client.store import PAGE_KEYS
from kvstore.client.values import (
    Compare,
    Delete,
    DeleteResult,
    GetResult,
    LeaseResult,
    Op,
    Put,
    PutResult,
    Range,
    RangeResult,
    SortOrder,
    SortTarget,
    StatusResult,
    TxnResult,
)
from kvstore.client.watch import Watch
from kvstore.client.watch_session import WatchSession
from kvstore.errors import Code
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

T = TypeVar("T")
M = TypeVar("M", bound=Message)


async def _not_open(*_: object, **__: object) -> bytes:
    raise _not_begun()


async def _closed(*_: object, **__: object) -> bytes:
    raise ClosedError("the store was closed")


def _not_begun() -> StoreError:
    return ClosedError("the store is not open: use it in `async with`")


def _malformed(error: ValueError, *, is_change: bool) -> StoreError:
    """Return the error for an answer that cannot be decoded."""
    text = f"the server's answer cannot be read: {error}"
    return OutcomeUnknownError(text) if is_change else MalformedAnswerError(text)


def _read(decode: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decode(body)
    except ValueError as error:
        raise _malformed(error, is_change=False) from None


def _read_message(kind: type[M], body: bytes, *, is_change: bool = False) -> M:
    try:
        return parse(kind, body)
    except ValueError as error:
        raise _malformed(error, is_change=is_change) from None


class ChannelStore:
    """A Store; see `kvstore.client.store`."""

    def __init__(self, channel: Channel, options: ClientOptions) -> None:
        """Create the Store; `async with` starts it."""
        self._channel: Final = channel
        self._options: Final = options
        self._decoder: Final = make_decoder()
        self._call: Callable[..., Awaitable[bytes]] = _not_open
        self._caller: Caller | None = None
        self._watches: WatchSession | None = None
        self._keep_alives: KeepAlives | None = None
        self._question: SharedQuestion | None = None
        self._revision_request: Final = encode.range_request(
            Range(options.revision_key, count_only=True)
        )

    async def __aenter__(self) -> Self:
        self._channel.start()
        caller = self._caller = Caller(self._channel, self._options)
        self._call = caller.call
        self._question = SharedQuestion(self._ask_revision)
        self._keep_alives = KeepAlives(self._channel, caller.tokens)
        self._watches = WatchSession(
            self._channel, caller.tokens, self._decoder, self._options, self.current_revision
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call = _closed
        for part in (self._caller, self._watches, self._keep_alives, self._question):
            if part is not None:
                part.close()
        await self._channel.close()

    async def stream_metadata(self) -> Metadata | None:
        """Return the metadata for a stream that is opened on the channel directly.

        A user's token is fetched again. CallFailedError if that fails.
        """
        if self._caller is None:
            raise _not_begun()
        tokens = self._caller.tokens
        await tokens.renew(tokens.metadata, self._options.timeout_s)
        return tokens.metadata

    # Reads.

    async def get(
        self,
        key: bytes,
        *,
        revision: int = 0,
        serializable: bool = False,
        timeout_s: float | None = None,
    ) -> GetResult:
        """Return one key, now or at a revision."""
        request = encode.get_request(key, revision, serializable=serializable)
        body = await self._call(rpc.RANGE, request, timeout_s, is_change=False)
        try:
            found = self._decoder.range(body)
        except ValueError as error:
            raise _malformed(error, is_change=False) from None
        kvs = found.kvs
        return GetResult(found.revision, kvs[0] if kvs else None)

    async def range(
        self,
        key: bytes,
        end: bytes,
        *,
        limit: int = 0,
        revision: int = 0,
        keys_only: bool = False,
        count_only: bool = False,
        serializable: bool = False,
        sort_order: SortOrder = SortOrder.NONE,
        sort_target: SortTarget = SortTarget.KEY,
        timeout_s: float | None = None,
    ) -> RangeResult:
        """Return the keys from key to end, in one answer."""
        request = encode.range_request(
            Range(
                key,
                end,
                limit,
                revision,
                keys_only,
                count_only,
                serializable,
                sort_order,
                sort_target,
            )
        )
        body = await self._call(rpc.RANGE, request, timeout_s, is_change=False)
        try:
            return self._decoder.range(body)
        except ValueError as error:
            raise _malformed(error, is_change=False) from None

    async def pages(
        self,
        key: bytes,
        end: bytes,
        *,
        page_keys: int = PAGE_KEYS,
        revision: int = 0,
        keys_only: bool = False,
        serializable: bool = False,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[RangeResult, None]:
        """Yield the keys from key to end page by page, all as of the first page's revision."""
        while True:
            page = await self.range(
                key,
                end,
                limit=page_keys,
                revision=revision,
                keys_only=keys_only,
                serializable=serializable,
                timeout_s=timeout_s,
            )
            revision = revision or page.revision
            yield page
            if not page.more or not page.kvs:
                return
            key = page.kvs[-1].key + b"\0"

    async def current_revision(self, *, timeout_s: float | None = None) -> int:
        """Return a revision at or above every change acknowledged before this call."""
        revision = self._channel.local_revision()
        if revision is not None:
            return revision
        if self._question is None:
            raise _not_begun()
        if timeout_s is None:
            return await self._question.answer()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._question.answer()
        except StoreTimeoutError:
            raise
        except TimeoutError:
            raise StoreTimeoutError(f"no revision within {timeout_s:g} s") from None

    async def _ask_revision(self) -> int:
        body = await self._call(rpc.RANGE, self._revision_request, is_change=False)
        return _read(self._decoder.range, body).revision

    async def status(self, *, timeout_s: float | None = None) -> StatusResult:
        """Return the status of the member that answers."""
        body = await self._call(rpc.STATUS, b"", timeout_s, is_change=False)
        return _read(status_result, body)

    # Changes.

    async def txn(
        self,
        compares: Sequence[Compare],
        success: Sequence[Op],
        failure: Sequence[Op] = (),
        *,
        timeout_s: float | None = None,
    ) -> TxnResult:
        """Do success if all compares hold, else failure: atomically, at one revision."""
        request = encode.txn_request(compares, success, failure)
        is_change = not encode.changes_nothing(success, failure)
        body = await self._call(rpc.TXN, request, timeout_s, is_change=is_change)
        try:
            return self._decoder.txn(body)
        except ValueError as error:
            raise _malformed(error, is_change=is_change) from None

    async def put(
        self,
        key: bytes,
        value: bytes,
        *,
        lease: int = 0,
        prev_kv: bool = False,
        timeout_s: float | None = None,
    ) -> PutResult:
        """Set a key."""
        request = encode.put_request(Put(key, value, lease, prev_kv))
        body = await self._call(rpc.PUT, request, timeout_s, is_change=True)
        try:
            return self._decoder.put(body)
        except ValueError as error:
            raise _malformed(error, is_change=True) from None

    async def delete(
        self,
        key: bytes,
        end: bytes = b"",
        *,
        prev_kv: bool = False,
        timeout_s: float | None = None,
    ) -> DeleteResult:
        """Delete a key, or those from key to end."""
        request = encode.delete_request(Delete(key, end, prev_kv))
        body = await self._call(rpc.DELETE_RANGE, request, timeout_s, is_change=True)
        try:
            return self._decoder.delete(body)
        except ValueError as error:
            raise _malformed(error, is_change=True) from None

    async def compact(
        self, revision: int, *, physical: bool = False, timeout_s: float | None = None
    ) -> int:
        """Discard history before a revision; physical: wait until its rows are deleted."""
        request = pb.CompactionRequest(revision=revision, physical=physical).SerializeToString()
        body = await self._call(rpc.COMPACT, request, timeout_s, is_change=True)
        return _read_message(pb.CompactionResponse, body, is_change=True).header.revision

    # Leases.

    async def lease_grant(
        self, ttl_s: int, *, lease: int = 0, timeout_s: float | None = None
    ) -> LeaseResult:
        """Grant a lease; lease 0: the server chooses the id."""
        request = pb.LeaseGrantRequest(TTL=ttl_s, ID=lease).SerializeToString()
        # With an id a repetition finds the lease; without one, an unused lease expires.
        body = await self._call(rpc.LEASE_GRANT, request, timeout_s, is_change=bool(lease))
        m = _read_message(pb.LeaseGrantResponse, body)
        return LeaseResult(m.header.revision, m.ID, m.TTL)

    async def lease_keep_alive(self, lease: int, *, timeout_s: float | None = None) -> LeaseResult:
        """Renew a lease for its whole TTL; LeaseNotFoundError if it has ended."""
        caller, keep_alives = self._caller, self._keep_alives
        if caller is None or keep_alives is None:
            raise _not_begun()
        return await caller.run(lambda left_s: keep_alives.once(lease, left_s), timeout_s)

    async def lease_revoke(self, lease: int, *, timeout_s: float | None = None) -> int:
        """Revoke a lease and delete its keys; return the store's revision."""
        request = pb.LeaseRevokeRequest(ID=lease).SerializeToString()
        body = await self._call(rpc.LEASE_REVOKE, request, timeout_s, is_change=False)
        return _read_message(pb.LeaseRevokeResponse, body).header.revision

    # Watches.

    def watch(
        self,
        key: bytes,
        end: bytes = b"",
        *,
        start_revision: int = 0,
        prev_kv: bool = False,
        no_put: bool = False,
        no_delete: bool = False,
        progress_notify: bool = False,
    ) -> Watch:
        """Watch a key, or those from key to end, from a revision on; 0: from now on."""
        if self._watches is None:
            raise _not_begun()
        if start_revision < 0:
            text = f"invalid start revision {start_revision} of a watch: must not be negative"
            raise InvalidArgumentError(text, Code.INVALID_ARGUMENT)
        filters = []
        if no_put:
            filters.append(pb.WatchCreateRequest.NOPUT)
        if no_delete:
            filters.append(pb.WatchCreateRequest.NODELETE)
        watch = Watch(
            self._watches,
            key,
            end,
            start_revision,
            prev_kv=prev_kv,
            filters=filters,
            progress_notify=progress_notify,
        )
        self._watches.add(watch)
        return watch
