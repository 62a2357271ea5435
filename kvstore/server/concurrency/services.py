"""The calls of the Lock and Election services.

Errors have the form of etcd's services: the text of the error below, with code UNKNOWN.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol

from google.protobuf.message import DecodeError, Message

from kvstore.batch import ServiceCall
from kvstore.errors import Code
from kvstore.node.router import MALFORMED_REQUEST
from kvstore.runtime.local_client import CallRefusedError, LocalClient
from kvstore.server.concurrency import elections, locks
from kvstore.server.concurrency.contenders import Contenders
from kvstore.watch.request import MALFORMED
from kvstore.wire import rpc
from kvstore.wire.gen import election_pb2 as epb
from kvstore.wire.gen import lock_pb2


class Answers(Protocol):
    """Sends answers to callers."""

    def reply(self, call_id: int, code: int, body: bytes) -> None:
        """Answer a unary call."""
        ...

    def deliver(self, stream_id: int, message: bytes) -> None:
        """Send one message of a stream."""
        ...

    def end(self, stream_id: int, code: int = ..., text: str = ...) -> None:
        """End a stream."""
        ...

    def run(self, coroutine: Coroutine[None, None, None], name: str) -> None:
        """Run a coroutine that outlives its caller."""
        ...


class _Contender(Protocol):
    async def withdraw(self) -> None: ...


class Services:
    """Serves locks and elections on the side loop."""

    def __init__(self, client: LocalClient, answers: Answers) -> None:
        self._client = client
        self._answers = answers
        self._unary: dict[int, Callable[[Contenders, bytes], Awaitable[Message]]] = {
            rpc.LOCK: self._lock,
            rpc.UNLOCK: lambda store, body: locks.unlock(
                store, lock_pb2.UnlockRequest.FromString(body)
            ),
            rpc.ELECTION_CAMPAIGN: self._campaign,
            rpc.ELECTION_PROCLAIM: lambda store, body: elections.proclaim(
                store, epb.ProclaimRequest.FromString(body)
            ),
            rpc.ELECTION_RESIGN: lambda store, body: elections.resign(
                store, epb.ResignRequest.FromString(body)
            ),
            rpc.ELECTION_LEADER: lambda store, body: elections.leader(
                store, epb.LeaderRequest.FromString(body)
            ),
        }

    async def serve(self, call: ServiceCall) -> None:
        """Serve one call; cancelled when its client goes away."""
        call_id, method, body, metadata = call
        contenders = Contenders(self._client, metadata)
        if method == rpc.ELECTION_OBSERVE:
            await self._observe(call_id, contenders, body)
            return
        try:
            answer = await self._unary[method](contenders, body)
        except DecodeError:
            self._answers.reply(call_id, MALFORMED_REQUEST.code, MALFORMED_REQUEST.text.encode())
        except CallRefusedError as refused:
            self._answers.reply(call_id, Code.UNKNOWN, refused.text.encode())
        else:
            self._answers.reply(call_id, Code.OK, answer.SerializeToString())

    async def _lock(self, contenders: Contenders, body: bytes) -> Message:
        request = lock_pb2.LockRequest.FromString(body)
        waiter = locks.LockWaiter(contenders, request.name)
        return await self._or_withdraw(waiter, waiter.lock(request.lease))

    async def _campaign(self, contenders: Contenders, body: bytes) -> Message:
        request = epb.CampaignRequest.FromString(body)
        campaign = elections.Campaign(contenders, request.name)
        return await self._or_withdraw(campaign, campaign.campaign(request))

    async def _or_withdraw(self, contender: _Contender, waiting: Awaitable[Message]) -> Message:
        """Wait; if that fails or is cancelled, delete the key, so that others can go on."""
        try:
            return await waiting
        except (CallRefusedError, asyncio.CancelledError):
            self._answers.run(contender.withdraw(), "withdraw")
            raise

    async def _observe(self, stream_id: int, contenders: Contenders, body: bytes) -> None:
        try:
            request = epb.LeaderRequest.FromString(body)
            async for response in elections.observe(contenders, request):
                self._answers.deliver(stream_id, response.SerializeToString())
        except DecodeError:
            self._answers.end(stream_id, MALFORMED.code, MALFORMED.text)
        except CallRefusedError:
            self._answers.end(stream_id)  # without an error, as in etcd
