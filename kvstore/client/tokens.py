"""The credentials of a client: metadata for its calls, and a token that is renewed when refused.

    user and password ──► Authenticate ──► ("token", …) goes with every call
         └── again, once for all refused callers, when a server no longer accepts the token

A token in the options is sent as it is. Without either, calls carry only the options' metadata.
"""

import asyncio
from typing import Final

from kvstore.client.channel import Channel, Metadata
from kvstore.client.codec.decode import parse
from kvstore.client.errors import CallFailedError
from kvstore.client.options import ClientOptions
from kvstore.errors import (
    AUTH_NOT_ENABLED,
    AUTH_OLD_REVISION,
    INVALID_AUTH_TOKEN,
    USER_EMPTY,
    Code,
)
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.varint import WireError

TOKEN: Final = "token"
_REFUSED: Final = frozenset({INVALID_AUTH_TOKEN.text, AUTH_OLD_REVISION.text, USER_EMPTY.text})


class Tokens:
    """The metadata of one client's calls."""

    def __init__(self, channel: Channel, options: ClientOptions) -> None:
        """Take user and password, or a token, from the options; no call is made yet."""
        self._channel = channel
        self._base: Final = options.metadata
        self._user: Final = options.user
        self._request: Final = pb.AuthenticateRequest(name=options.user, password=options.password)
        self._renewing: asyncio.Task[None] | None = None
        self.metadata: Metadata | None = self._base or None
        if options.token:
            self.metadata = (*self._base, (TOKEN, options.token))

    @property
    def can_renew(self) -> bool:
        """Whether there are a user and a password to get a token with."""
        return bool(self._user)

    def is_refusal(self, failure: CallFailedError) -> bool:
        """Return whether a call failed only because of its token, so a new one may help.

        Nothing was done then.

        With a certificate, users may have changed during the call; then repeating it helps.
        """
        if failure.text not in _REFUSED:
            return False
        return self.can_renew or failure.text == AUTH_OLD_REVISION.text

    async def renew(self, refused: Metadata | None, limit_s: float) -> None:
        """Get a token to replace the one in refused; CallFailedError if that fails."""
        if not self.can_renew or self.metadata is not refused:
            return  # there is nothing to renew, or another call has just renewed it
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._authenticate(limit_s), name="authenticate")
            self._renewing.add_done_callback(self._renewed)
        await asyncio.shield(self._renewing)

    def _renewed(self, task: asyncio.Task[None]) -> None:
        self._renewing = None
        if not task.cancelled():
            task.exception()  # its waiters get the error; there may be none left

    async def _authenticate(self, limit_s: float) -> None:
        body = self._request.SerializeToString()
        try:
            reply = await self._channel.call(rpc.AUTHENTICATE, body, limit_s, self._base or None)
        except CallFailedError as failure:
            if failure.text != AUTH_NOT_ENABLED.text:
                raise
            self.metadata = self._base or None
            return
        try:
            token = parse(pb.AuthenticateResponse, reply).token
        except WireError as error:
            raise CallFailedError(Code.INTERNAL, str(error), True) from None
        self.metadata = (*self._base, (TOKEN, token))

    def close(self) -> None:
        """Cancel the request that is under way."""
        if self._renewing is not None:
            self._renewing.cancel()
