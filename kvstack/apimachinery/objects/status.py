"""Errors that answer a request: Status objects with Kubernetes' reasons, codes and texts.

    raise not_found(GroupResource("", "pods"), "web")
    → 404 {"kind":"Status", …, "message":"pods \\"web\\" not found","reason":"NotFound", …}

Each function returns an `ApiError`; its caller raises it. `ApiError.status` is the object to send
and `ApiError.code` the status of HTTP. `details.kind` holds the resource, except in `invalid`,
which names the kind.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from typing_extensions import override

from kvstack.apimachinery.objects.field_errors import FieldError, causes, summary
from kvstack.apimachinery.objects.groups import GroupKind, GroupResource
from kvstack.apimachinery.objects.text.go_text import quote

Cause = dict[str, str]
"""A member of `details.causes`: reason, message, field; what is empty is left out."""

MODIFIED: Final = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
GENERIC_MESSAGES: Final = {
    400: ("BadRequest", "the server rejected our request for an unknown reason"),
    401: ("Unauthorized", "the server has asked for the client to provide credentials"),
    404: ("NotFound", "the server could not find the requested resource"),
    405: (
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    ),
    409: ("Conflict", "the server reported a conflict"),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: (
        "TooManyRequests",
        "the server has received too many requests and has asked us to try again later",
    ),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: (
        "Timeout",
        "the server was unable to return a response in the time allotted, but may still be"
        " processing the request",
    ),
}
"""Reasons and messages of codes that are answered without details."""


class ApiError(Exception):
    """The refusal of a request, as a Status object."""

    def __init__(self, status: dict[str, Any]) -> None:
        """Keep the object to be sent."""
        super().__init__(status.get("message", ""))
        self.status: Final = status

    @property
    def code(self) -> int:
        """The status code of HTTP."""
        code: int = self.status["code"]
        return code

    @property
    def reason(self) -> str:
        """The reason, or empty."""
        reason: str = self.status.get("reason", "")
        return reason

    @property
    def is_not_found(self) -> bool:
        """Whether the object does not exist, or its kind is not served: code 404."""
        return self.code == HTTPStatus.NOT_FOUND

    @property
    def is_conflict(self) -> bool:
        """Whether another write was first: code 409, reasons Conflict and AlreadyExists."""
        return self.code == HTTPStatus.CONFLICT

    @property
    def is_forbidden(self) -> bool:
        """Whether the caller may not do this, or admission refused it: code 403."""
        return self.code == HTTPStatus.FORBIDDEN

    @property
    def is_gone(self) -> bool:
        """Whether the revision is compacted: code 410, reasons Expired and Gone."""
        return self.code == HTTPStatus.GONE

    @property
    def message(self) -> str:
        """The text for people."""
        message: str = self.status.get("message", "")
        return message

    @override
    def __str__(self) -> str:
        """Return the text for people."""
        return self.message


def failure(
    code: int,
    reason: str,
    message: str,
    details: dict[str, Any] | None = None,
    *,
    continue_token: str = "",
) -> ApiError:
    """Return an error of any kind; details: None for none at all, else empty members drop out."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {"continue": continue_token} if continue_token else {},
        "status": "Failure",
    }
    if message:
        status["message"] = message
    if reason:
        status["reason"] = reason
    if details is not None:
        status["details"] = {name: value for name, value in details.items() if value}
    status["code"] = code
    return ApiError(status)


def deleted_status(resource: GroupResource, name: str, uid: str) -> dict[str, Any]:
    """Return the Status that answers a delete whose kind does not answer with the object."""
    details = {"name": name, "group": resource.group, "kind": resource.resource, "uid": uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {member: value for member, value in details.items() if value},
    }


def bad_request(message: str) -> ApiError:
    """Return 400 BadRequest."""
    return failure(400, "BadRequest", message)


def unauthorized(message: str = "Unauthorized") -> ApiError:
    """Return 401 Unauthorized."""
    return failure(401, "Unauthorized", message)


def forbidden(resource: GroupResource, name: str, message: str) -> ApiError:
    """Return 403 Forbidden with admission's text."""
    if not resource.resource and not resource.group:
        text = f"forbidden: {message}"
    else:
        text = f"{_named(resource, name) if name else resource} is forbidden: {message}"
    return failure(403, "Forbidden", text, _details(resource, name))


def access_denied(
    user: str,
    verb: str,
    resource: GroupResource,
    *,
    name: str = "",
    subresource: str = "",
    namespace: str = "",
    reason: str = "",
) -> ApiError:
    """Return 403 Forbidden with authorization's text for a resource."""
    full = f"{resource.resource}/{subresource}" if subresource else resource.resource
    place = f"in the namespace {quote(namespace)}" if namespace else "at the cluster scope"
    text = (
        f"User {quote(user)} cannot {verb} resource {quote(full)} in API group"
        f" {quote(resource.group)} {place}"
    )
    return forbidden(resource, name, _with_reason(text, reason))


def path_denied(user: str, verb: str, path: str, reason: str = "") -> ApiError:
    """Return 403 Forbidden with authorization's text for a non-resource path."""
    text = f"User {quote(user)} cannot {verb} path {quote(path)}"
    return forbidden(GroupResource("", ""), "", _with_reason(text, reason))


