"""AdmissionReviews: requests to admission webhooks, and their answers.

body = review_body(request, uid, "v1")
verdict = read_verdict(answer, uid, "v1", is_mutating=True)     → Verdict(allowed=True, …)
"""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

import orjson

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.webhooks.client import Answer
from kvstack.apiserver.webhooks.reading import read_review

VERSIONS: Final = ("v1", "v1beta1")
_GROUP: Final = "admission.k8s.io"
_KIND: Final = "AdmissionReview"
_HEADS: Final = {
    each: f'{{"kind":"{_KIND}","apiVersion":"{_GROUP}/{each}","request":{{"uid":"'.encode()
    for each in VERSIONS
}


class InvalidResponseError(Exception):
    """A review that is invalid as an answer; the text says why."""


class Verdict(NamedTuple):
    """The answer of a webhook."""

    allowed: bool
    status: Object | None = None
    """The Status of a refusal."""
    patch: bytes = b""
    warnings: Sequence[str] = ()
    annotations: Mapping[str, str] = {}


def known_version(versions: Sequence[str]) -> str:
    """Return the supported version of a webhook's reviews; empty: there is none."""
    return next((each for each in versions if each in VERSIONS), "")


def request_text(request: Object) -> bytes:
    """Return a request without its uid as JSON, for `review_body`."""
    return orjson.dumps(request)


def review_body(request: bytes, uid: str, version: str) -> bytes:
    """Return the encoded review of a request; equal requests are encoded once."""
    return b'%b%b",%b}\n' % (_HEADS[version], uid.encode(), request[1:])


def read_verdict(answer: Answer, uid: str, version: str, *, is_mutating: bool) -> Verdict:
    """Return the answer of a webhook; raises CallError and InvalidResponseError."""
    review = read_review(answer, f"{_GROUP}/{version}", _KIND, _type(version))
    response = review.get("response")
    if response is None:
        raise InvalidResponseError("webhook response was absent")
    patch = b64decode(response.get("patch") or "")
    patch_type = response.get("patchType")
    if version == "v1":
        _check(review, response, uid)
        _check_patch(patch, patch_type, is_mutating=is_mutating)
    return Verdict(
        bool(response.get("allowed")),
        response.get("status"),
        patch if is_mutating else b"",
        response.get("warnings") or (),
        response.get("auditAnnotations") or {},
    )


@cache
def _type(version: str) -> Type:
    return load().types[f"io.k8s.api.admission.{version}.{_KIND}"]


def _check(review: Object, response: Object, uid: str) -> None:
    own = response.get("uid") or ""
    if own != uid:
        raise InvalidResponseError(f"expected response.uid={quote(uid)}, got {quote(own)}")
    if not review.get("kind"):
        raise InvalidResponseError(
            f"expected webhook response of {_GROUP}/v1, Kind={_KIND}, got /, Kind="
        )


def _check_patch(patch: bytes, patch_type: str | None, *, is_mutating: bool) -> None:
    if not is_mutating:
        for name, is_given in (("patch", bool(patch)), ("patchType", patch_type is not None)):
            if is_given:
                raise InvalidResponseError(f"validating webhook may not return response.{name}")
    elif patch and patch_type is None:
        raise InvalidResponseError("webhook returned response.patch but not response.patchType")
    elif not patch and patch_type is not None:
        raise InvalidResponseError("webhook returned response.patchType but not response.patch")
    elif patch_type == "":
        raise InvalidResponseError('webhook returned invalid response.patchType of ""')
