"""Acquiring and releasing keys: the session, the watch of leasing keys, and other owners.

    session (lease, 60 s as etcd's) ── owns ──► leasing keys ◄── watched ── one watch of the prefix
    "REVOKE" on ours ─► forgotten here first, then the leasing key is deleted
    another owner's in the way ─► put "REVOKE" ─► wait until it is deleted

Owned keys can be read while the cluster cannot be reached, until the session ends by the loop's
clock. This is the purpose of leasing.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Final

from kvstack.component.logger import Logger
from kvstore.batch import Metadata
from kvstore.errors import LEASE_NOT_FOUND
from kvstore.proxy.cluster_kv import KvCalls
from kvstore.proxy.leasing.leasing_watch import LeasingWatch
from kvstore.proxy.leasing.owned_keys import Acquisition, OwnedKey, OwnedKeys
from kvstore.proxy.leasing.transactions import (
    REVOKE,
    Row,
    acquisition,
    first_row,
    rescission,
    revocation,
)
from kvstore.proxy.namespace import Namespace
from kvstore.proxy.session import Session
from kvstore.proxy.upstream import NO_METADATA, Upstream, is_transient
from kvstore.runtime.local_client import CallRefusedError
from kvstore.wire import rpc
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb

SESSION_TTL_S: Final = 60
_RETRY_S: Final = 0.5
_RECHECK_S: Final = 2.0  # wait for the deletion of another's leasing key, if its event is lost
_DEMANDS_MAX: Final = 64  # in flight for one deletion of a range


class Ownership:
    """The owned keys, and the protocol between the owners."""

    def __init__(
        self,
        upstream: Upstream,
        cluster: KvCalls,
        prefix: Namespace,
        namespace: Namespace | None,
        logger: Logger,
        *,
        ttl_s: int = SESSION_TTL_S,
    ) -> None:
        """Start without owned keys; prefix: of the leasing keys, inside the namespace."""
        self._cluster = cluster
        self._prefix = prefix
        self._logger = logger
        self._session = Session(upstream, ttl_s, logger)
        self._watch = LeasingWatch(
            upstream, prefix, namespace, logger, self._on_event, self._session.end
        )
        self._waiting: dict[bytes, set[asyncio.Future[None]]] = {}  # by leasing key
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.keys: Final = OwnedKeys(asyncio.get_running_loop().time, self._on_loss)
        self.header: Final = pb.ResponseHeader()  # the newest seen

    # Start and end.

    async def run(self) -> None:
        """Keep the watch and a session until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch.run(), name="leasing watch")
            group.create_task(self._keep_session(), name="leasing session")

    async def _keep_session(self) -> None:
        while not self._is_closed:
            await self._watch.opened()
            try:
                await self._session.grant()
                fields: dict[str, object] = {"lease-id": f"{self._session.lease_id:x}"}
                self._logger.info("leasing session began", **fields)
                await self._session.keep_alive()
                self.keys.clear()
                if not self._is_closed:
                    self._logger.warning("leasing session ended", **fields)
                    await self._session.revoke()
            except CallRefusedError as error:
                self._logger.warning("failed to create a leasing session", error=error.text)
            await asyncio.sleep(_RETRY_S)

    async def close(self) -> None:
        """Release all keys at once, so that no writer waits for the lease to end."""
        self._is_closed = True
        self.keys.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session.lease_id and not await self._session.revoke():
            self._logger.warning("leasing keys end with their lease", ttl_s=SESSION_TTL_S)

    # Reading and acquiring.

    def readable(self, key: bytes) -> OwnedKey | None:
        """Return a key whose row is certainly the cluster's."""
        return self.keys.readable(key) if self._session.is_alive else None

    def may_acquire(self, key: bytes) -> bool:
        """Return whether to try to acquire a key."""
        return self._session.is_alive and self._watch.is_open and self.keys.may_acquire(key)

    async def acquire(self, key: bytes, metadata: Metadata) -> tuple[pb.ResponseHeader, Row] | None:
        """Try to own a key; return its row, owned or not, or None if the call failed."""
        attempt = self.keys.begin_acquiring(key)
        try:
            return await self._acquire(attempt, metadata)
        except CallRefusedError as error:
            # The read is then sent unchanged, and its client gets the error.
            self._logger.debug("failed to acquire a key", error=error.text)
            if (error.code, error.text) == LEASE_NOT_FOUND:
                self._session.end()
            return None
        finally:
            self.keys.end_acquiring(attempt)

    async def _acquire(
        self, attempt: Acquisition, metadata: Metadata
    ) -> tuple[pb.ResponseHeader, Row]:
        lease_id = self._session.lease_id
        request = acquisition(attempt.key, self._prefix.prefix + attempt.key, lease_id)
        response = await self.txn(request, metadata)
        row = first_row(response.responses[0])
        if response.succeeded and self._session.is_alive and self._session.lease_id == lease_id:
            self.keys.acquired(attempt, response.header.revision, row)
        return response.header, row

    async def txn(self, request: pb.TxnRequest, metadata: Metadata) -> pb.TxnResponse:
        """Send a transaction to the cluster; CallRefusedError if it is refused."""
        body = await self._cluster.call(rpc.TXN, request.SerializeToString(), metadata)
        response = pb.TxnResponse.FromString(body)
        if response.header.revision >= self.header.revision:
            self.header.CopyFrom(response.header)
        return response

    # Other owners.

    def is_own(self, leasing_row: kv_pb2.KeyValue) -> bool:
        """Return whether a leasing key is of the current session."""
        return leasing_row.lease == self._session.lease_id and self._session.is_alive

    async def demand_all(self, rows: Sequence[kv_pb2.KeyValue], metadata: Metadata) -> None:
        """Ask the owners of leasing keys to release them, and wait."""
        for at in range(0, len(rows), _DEMANDS_MAX):
            batch = [self.demand(row, metadata) for row in rows[at : at + _DEMANDS_MAX]]
            for failure in await asyncio.gather(*batch, return_exceptions=True):
                if failure is not None:
                    raise failure

    async def demand(self, row: kv_pb2.KeyValue, metadata: Metadata) -> None:
        """Ask the owner of a leasing key to release it; return when it may be deleted."""
        gone = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(row.key, set())
        waiting.add(gone)
        try:
            response = await self.txn(revocation(row), metadata)
            if response.succeeded:
                await asyncio.wait([gone], timeout=_RECHECK_S)
        finally:
            gone.cancel()
            waiting.discard(gone)
            if not waiting:
                self._waiting.pop(row.key, None)

    # Losing.

    def _on_event(self, event: kv_pb2.Event) -> None:
        row = event.kv
        key = row.key[len(self._prefix.prefix) :]
        if event.type == kv_pb2.Event.DELETE:
            self.keys.lose(key, before=row.mod_revision)
            for gone in self._waiting.pop(row.key, ()):
                if not gone.done():
                    gone.set_result(None)
        elif row.value == REVOKE and self.is_own(row):
            self.keys.lose(key, created=row.create_revision)
            self._begin(self.rescind(key, row.create_revision))

    def _on_loss(self, entry: OwnedKey) -> None:
        self._begin(self.rescind(entry.key, entry.created))

    async def rescind(self, key: bytes, created: int) -> None:
        """Delete a leasing key of the session, after the key was forgotten here."""
        lease_id = self._session.lease_id
        request = rescission(self._prefix.prefix + key, created)
        while self._session.is_alive and self._session.lease_id == lease_id:
            try:
                await self.txn(request, NO_METADATA)
            except CallRefusedError as error:
                if not is_transient(error):
                    self._logger.warning("a leasing key was not released", error=error.text)
                    self._session.end()
            else:
                return
            await asyncio.sleep(_RETRY_S)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name="leasing key")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
