"""The proxies of one cluster, registered under a prefix with a lease.

    <prefix>/<advertised url> = {"Op":0,"Addr":"…","Metadata":"{\\"name\\":\\"host\\"}"}

Each proxy writes its own key and watches the others'. The response to MemberList has the proxies,
so that clients that follow the member list keep using them:

    with an advertised address and a prefix     the registered proxies; this one until there are any
    with an advertised address                  this one
    with neither                                the cluster's members
"""

import asyncio
import json
import socket
from typing import Final

from kvstack.component.logger import Logger
from kvstore.batch import Metadata
from kvstore.errors import Code
from kvstore.proxy.caching_kv import CachingKv
from kvstore.proxy.key_ranges import prefix_end
from kvstore.proxy.namespace import Namespace
from kvstore.proxy.session import Session
from kvstore.proxy.upstream import NO_METADATA, Upstream
from kvstore.runtime.local_client import CallRefusedError
from kvstore.wire import rpc
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb

_RETRY_S: Final = 1.0


class ProxyRegistration:
    """The registered proxies, and the registration of this one."""

    def __init__(
        self,
        upstream: Upstream,
        kv: CachingKv,
        namespace: Namespace | None,
        logger: Logger,
        *,
        prefix: str,
        address: str,
        ttl_s: int,
    ) -> None:
        self._upstream = upstream
        self._kv = kv
        self._namespace = namespace
        self._logger = logger
        self._prefix: Final = prefix
        self._address: Final = address
        self._ttl_s: Final = ttl_s
        self._found: dict[bytes, pb.Member] = {}  # registration key → proxy
        self._is_ended = False
        self._session = Session(upstream, ttl_s, logger)
        self._own = pb.Member(name=socket.gethostname(), clientURLs=[address])

    async def list(self, body: bytes, metadata: Metadata) -> bytes:
        """Serve MemberList."""
        if not self._address:
            return await self._upstream.call(rpc.MEMBER_LIST, body, metadata)
        members = list(self._found.values()) or [self._own]
        return pb.MemberListResponse(members=members).SerializeToString()

    # The registration of this proxy.

    async def stay_registered(self) -> None:
        """Register, keep the lease alive, and register again when it is lost; until cancelled."""
        while True:
            try:
                await self._register()
                await self._session.keep_alive()
                if self._is_ended:
                    return
                self._logger.warning(
                    "session expired; possible network partition or server restart"
                )
                self._logger.warning("creating a new session to rejoin")
            except CallRefusedError as error:
                self._logger.warning("failed to create a session", error=error.text)
            await asyncio.sleep(_RETRY_S)

    async def _register(self) -> None:
        await self._session.grant()
        meta = json.dumps({"name": self._own.name}, separators=(",", ":"))
        value = {"Op": 0, "Addr": self._address, "Metadata": meta}
        put = pb.PutRequest(
            key=f"{self._prefix}/{self._address}".encode(),
            value=json.dumps(value, separators=(",", ":")).encode(),
            lease=self._session.lease_id,
        )
        operation = pb.TxnRequest(success=[pb.RequestOp(request_put=put)])
        await self._kv.txn(operation.SerializeToString(), NO_METADATA)
        fields: dict[str, object] = {"addr": self._address, "lease-ttl": self._ttl_s}
        self._logger.info("registered session with lease", **fields)

    async def end(self) -> None:
        """End the registration at once."""
        self._is_ended = True
        if self._session.lease_id and not await self._session.revoke():
            self._logger.warning("the registration ends with its lease", ttl_s=self._ttl_s)

    # The other proxies.

    async def follow(self) -> None:
        """Keep the list of registered proxies current, until cancelled."""
        while True:
            try:
                await self._follow_once()
            except CallRefusedError as error:
                self._logger.warning(
                    "failed to establish endpoint watch", prefix=self._prefix, error=error.text
                )
            await asyncio.sleep(_RETRY_S)

    async def _follow_once(self) -> None:
        start = f"{self._prefix}/".encode()
        end = prefix_end(start)
        asked = pb.RangeRequest(key=start, range_end=end)
        create = pb.WatchCreateRequest(key=start, range_end=end)
        if self._namespace is not None:
            self._namespace.add_to_range(asked)
            self._namespace.add_to_range(create)
        answer = await self._upstream.call(rpc.RANGE, asked.SerializeToString())
        found = pb.RangeResponse.FromString(answer)
        self._found.clear()
        for row in found.kvs:
            self._add(row)
        create.start_revision = found.header.revision + 1
        stream = await self._upstream.open(rpc.WATCH)
        try:
            await stream.send(pb.WatchRequest(create_request=create).SerializeToString())
            async for message in stream:
                response = pb.WatchResponse.FromString(message)
                for event in response.events:
                    if event.type == kv_pb2.Event.DELETE:
                        self._found.pop(event.kv.key, None)
                    else:
                        self._add(event.kv)
                if response.canceled:
                    raise CallRefusedError(Code.CANCELED, response.cancel_reason)
        finally:
            stream.cancel()

    def _add(self, row: kv_pb2.KeyValue) -> None:
        try:
            value = json.loads(row.value)
            name = json.loads(value["Metadata"])["name"]
            member = pb.Member(name=name, clientURLs=[value["Addr"]])
        except (ValueError, KeyError, TypeError) as error:
            key = row.key.decode("utf-8", "replace")
            self._logger.warning("unmarshal endpoint update failed", key=key, error=repr(error))
            return
        self._found[row.key] = member
