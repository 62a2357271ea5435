"""The errors of a Store, in one tree.

    StoreError
    ├── UnavailableError        no endpoint could serve it; nothing was done
    ├── StoreTimeoutError       not within the time limit; nothing was done (also a TimeoutError)
    ├── OutcomeUnknownError     a change that may have been made, or not
    ├── CompactedError          the revision is no longer kept
    ├── FutureRevisionError     the revision does not exist yet
    ├── TooLargeError           request or answer is above a limit
    ├── TooManyRequestsError    the server is overloaded; nothing was done
    ├── NoSpaceError            the database is at its quota
    ├── CorruptError            the members' data differ; a CORRUPT alarm is raised
    ├── LeaseNotFoundError      the lease has ended, or never existed
    ├── LeaseExistsError
    ├── PermissionDeniedError
    ├── UnauthenticatedError    user, password or token is missing or invalid
    ├── InvalidArgumentError    the request is invalid
    ├── UnsupportedError        the server does not serve the call
    ├── MalformedAnswerError    the server's answer cannot be decoded
    └── ClosedError             the Store was closed

Errors are recognized by gRPC codes and etcd's texts. An error after which a change may have been
made is an OutcomeUnknownError, whatever the code; all others of a change mean that it was not.
"""

from typing import Final

from kvstore import errors as texts
from kvstore.errors import Code, KvstoreError


class StoreError(KvstoreError):
    """A call failed; the base class of these errors."""

    def __init__(self, text: str, code: int = Code.UNKNOWN) -> None:
        """Take the text, and the gRPC code if the server or the transport returned one."""
        super().__init__(text)
        self.text: Final = text
        self.code: Final = code

    def again(self) -> "StoreError":
        """Return an equal error, for another caller that waited for the same request."""
        return type(self)(self.text, self.code)


class UnavailableError(StoreError):
    """No endpoint could serve the call; nothing was done."""


class StoreTimeoutError(StoreError, TimeoutError):
    """The call took longer than its time limit; nothing was done."""


class OutcomeUnknownError(StoreError):
    """A change that may have been made, or not."""


class CompactedError(StoreError):
    """The requested revision has been compacted."""

    oldest: int = 0  # the oldest revision kept, if the server returned it; else 0


class FutureRevisionError(StoreError):
    """The requested revision does not exist yet."""


class TooLargeError(StoreError):
    """The request, or its answer, is larger than a limit."""


class TooManyRequestsError(StoreError):
    """The server is overloaded; nothing was done."""


class NoSpaceError(StoreError):
    """The database is at its quota: nothing is written until something is deleted."""


class CorruptError(StoreError):
    """The members of the cluster do not hold the same data."""


class LeaseNotFoundError(StoreError):
    """The lease has ended or never existed."""


class LeaseExistsError(StoreError):
    """A lease with that id exists."""


class PermissionDeniedError(StoreError):
    """The user does not have the permission."""


class UnauthenticatedError(StoreError):
    """User, password or token is missing or invalid."""


class InvalidArgumentError(StoreError):
    """The request is invalid."""


class UnsupportedError(StoreError):
    """The server does not serve this call."""


class MalformedAnswerError(StoreError):
    """The server's answer cannot be decoded as one to this call."""


class ClosedError(StoreError):
    """The Store was closed."""


class CallFailedError(Exception):
    """One attempt of a call failed; raised by a channel for its caller, which may retry."""

    def __init__(self, code: int, text: str, was_sent: bool) -> None:  # noqa: FBT001
        """Take the gRPC code, the text, and whether the server may have seen the call."""
        super().__init__(text)
        self.code: Final = code
        self.text: Final = text
        self.was_sent: Final = was_sent


_BY_TEXT: Final[dict[str, type[StoreError]]] = {
    refusal.text: error
    for refusal, error in (
        (texts.COMPACTED, CompactedError),
        (texts.FUTURE_REVISION, FutureRevisionError),
        (texts.REQUEST_TOO_LARGE, TooLargeError),
        (texts.TOO_MANY_REQUESTS, TooManyRequestsError),
        (texts.NO_SPACE, NoSpaceError),
        (texts.CORRUPT, CorruptError),
        (texts.LEASE_NOT_FOUND, LeaseNotFoundError),
        (texts.LEASE_EXISTS, LeaseExistsError),
        (texts.PERMISSION_DENIED, PermissionDeniedError),
        (texts.INVALID_AUTH_TOKEN, UnauthenticatedError),
        (texts.AUTH_FAILED, UnauthenticatedError),
        (texts.AUTH_OLD_REVISION, UnauthenticatedError),
        (texts.USER_EMPTY, UnauthenticatedError),
        (texts.PROPOSAL_DROPPED, UnavailableError),
        (texts.NO_LEADER, UnavailableError),
        (texts.LEARNER_NOT_SUPPORTED, UnavailableError),
    )
}
_BY_CODE: Final[dict[int, type[StoreError]]] = {
    Code.INVALID_ARGUMENT: InvalidArgumentError,
    Code.DEADLINE_EXCEEDED: StoreTimeoutError,
    Code.PERMISSION_DENIED: PermissionDeniedError,
    Code.RESOURCE_EXHAUSTED: TooManyRequestsError,
    Code.OUT_OF_RANGE: InvalidArgumentError,
    Code.UNIMPLEMENTED: UnsupportedError,
    Code.UNAVAILABLE: UnavailableError,
    Code.UNAUTHENTICATED: UnauthenticatedError,
}
# After these codes, a change that was sent may have been made.
_UNCLEAR: Final = frozenset(
    {
        Code.CANCELED,
        Code.UNKNOWN,
        Code.DEADLINE_EXCEEDED,
        Code.ABORTED,
        Code.INTERNAL,
        Code.UNAVAILABLE,
        Code.DATA_LOSS,
    }
)
_TOO_LARGE: Final = "larger than max"  # the text of every gRPC implementation
# A client's own error about an answer begins so: the server has then processed the request.
_ANSWER_TOO_LARGE: Final = ("answer larger", "CLIENT: Received", "Received message larger")


def is_unclear(failure: CallFailedError) -> bool:
    """Return whether a change may have been made although its call failed."""
    if not failure.was_sent or failure.text in _BY_TEXT:
        return False
    return failure.code in _UNCLEAR or failure.text.startswith(_ANSWER_TOO_LARGE)


def error_of(failure: CallFailedError, *, is_change: bool) -> StoreError:
    """Return the StoreError of a failed call."""
    code, text = failure.code, failure.text
    if is_change and is_unclear(failure):
        return OutcomeUnknownError(text, code)
    if (error := _BY_TEXT.get(text)) is not None:
        return error(text, code)
    if code == Code.RESOURCE_EXHAUSTED and _TOO_LARGE in text.lower():
        return TooLargeError(text, code)
    return _BY_CODE.get(code, StoreError)(text, code)


def error_of_text(text: str) -> StoreError:
    """Return the StoreError for a server's reason to end a watch, which has no code."""
    for known, error in _BY_TEXT.items():
        if known in text:
            return error(text)
    return StoreError(text)
