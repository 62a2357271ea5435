"""The media types of request bodies."""

from collections.abc import Sequence
from typing import Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.http.answers import Reply
from kvstack.apiserver.verbs.forms.bodies import JSON, MEDIA_TYPES
from kvstack.component.http.serving.request import Request

_KEEP_BYTES_MAX: Final = 256 << 10
"""The connection is kept for bodies up to this far above the limit."""
_DISCARDED_BYTES_MAX: Final = 16 << 20
_UNKNOWN: Final = (
    "the body of the request was in an unknown format - accepted media types include: "
)


def has_body(request: Request) -> bool:
    """Return whether a request has a body at all."""
    return bool(request.body) or (
        request.body is None and request.header("content-length", "1") != "0"
    )


async def discard_body(request: Request, reply: Reply, limit_bytes: int) -> None:
    """Read and discard a refused body: a client that is still sending would not see the answer."""
    if request.header("expect") or request.body is not None:
        return
    length = request.header("content-length")
    is_long = not length.isdecimal() or int(length) > limit_bytes + _KEEP_BYTES_MAX
    if is_long and request.version.startswith("HTTP/1"):
        reply.extra.append(("Connection", "close"))
    left = _DISCARDED_BYTES_MAX
    async for piece in request.pieces():
        left -= len(piece)
        if left < 0:
            return


def body_type(request: Request, media_types: Sequence[str] = MEDIA_TYPES) -> str:
    """Return the media type of a body, without parameters; raises ApiError.

    media_types: the supported ones, which the error names.
    """
    content_type = request.header("content-type")
    if not content_type:
        return JSON
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in media_types:
        raise _unknown(MEDIA_TYPES)
    return media_type


def patch_type(request: Request, patches: Sequence[str], *, is_custom: bool) -> str:
    """Return the media type of a patch; raises ApiError."""
    content_type = request.header("content-type")
    media_type = content_type.partition(";")[0]
    if media_type in patches:
        return media_type
    ranges = {each.partition(";")[0].strip() for each in content_type.split(",")}
    if not is_custom and ranges.isdisjoint(patches):
        message = "415: Unsupported Media Type"
        raise status.failure(415, "UnsupportedMediaType", message, {})
    raise _unknown(patches)


def _unknown(accepted: Sequence[str]) -> ApiError:
    return status.unsupported_media_type(_UNKNOWN + ", ".join(accepted))
