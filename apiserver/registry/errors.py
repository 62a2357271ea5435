"""ApiErrors for failures of the store.

    unreachable, no leader        500 ServerTimeout, retry after two seconds
    too slow                      504 Timeout
    outcome of a write unknown    500 with the store's text: the client must check
    request too large             500 with etcd's text

Texts are upstream's where it has some. Clients retry automatically if the answer says so, so that
it only does where nothing was written.
"""

from collections.abc import Sequence
from typing import Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.registry.record import NOT_TRANSFORMABLE, Record
from kvstore.client.errors import (
    StoreError,
    StoreTimeoutError,
    TooLargeError,
    TooManyRequestsError,
    UnavailableError,
)

TIMED_OUT: Final = "request did not complete within requested timeout - context deadline exceeded"
LIST_EXPIRED: Final = "The resourceVersion for the provided list is too old."
PAGE_EXPIRED: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start"
    " a new list without the continue parameter, or use the continue token in this response to"
    " retrieve the remainder of the results. Continuing with the provided token results in an"
    " inconsistent list - objects that were created, modified, or deleted between the time the"
    " first chunk was returned and now may show up in the list."
)
UNREADABLE_MAX: Final = 100
"""How many unreadable objects the error of a list names."""
_TRUNCATED: Final = "too many errors, the list is truncated"
_STARTING: Final = "storage is (re)initializing"


def api_error(error: StoreError, resource: GroupResource, operation: str) -> ApiError:
    """Return the answer to a request that failed in the store.

    operation: `get`, `list`, …
    """
    if isinstance(error, UnavailableError):
        return status.server_timeout(resource, operation)
    if isinstance(error, StoreTimeoutError):
        return status.timeout(TIMED_OUT)
    if isinstance(error, TooManyRequestsError):
        return status.too_many_requests(error.text, 1)
    if isinstance(error, TooLargeError):
        return status.unknown("etcdserver: request is too large")
    return status.unknown(error.text)


def is_of_store(error: ApiError) -> bool:
    """Return whether a failure of the store caused an answer: the write may have happened."""
    return isinstance(error.__cause__, StoreError)


def not_loaded() -> ApiError:
    """Return the answer while the watch cache is being loaded or reloaded."""
    return status.too_many_requests(_STARTING, 1)


def watch_expired(revision: int, oldest: int) -> ApiError:
    """Return the answer to a watch from a compacted revision.

    oldest: the first available revision.
    """
    return status.expired(f"too old resource version: {revision} ({oldest - 1})")


def unreadable(prefix: str, record: Record) -> ApiError:
    """Return the 500 of an unreadable object; prefix: of its collection."""
    if not record.error.startswith(NOT_TRANSFORMABLE):
        return status.unknown(record.error)
    return status.internal_error(_corrupt(f"/{prefix}/{record.key}", record.error))


def unreadable_list(resource: GroupResource, records: Sequence[tuple[str, Record]]) -> ApiError:
    """Return the 500 StorageReadError of a list with unreadable objects.

    records: each with its key in the store; at least one, in the order of keys.
    """
    causes = []
    for key, record in records[:UNREADABLE_MAX]:
        text = record.error
        if not text.startswith(NOT_TRANSFORMABLE):
            text = f"object not decodable revision={record.revision}: {text}"
        causes.append(
            {"reason": "UnexpectedServerResponse", "message": _corrupt(key, text), "field": key}
        )
    more = f" (and {len(causes) - 1} more)" if len(causes) > 1 else ""
    message = (
        f"failed to read one or more {resource} from the storage: {causes[0]['message']}{more}"
    )
    if len(causes) == UNREADABLE_MAX:
        causes.append({"reason": "FieldValueTooMany", "message": _TRUNCATED})
    details = {
        "name": "list",
        "group": resource.group,
        "kind": resource.resource,
        "causes": causes,
    }
    return status.failure(500, "StorageReadError", message, details)


def _corrupt(key: str, text: str) -> str:
    return (
        f"StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0,"
        f" AdditionalErrorMsg: {text}"
    )
