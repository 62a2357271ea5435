"""Answers of the metrics APIs: JSON, and Tables on request."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import orjson

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError, not_acceptable

JSON: Final = "application/json"
_JSON_LIKE: Final = frozenset((JSON, "*/*", "application/*"))
_ACCEPT_MAX: Final = 4096


OBJECTS_MANY: Final = 1_000
"""Lists of more objects are made in a thread, so that other requests need not wait."""


class MetricsApi(Protocol):
    """Answers requests."""

    @property
    def is_large(self) -> bool:
        """Whether an answer may take long; then it may be made in a thread."""
        ...

    def answer(
        self, method: str, path: str, query: Mapping[str, Sequence[str]], accept: str, /
    ) -> "WholeAnswer":
        """Answer an authorized request."""
        ...


async def answered(
    api: MetricsApi, method: str, path: str, query: Mapping[str, Sequence[str]], accept: str
) -> "WholeAnswer":
    """Return the answer of an API, made where it does not block other requests."""
    if api.is_large:
        return await asyncio.to_thread(api.answer, method, path, query, accept)
    return api.answer(method, path, query, accept)


class WholeAnswer(NamedTuple):
    """A complete answer."""

    code: int
    content_type: str
    body: bytes


class AcceptedType(NamedTuple):
    """A media type that a client accepts."""

    table_version: str = ""
    """The version of Tables in meta.k8s.io; empty: no Table."""
    include: str = "Metadata"
    """The contents of a Table's rows."""


def answer(obj: Object, code: int = 200) -> WholeAnswer:
    """Return an object as an answer."""
    return WholeAnswer(code, JSON, orjson.dumps(obj) + b"\n")


def refusal(error: ApiError) -> WholeAnswer:
    """Return an error as an answer."""
    return answer(error.status, error.code)


def accepted(header: str, include: str = "") -> AcceptedType:
    """Return what an Accept header asks for, in its order; raises ApiError for nothing we have."""
    clauses = [] if not header else header[:_ACCEPT_MAX].split(",")
    for clause in clauses:
        media_type, *given = (each.strip() for each in clause.split(";"))
        parameters = dict(each.partition("=")[::2] for each in given)
        if media_type not in _JSON_LIKE:
            continue
        if parameters.get("as") == "Table" and parameters.get("g", "meta.k8s.io") == "meta.k8s.io":
            return AcceptedType(parameters.get("v", "v1"), include or "Metadata")
        if "as" not in parameters:
            return AcceptedType()
    if clauses:
        raise not_acceptable(f"only the following media types are accepted: {JSON}")
    return AcceptedType()
