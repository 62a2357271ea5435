"""Reviews by webhooks: a POST of an object, answered by one of the same kind.

review ──► POST ──► 200 and a review of the same apiVersion and kind ──► its status
            └─ connection reset, 429, 500, 504, Retry-After ──► again, four times at most
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias

import orjson

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.policy.remote.connection import RemoteAnswer, RemoteError
from kvstack.component.clock import Clock

TRIES_MAX: Final = 5
FIRST_PAUSE_S: Final = 0.5
_PAUSE_FACTOR: Final = 1.5
_JITTER: Final = 0.2
_AGAIN: Final = frozenset((429, 500, 504))
_SHOWN_MAX: Final = 200

Noted: TypeAlias = Callable[[int, str, int], None]
"""Called after each attempt: HTTP status (0: no answer), `success`, `timeout` or `error`, and
duration in nanoseconds."""


class Asker(Protocol):
    """A connection; see `Connection.ask`."""

    async def ask(self, method: str, body: bytes = b"", *, timeout_s: float) -> RemoteAnswer:
        """Return the answer; raises RemoteError."""
        ...


def _nobody(_code: int, _result: str, _took_ns: int) -> None:
    """Do nothing."""


class Webhook:
    """Sends reviews to one webhook."""

    def __init__(
        self,
        asker: Asker,
        *,
        timeout_s: float,
        clock: Clock,
        random: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        noted: Noted = _nobody,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        """timeout_s: of one attempt."""
        self._first_pause_s: Final = first_pause_s
        self._asker: Final = asker
        self._timeout_s: Final = timeout_s
        self._clock: Final = clock
        self._random: Final = random
        self._sleep: Final = sleep
        self._noted: Final = noted

    async def review(self, review: Object) -> Object:
        """Return the status of the answered review; raises RemoteError."""
        body = orjson.dumps(review)
        pause_s = self._first_pause_s
        for rest in range(TRIES_MAX - 1, -1, -1):
            began_ns = self._clock.monotonic_ns()
            try:
                answer = await self._asker.ask("POST", body, timeout_s=self._timeout_s)
                status = _status(review, answer)
            except RemoteError as error:
                self._note(error.code, result_of(error), began_ns)
                if not rest or not _is_passing(error):
                    raise
            else:
                self._note(answer.code, "success", began_ns)
                return status
            await self._sleep(pause_s * (1 + _JITTER * self._random()))
            pause_s *= _PAUSE_FACTOR
        raise AssertionError("the last try returns or raises")

    def _note(self, code: int, result: str, began_ns: int) -> None:
        self._noted(code, result, self._clock.monotonic_ns() - began_ns)


def result_of(error: RemoteError) -> str:
    """Return the kind of a failure: `timeout` or `error`."""
    return "timeout" if error.is_timeout else "error"


class _PassingError(RemoteError):
    """An error that may not recur."""


def _is_passing(error: RemoteError) -> bool:
    return isinstance(error, _PassingError) or isinstance(error.__cause__, ConnectionResetError)


def _status(review: Object, answer: RemoteAnswer) -> Object:
    if not 200 <= answer.code < 300:
        shown = answer.body[:_SHOWN_MAX].decode("utf-8", "replace").strip()
        text = f"an error on the server ({quote(shown)}) has prevented the request from succeeding"
        kind = _PassingError if answer.code in _AGAIN or answer.retry_after else RemoteError
        raise kind(text, answer.code, is_timeout=answer.code == 504)
    try:
        review_answer = orjson.loads(answer.body)
    except orjson.JSONDecodeError as error:
        raise RemoteError(f"the answer is not JSON: {error}", answer.code) from None
    names = ("apiVersion", "kind")
    if not isinstance(review_answer, dict) or any(
        review_answer.get(name) != review[name] for name in names
    ):
        wanted = f"{review['apiVersion']}, Kind={review['kind']}"
        raise RemoteError(f"the answer is not of kind {wanted}", answer.code)
    status = review_answer.get("status")
    if status is None:
        status = {}
    if not isinstance(status, dict):
        raise RemoteError("the status of the answer is not an object", answer.code)
    return status
