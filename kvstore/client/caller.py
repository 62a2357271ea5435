"""Retries of calls where that is safe, within their time limit.

    call ──► channel ──► reply
               └─ failed ──► not sent, or a read that was UNAVAILABLE ──► next endpoint
                             its token was refused ──► a new token, and again
                            else ──► an error; OutcomeUnknownError for a change that may be done

The rules are those of etcd's own client: a change is repeated only if it was certainly not
processed. The first attempts, at a majority of the endpoints, have no pause between them, later
ones a short pause.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kvstore.client.channel import Channel, Metadata
from kvstore.client.errors import CallFailedError, ClosedError, StoreError, error_of
from kvstore.client.options import ClientOptions
from kvstore.client.tokens import Tokens
from kvstore.errors import LEARNER_NOT_SUPPORTED, NO_LEADER, PROPOSAL_DROPPED, Code
from kvstore.wire import rpc

T = TypeVar("T")

ATTEMPTS_MAX: Final = 100
_TOKENS_MAX: Final = 3  # renewals for one call
_PAUSE_S: Final = 0.025
_JITTER: Final = 0.1
# Calls that may be made twice: they read, or the second one changes no earlier result.
REPEATABLE: Final = frozenset(
    {
        rpc.RANGE, rpc.LEASE_GRANT, rpc.LEASE_REVOKE, rpc.LEASE_TIME_TO_LIVE, rpc.LEASE_LEASES,
        rpc.LEASE_KEEP_ALIVE, rpc.MEMBER_LIST, rpc.STATUS, rpc.HASH, rpc.HASH_KV,
        rpc.AUTH_STATUS, rpc.AUTHENTICATE, rpc.AUTH_USER_GET, rpc.AUTH_USER_LIST,
        rpc.AUTH_ROLE_GET, rpc.AUTH_ROLE_LIST, rpc.ELECTION_LEADER, rpc.MOVE_LEADER,
    }
)  # fmt: skip
# A server that answers so has not started a change.
_NOT_BEGUN: Final = frozenset({NO_LEADER.text, PROPOSAL_DROPPED.text})


class Caller:
    """Makes unary calls on a channel."""

    def __init__(self, channel: Channel, options: ClientOptions) -> None:
        self._channel = channel
        self._limit_s: Final = options.timeout_s
        self._reach_s: Final = options.reach_s or math.inf
        self._random = random.Random(options.seed)  # noqa: S311 - back-off
        self._is_closed = False
        self._time = asyncio.get_running_loop().time
        self.tokens: Final = Tokens(channel, options)

    async def call(
        self, method: int, body: bytes, limit_s: float | None = None, *, is_change: bool
    ) -> bytes:
        """Return the reply to a call; a StoreError if there is none."""
        if limit_s is None:
            limit_s = self._limit_s
        began = self._time()
        metadata = self.tokens.metadata
        channel = self._channel
        try:
            return await channel.call(method, body, limit_s, metadata)
        except CallFailedError as failure:
            first = failure

        def again(left_s: float) -> Awaitable[bytes]:
            return channel.call(method, body, left_s, self.tokens.metadata)

        return await self._repeat(again, began, limit_s, first, metadata, is_change=is_change)

    async def run(self, attempt: Callable[[float], Awaitable[T]], limit_s: float | None) -> T:
        """Repeat an attempt that is not a unary call, by the same rules.

        An attempt gets the remaining time; it raises CallFailedError if it failed.
        """
        limit_s = self._limit_s if limit_s is None else limit_s
        began = self._time()
        metadata = self.tokens.metadata
        try:
            return await attempt(limit_s)
        except CallFailedError as failure:
            first = failure
        return await self._repeat(attempt, began, limit_s, first, metadata, is_change=False)

    async def _repeat(
        self,
        attempt: Callable[[float], Awaitable[T]],
        began: float,
        limit_s: float,
        failure: CallFailedError,
        metadata: Metadata | None,
        *,
        is_change: bool,
    ) -> T:
        """Repeat a failed call where that is safe; metadata is that of the failed attempt."""
        until = began + limit_s
        renewals = 0
        for attempts in range(1, ATTEMPTS_MAX):
            left_s = until - self._time()
            if left_s <= 0 or self._is_closed:
                break
            try:
                if self.tokens.is_refusal(failure) and renewals < _TOKENS_MAX:
                    renewals += 1
                    await self.tokens.renew(metadata, left_s)
                elif not self._may_repeat(failure, is_change=is_change):
                    break
                elif not failure.was_sent and self._time() - began >= self._reach_s:
                    break  # no endpoint was reached within that limit
                await self._pause(attempts, left_s)
                left_s = until - self._time()
                if left_s <= 0:
                    break
                metadata = self.tokens.metadata
                return await attempt(left_s)
            except CallFailedError as again:
                failure = again
        raise self._error(failure, is_change=is_change)

    def _may_repeat(self, failure: CallFailedError, *, is_change: bool) -> bool:
        if failure.text == LEARNER_NOT_SUPPORTED.text:
            return self._channel.endpoint_count > 1
        if failure.text in _NOT_BEGUN:
            return True
        return failure.code == Code.UNAVAILABLE and not (is_change and failure.was_sent)

    async def _pause(self, attempt: int, left_s: float) -> None:
        majority = self._channel.endpoint_count // 2 + 1
        if attempt % majority == 0:
            pause_s = _PAUSE_S * (1 + _JITTER * self._random.uniform(-1, 1))
            await asyncio.sleep(min(pause_s, left_s))

    def _error(self, failure: CallFailedError, *, is_change: bool) -> StoreError:
        error = error_of(failure, is_change=is_change)
        return ClosedError("the store was closed") if self._is_closed else error

    def close(self) -> None:
        """End all retries."""
        self._is_closed = True
        self.tokens.close()
