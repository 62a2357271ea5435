"""What is repeated and what is not, and as which errors failures come out."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kvstore import errors as texts
from kvstore.client.caller import ATTEMPTS_MAX, Caller
from kvstore.client.errors import (
    CallFailedError,
    ClosedError,
    CompactedError,
    CorruptError,
    FutureRevisionError,
    InvalidArgumentError,
    LeaseNotFoundError,
    NoSpaceError,
    OutcomeUnknownError,
    PermissionDeniedError,
    StoreError,
    StoreTimeoutError,
    TooLargeError,
    TooManyRequestsError,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedError,
    error_of,
    error_of_text,
)
from kvstore.client.options import ClientOptions
from kvstore.errors import Code, Refusal
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.fake_channel import FakeChannel

NOT_SENT = CallFailedError(Code.UNAVAILABLE, "no endpoint", False)
LOST = CallFailedError(Code.UNAVAILABLE, "connection lost", True)


def failed(refusal: Refusal) -> CallFailedError:
    return CallFailedError(*refusal, True)


def play(
    channel: FakeChannel,
    scenario: Callable[[Caller], Awaitable[None]],
    options: ClientOptions | None = None,
) -> None:
    async def run() -> None:
        caller = Caller(channel, options or ClientOptions())
        await scenario(caller)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("failure", "is_change", "is_repeated"),
    [
        (NOT_SENT, False, True),
        (NOT_SENT, True, True),
        (LOST, False, True),
        (LOST, True, False),
        (failed(texts.NO_LEADER), True, True),
        (failed(texts.PROPOSAL_DROPPED), True, True),
        (failed(texts.LEADER_CHANGED), True, False),
        (failed(texts.LEADER_CHANGED), False, True),
        (failed(texts.TIMEOUT), True, False),
        (failed(texts.STOPPED), True, False),
        (failed(texts.COMPACTED), False, False),
        (failed(texts.TOO_MANY_REQUESTS), False, False),
        (failed(texts.LEARNER_NOT_SUPPORTED), False, False),
        (CallFailedError(Code.DEADLINE_EXCEEDED, "too late", True), False, False),
        (CallFailedError(Code.INTERNAL, "odd", True), False, False),
    ],
)
def test_what_is_repeated(failure: CallFailedError, is_change: bool, is_repeated: bool) -> None:  # noqa: FBT001
    channel = FakeChannel()
    channel.replies = [failure, failure, b"reply"]

    async def scenario(caller: Caller) -> None:
        if is_repeated:
            assert await caller.call(rpc.TXN, b"body", is_change=is_change) == b"reply"
            assert [each[1] for each in channel.calls] == [b"body"] * 3
        else:
            with pytest.raises(StoreError):
                await caller.call(rpc.TXN, b"body", is_change=is_change)
            assert len(channel.calls) == 1

    play(channel, scenario)


def test_a_learner_is_left_for_another_if_there_is_one() -> None:
    channel = FakeChannel(endpoints=3)
    channel.replies = [failed(texts.LEARNER_NOT_SUPPORTED), b"reply"]

    async def scenario(caller: Caller) -> None:
        assert await caller.call(rpc.RANGE, b"", is_change=False) == b"reply"

    play(channel, scenario)


def test_repeating_ends_with_the_time() -> None:
    channel = FakeChannel()
    channel.replies = [NOT_SENT] * 1000

    async def scenario(caller: Caller) -> None:
        with pytest.raises(UnavailableError, match="no endpoint"):
            await caller.call(rpc.RANGE, b"", 0.1, is_change=False)
        assert 1 < len(channel.calls) < 10  # a pause of 25 ms after each round

    play(channel, scenario)


def test_repeating_ends_with_the_attempts() -> None:
    channel = FakeChannel(endpoints=500)
    channel.replies = [LOST] * 1000

    async def scenario(caller: Caller) -> None:
        with pytest.raises(UnavailableError):
            await caller.call(rpc.RANGE, b"", 30.0, is_change=False)
        assert len(channel.calls) == ATTEMPTS_MAX

    play(channel, scenario)


def test_a_token_is_renewed_and_goes_along() -> None:
    channel = FakeChannel()
    token = pb.AuthenticateResponse(token="t1").SerializeToString()
    refused = failed(texts.INVALID_AUTH_TOKEN)
    channel.replies = [failed(texts.USER_EMPTY), token, b"one", refused, token, b"two"]
    options = ClientOptions(user="u", password="p", metadata=(("x", "y"),))

    async def scenario(caller: Caller) -> None:
        assert await caller.call(rpc.PUT, b"", is_change=True) == b"one"
        assert await caller.call(rpc.PUT, b"", is_change=True) == b"two"
        methods = [each[0] for each in channel.calls]
        assert methods == [rpc.PUT, rpc.AUTHENTICATE, rpc.PUT] * 2
        assert channel.calls[1][2] == (("x", "y"),)
        assert channel.calls[2][2] == (("x", "y"), ("token", "t1"))

    play(channel, scenario, options)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (failed(texts.AUTH_FAILED), UnauthenticatedError),
        (b"\xff\xff", StoreError),
        (CallFailedError(Code.UNAVAILABLE, "gone", True), UnavailableError),
    ],
)
def test_a_token_that_cannot_be_had(
    answer: bytes | CallFailedError, error: type[StoreError]
) -> None:
    channel = FakeChannel()
    channel.replies = [failed(texts.INVALID_AUTH_TOKEN), *[answer] * 200]

    async def scenario(caller: Caller) -> None:
        with pytest.raises(error):
            await caller.call(rpc.RANGE, b"", 0.2, is_change=False)

    play(channel, scenario, ClientOptions(user="u", password="p"))


def test_auth_that_was_turned_off_meanwhile() -> None:
    channel = FakeChannel()
    channel.replies = [failed(texts.INVALID_AUTH_TOKEN), failed(texts.AUTH_NOT_ENABLED), b"reply"]

    async def scenario(caller: Caller) -> None:
        assert await caller.call(rpc.RANGE, b"", is_change=False) == b"reply"
        assert channel.calls[-1][2] is None

    play(channel, scenario, ClientOptions(user="u", password="p"))


def test_a_token_refused_again_and_again_is_an_error() -> None:
    channel = FakeChannel()
    token = pb.AuthenticateResponse(token="t").SerializeToString()
    channel.replies = [failed(texts.INVALID_AUTH_TOKEN), token] * 20

    async def scenario(caller: Caller) -> None:
        with pytest.raises(UnauthenticatedError):
            await caller.call(rpc.RANGE, b"", is_change=False)
        assert sum(each[0] == rpc.RANGE for each in channel.calls) == 4

    play(channel, scenario, ClientOptions(user="u", password="p"))


def test_a_given_token_is_not_renewed() -> None:
    channel = FakeChannel()
    channel.replies = [failed(texts.INVALID_AUTH_TOKEN)]

    async def scenario(caller: Caller) -> None:
        with pytest.raises(UnauthenticatedError):
            await caller.call(rpc.RANGE, b"", is_change=False)
        assert channel.calls[0][2] == (("token", "given"),)

    play(channel, scenario, ClientOptions(token="given"))


def test_a_change_of_users_lets_a_certificate_s_call_be_repeated() -> None:
    channel = FakeChannel()
    channel.replies = [failed(texts.AUTH_OLD_REVISION), b"reply"]

    async def scenario(caller: Caller) -> None:
        assert await caller.call(rpc.PUT, b"", is_change=True) == b"reply"

    play(channel, scenario)


def test_nothing_is_repeated_after_the_close() -> None:
    channel = FakeChannel()
    channel.replies = [NOT_SENT]

    async def scenario(caller: Caller) -> None:
        caller.close()
        with pytest.raises(ClosedError):
            await caller.call(rpc.RANGE, b"", is_change=False)

    play(channel, scenario)


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (texts.COMPACTED, CompactedError),
        (texts.FUTURE_REVISION, FutureRevisionError),
        (texts.REQUEST_TOO_LARGE, TooLargeError),
        (texts.TOO_MANY_REQUESTS, TooManyRequestsError),
        (texts.NO_SPACE, NoSpaceError),
        (texts.CORRUPT, CorruptError),
        (texts.LEASE_NOT_FOUND, LeaseNotFoundError),
        (texts.PERMISSION_DENIED, PermissionDeniedError),
        (texts.AUTH_FAILED, UnauthenticatedError),
        (texts.DUPLICATE_KEY, InvalidArgumentError),
        (texts.STREAM_SORT, UnsupportedError),
        (Refusal(Code.RESOURCE_EXHAUSTED, "grpc: received message larger than max"), TooLargeError),
        (Refusal(Code.RESOURCE_EXHAUSTED, "CLIENT: Sent message larger than max"), TooLargeError),
        (Refusal(Code.RESOURCE_EXHAUSTED, "anything else"), TooManyRequestsError),
        (Refusal(Code.NOT_FOUND, "what"), StoreError),
        (Refusal(99, "what"), StoreError),
    ],
)
def test_errors_by_text_and_code(refusal: Refusal, error: type[StoreError]) -> None:
    for is_change in (False, True):
        found = error_of(failed(refusal), is_change=is_change)
        assert type(found) is error
        assert (found.text, found.code) == (refusal.text, refusal.code)
        assert type(found.again()) is error


@pytest.mark.parametrize(
    "code",
    [Code.CANCELED, Code.UNKNOWN, Code.DEADLINE_EXCEEDED, Code.INTERNAL, Code.UNAVAILABLE],
)
def test_a_change_that_may_have_been_made(code: Code) -> None:
    sent, unsent = (CallFailedError(code, "?", was_sent) for was_sent in (True, False))
    assert type(error_of(sent, is_change=True)) is OutcomeUnknownError
    assert type(error_of(unsent, is_change=True)) is not OutcomeUnknownError
    assert type(error_of(sent, is_change=False)) is not OutcomeUnknownError
    late = CallFailedError(Code.DEADLINE_EXCEEDED, "late", True)
    assert isinstance(error_of(late, is_change=False), StoreTimeoutError)


@pytest.mark.parametrize("who", ["answer", "CLIENT: Received message", "Received message"])
def test_an_answer_that_is_too_large_came_after_the_change(who: str) -> None:
    failure = CallFailedError(Code.RESOURCE_EXHAUSTED, f"{who} larger than max (9 vs. 5)", True)
    assert type(error_of(failure, is_change=False)) is TooLargeError
    assert type(error_of(failure, is_change=True)) is OutcomeUnknownError


def test_reasons_of_watches_have_texts_alone() -> None:
    text = f"rpc error: code = PermissionDenied desc = {texts.PERMISSION_DENIED.text}"
    assert type(error_of_text(text)) is PermissionDeniedError
    assert type(error_of_text("anything")) is StoreError
