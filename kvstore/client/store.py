"""The protocol of a Store. A call returns a result or raises an error of `kvstore.client.errors`.

    reads      get, range, pages, current_revision      repeated elsewhere if an endpoint fails
    changes    txn, put, delete, compact                repeated only if certainly not sent
    leases     lease_grant, lease_keep_alive, lease_revoke
    watch      changes as they happen, resumed after any break

A time limit is given in seconds with each call, or is the default of the options. When a change
ends in OutcomeUnknownError, it may still be made after that, until the server's own time limit.
Cancelling the caller cancels the call; the outcome of a change is then unknown, too.

One Store belongs to one event loop.
"""

from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Protocol, Self

from kvstore.client.values import (
    Compare,
    DeleteResult,
    GetResult,
    LeaseResult,
    Op,
    PutResult,
    RangeResult,
    SortOrder,
    SortTarget,
    StatusResult,
    TxnResult,
)
from kvstore.client.watch import Watch

PAGE_KEYS = 1_000


class Store(Protocol):
    """A store of keys with revisions; use it in `async with`."""

    async def __aenter__(self) -> Self:
        """Start; returns before any endpoint is connected."""
        ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the store: open calls and watches fail with ClosedError."""
        ...

    async def get(
        self,
        key: bytes,
        *,
        revision: int = 0,
        serializable: bool = False,
        timeout_s: float | None = None,
    ) -> GetResult:
        """Return one key, now or at a revision."""
        ...

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
        ...

    def pages(
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
        """Yield the keys from key to end page by page, all as of the first page's revision.

        The limit is for each page. CompactedError if the revision is compacted meanwhile.
        """
        ...

    async def txn(
        self,
        compares: Sequence[Compare],
        success: Sequence[Op],
        failure: Sequence[Op] = (),
        *,
        timeout_s: float | None = None,
    ) -> TxnResult:
        """Do success if all compares hold, else failure: atomically, at one revision."""
        ...

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
        ...

    async def delete(
        self,
        key: bytes,
        end: bytes = b"",
        *,
        prev_kv: bool = False,
        timeout_s: float | None = None,
    ) -> DeleteResult:
        """Delete a key, or those from key to end."""
        ...

    async def compact(
        self, revision: int, *, physical: bool = False, timeout_s: float | None = None
    ) -> int:
        """Discard history before a revision; physical: wait until its rows are deleted.

        Returns the store's revision. CompactedError if it was compacted before.
        """
        ...

    async def current_revision(self, *, timeout_s: float | None = None) -> int:
        """Return a revision at or above every change acknowledged before this call.

        Concurrent callers share one read, which begins after their calls.
        """
        ...

    async def lease_grant(
        self, ttl_s: int, *, lease: int = 0, timeout_s: float | None = None
    ) -> LeaseResult:
        """Grant a lease; lease 0: the server chooses the id."""
        ...

    async def lease_keep_alive(self, lease: int, *, timeout_s: float | None = None) -> LeaseResult:
        """Renew a lease for its whole TTL; LeaseNotFoundError if it has ended."""
        ...

    async def lease_revoke(self, lease: int, *, timeout_s: float | None = None) -> int:
        """Revoke a lease and delete its keys; return the store's revision."""
        ...

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
        """Watch a key, or those from key to end, from a revision on; 0: from now on.

        progress_notify: the server reports its revision at intervals, when nothing changes.
        """
        ...

    async def status(self, *, timeout_s: float | None = None) -> StatusResult:
        """Return the status of the member that answers."""
        ...
