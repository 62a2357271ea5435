"""Authentication by a webhook that answers TokenReviews.

Answers are cached for two minutes, unless flags say otherwise, also negative ones. Concurrent
requests with one token share one review.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.authentication.results import (
    AuthenticationError,
    Found,
    Identified,
    shared,
)
from kvstack.apiserver.policy.interfaces import Reviewer
from kvstack.apiserver.policy.remembering import Remembered
from kvstack.apiserver.policy.remote.connection import RemoteError
from kvstack.component.clock import Clock

REMEMBERED_MAX: Final = 16_384

_Key = tuple[str, tuple[str, ...]]


class WebhookTokens:
    """Calls one webhook."""

    def __init__(
        self,
        reviewer: Reviewer,
        api_audiences: Sequence[str],
        clock: Clock,
        *,
        version: str = "v1",
        lasts_ns: int,
    ) -> None:
        """lasts_ns: how long answers are cached, 0: not at all.

        api_audiences: of tokens for which the webhook names no audience.
        """
        self._reviewer: Final = reviewer
        self._api_audiences: Final = tuple(api_audiences)
        self._version: Final = version
        self._lasts_ns: Final = lasts_ns
        self._answers: Final[Remembered[_Key, tuple[Found]]] = Remembered(REMEMBERED_MAX, clock)
        self._asking: Final[dict[_Key, asyncio.Task[Found]]] = {}

    def authenticate(self, token: str, audiences: Sequence[str]) -> Found | Awaitable[Found]:
        """Return the token's user; raises AuthenticationError."""
        key = token, tuple(audiences)
        known = self._answers.get(key)
        return self._shared(key) if known is None else known[0]

    async def _shared(self, key: _Key) -> Found:
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._ask(key), name="token review")
            task.add_done_callback(lambda task: self._on_answer(key, task))
        # A cancelled request leaves the review to the others.
        return await asyncio.shield(task)

    def _on_answer(self, key: _Key, task: "asyncio.Task[Found]") -> None:
        del self._asking[key]
        if not task.cancelled():
            task.exception()  # marks it as retrieved, even if all callers were cancelled

    async def _ask(self, key: _Key) -> Found:
        token, audiences = key
        review = {
            "kind": "TokenReview",
            "apiVersion": f"authentication.k8s.io/{self._version}",
            "metadata": {},
            "spec": {"token": token, **({"audiences": list(audiences)} if audiences else {})},
            "status": {"user": {}},
        }
        try:
            status = await self._reviewer.review(review)
        except RemoteError as error:
            raise AuthenticationError(str(error)) from error
        found = self._user_of(status, audiences)
        self._answers.put(key, (found,), self._lasts_ns)
        return found

    def _user_of(self, status: Object, audiences: tuple[str, ...]) -> Found:
        token_audiences = _texts(status.get("audiences"), "audiences") or self._api_audiences
        accepted = shared(audiences, token_audiences)
        if audiences and not accepted:
            return None
        if status.get("authenticated") is not True:
            if error := status.get("error"):
                raise AuthenticationError(str(error))
            return None
        return Identified(_user(status.get("user")), accepted)


def _user(info: object) -> User:
    if not isinstance(info, dict):
        raise AuthenticationError("the webhook named no user")
    name, uid = info.get("username") or "", info.get("uid") or ""
    extra = info.get("extra") or {}
    if not (isinstance(name, str) and isinstance(uid, str) and isinstance(extra, Mapping)):
        raise AuthenticationError("the webhook named a user in another form")
    if not name:
        raise AuthenticationError("the webhook named a user without a name")
    return User(
        name,
        uid,
        _texts(info.get("groups"), "groups"),
        {str(key): _texts(values, "extra") for key, values in extra.items()},
    )


def _texts(value: object, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise AuthenticationError(f"{name} in the webhook's answer is not a list of strings")
    return tuple(value)