def not_found(resource: GroupResource, name: str) -> ApiError:
    """Return 404 NotFound of an object."""
    return failure(404, "NotFound", f"{_named(resource, name)} not found", _details(resource, name))


def generic(code: int) -> ApiError:
    """Return an error without details beyond its code."""
    reason, message = GENERIC_MESSAGES[code]
    return failure(code, reason, message, {})


def method_not_supported(resource: GroupResource, verb: str) -> ApiError:
    """Return 405 MethodNotAllowed of a verb that a resource does not have."""
    message = f"{verb} is not supported on resources of kind {quote(str(resource))}"
    return failure(405, "MethodNotAllowed", message, _details(resource, ""))


def not_acceptable(message: str) -> ApiError:
    """Return 406 NotAcceptable."""
    return failure(406, "NotAcceptable", message)


def conflict(resource: GroupResource, name: str, message: str = MODIFIED) -> ApiError:
    """Return 409 Conflict; without a message, that of a changed resourceVersion."""
    text = f"Operation cannot be fulfilled on {_named(resource, name)}: {message}"
    return failure(409, "Conflict", text, _details(resource, name))


def apply_conflict(conflicts: Sequence[Cause], message: str) -> ApiError:
    """Return 409 Conflict of server-side apply."""
    return failure(409, "Conflict", message, {"causes": list(conflicts)})


def already_exists(
    resource: GroupResource, name: str, *, is_being_deleted: bool = False
) -> ApiError:
    """Return 409 AlreadyExists."""
    prefix = "object is being deleted: " if is_being_deleted else ""
    message = f"{prefix}{_named(resource, name)} already exists"
    return failure(409, "AlreadyExists", message, _details(resource, name))


def generated_name_exists(resource: GroupResource, name: str) -> ApiError:
    """Return 409 AlreadyExists after all tries of generated names were taken."""
    message = (
        f"{_named(resource, name)} already exists, the server was not able to generate a unique"
        " name for the object"
    )
    return failure(409, "AlreadyExists", message, _details(resource, name, retry_after=1))


def expired(message: str, continue_token: str = "") -> ApiError:
    """Return 410 Expired; the token lets a client go on with an inconsistent list."""
    return failure(410, "Expired", message, continue_token=continue_token)


def too_large(message: str) -> ApiError:
    """Return 413 RequestEntityTooLarge of a body: `limit is 3145728`."""
    return failure(413, "RequestEntityTooLarge", f"Request entity too large: {message}")


def unsupported_media_type(message: str) -> ApiError:
    """Return 415 UnsupportedMediaType."""
    return failure(415, "UnsupportedMediaType", message)


def invalid(kind: GroupKind, name: str, errors: Sequence[FieldError]) -> ApiError:
    """Return 422 Invalid with the errors about the fields of an object."""
    message = f"{kind} {quote(name)} is invalid"
    if errors:
        message = f"{message}: {summary(errors)}"
    details = {"name": name, "group": kind.group, "kind": kind.kind, "causes": causes(errors)}
    return failure(422, "Invalid", message, details)


def too_many_requests(message: str, retry_after: int = 0) -> ApiError:
    """Return 429 TooManyRequests; retry_after: seconds."""
    return failure(429, "TooManyRequests", message, {"retryAfterSeconds": retry_after})


def internal_error(message: str) -> ApiError:
    """Return 500 InternalError."""
    return failure(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        {"causes": [{"message": message}] if message else [{}]},
    )


def unknown(message: str, code: int = 500) -> ApiError:
    """Return an error without a reason, as upstream answers what it did not expect."""
    return failure(code, "", message)


def server_timeout(resource: GroupResource, operation: str, retry_after: int = 2) -> ApiError:
    """Return 500 ServerTimeout of a store that does not answer; retry_after: seconds."""
    message = (
        f"The {operation} operation against {resource} could not be completed at this time,"
        " please try again."
    )
    details = _details(resource, operation, retry_after=retry_after)
    return failure(500, "ServerTimeout", message, details)


def service_unavailable(message: str, retry_after: int = 0) -> ApiError:
    """Return 503 ServiceUnavailable; retry_after: seconds."""
    details = {"retryAfterSeconds": retry_after} if retry_after else None
    return failure(503, "ServiceUnavailable", message, details)


def timeout(message: str, retry_after: int = 0) -> ApiError:
    """Return 504 Timeout; retry_after: seconds."""
    return failure(504, "Timeout", f"Timeout: {message}", {"retryAfterSeconds": retry_after})


def too_large_resource_version(requested: int, current: int, retry_after: int = 1) -> ApiError:
    """Return 504 Timeout of a read that waited for a revision that did not come."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return failure(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {requested}, current: {current}",
        {"causes": [cause], "retryAfterSeconds": retry_after},
    )


def _named(resource: GroupResource, name: str) -> str:
    return f"{resource} {quote(name)}"


def _details(resource: GroupResource, name: str, retry_after: int = 0) -> dict[str, Any]:
    return {
        "name": name,
        "group": resource.group,
        "kind": resource.resource,
        "retryAfterSeconds": retry_after,
    }


def _with_reason(text: str, reason: str) -> str:
    # Nothing a browser could take for HTML.
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"{safe}: {reason}" if reason else safe
