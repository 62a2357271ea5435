"""ConversionReviews: requests to conversion webhooks, and their answers.

body = review_body(objects, "g.io/v2", uid, "v1")
converted = read_objects(answer, uid, "v1")           raises CallError
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import orjson

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.webhooks.client import Answer, CallError
from kvstack.apiserver.webhooks.reading import read_review

VERSIONS: Final = ("v1", "v1beta1")
_GROUP: Final = "apiextensions.k8s.io"
_KIND: Final = "ConversionReview"
_TYPES: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions"


def review_body(objects: Sequence[Object], api_version: str, uid: str, version: str) -> bytes:
    """Return the review that converts objects to another version."""
    request = {"uid": uid, "desiredAPIVersion": api_version, "objects": objects}
    return orjson.dumps({"kind": _KIND, "apiVersion": f"{_GROUP}/{version}", "request": request})


def read_objects(answer: Answer, uid: str, version: str) -> list[Any]:
    """Return the objects of an answer, unchecked; raises CallError."""
    review = read_review(answer, f"{_GROUP}/{version}", _KIND, _type(version))
    if version == "v1" and not review.get("kind"):
        raise CallError(f"expected webhook response of {_GROUP}/v1, Kind={_KIND}, got /, Kind=")
    response = review.get("response")
    if not response:
        raise CallError("no response provided")
    own = response.get("uid") or ""
    if version == "v1" and own != uid:
        raise CallError(f"expected response.uid={quote(uid)}, got {quote(own)}")
    result = response.get("result") or {}
    if result.get("status") != "Success":
        said = f"response.result.status was '{result.get('status', '')}', not 'Success'"
        raise CallError(result.get("message") or said)
    return response.get("convertedObjects") or []


@cache
def _type(version: str) -> Type:
    return load().types[f"{_TYPES}.{version}.{_KIND}"]
