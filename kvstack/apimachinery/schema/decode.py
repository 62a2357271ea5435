"""Decoding objects by their types, with the results and the errors of Go's decoder.

    decode({"spec": {"replicas": 2, "foo": 1}}, deployment)
    → Decoded(obj={…, "spec": {"replicas": 2, "selector": None, …}},
              unknown=['unknown field "spec.foo"'])

    decode({"spec": {"replicas": "2"}}, deployment)
    → DecodeError: json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas
      of type int32

What comes out is what Go would write after reading what went in: names are case-sensitive, unknown
fields are dropped, zero values that Go leaves out are gone and those it always writes are there
(`"strategy":{}`, `"containers":null`), fields are in the order of the structs. Defaults of kinds
come after that.

Before Go writes, it distinguishes an empty list or map from an absent one: `decode_as_given`
keeps those that it would not write, and `without_empty` takes them out.
"""

from typing import Any, Final, NamedTuple

from kvstack.apimachinery.schema.findings import EMPTY, UNKNOWN, Finding, StopDecodingError
from kvstack.apimachinery.schema.stored_form import without_empty
from kvstack.apimachinery.schema.types import Type
from kvstack.apimachinery.schema.walkers import walker

UNKNOWN_MAX: Final = 100
"""Unknown fields that are reported of one object."""


class DecodeError(ValueError):
    """A value does not fit its type; the message is Go's."""


class Decoded(NamedTuple):
    """An object that was read, and what a strict reader would say about it."""

    obj: dict[str, Any]
    unknown: list[str]
    """`unknown field "spec.foo"`, in the order of the input, each once, at most UNKNOWN_MAX."""


class DecodedWithEmpty(NamedTuple):
    """An object that was read, with the lists and maps that were given empty."""

    obj: dict[str, Any]
    unknown: list[str]
    """As in Decoded."""
    has_empty: bool
    """Whether there are empty values that Go would not write."""


def decode(value: object, type_: Type) -> Decoded:
    """Return a value of JSON as an object of a type of shape STRUCT; raises DecodeError."""
    obj, unknown, has_empty = decode_as_given(value, type_)
    return Decoded(without_empty(obj, type_) if has_empty else obj, unknown)


def decode_as_given(value: object, type_: Type) -> DecodedWithEmpty:
    """Return a value of JSON as an object of a type of shape STRUCT; raises DecodeError."""
    findings: list[Finding] = []
    try:
        obj = walker(type_)(value, findings)
    except StopDecodingError as stop:
        raise DecodeError(stop.finding.message) from stop
    if not findings:
        return DecodedWithEmpty(obj, [], False)
    has_empty = False
    unknown: dict[str, None] = {}
    for finding in findings:
        if finding.kind is EMPTY:
            has_empty = True
        elif finding.kind is UNKNOWN:
            unknown[finding.message] = None
        else:
            raise DecodeError(finding.message)
    return DecodedWithEmpty(obj, list(unknown)[:UNKNOWN_MAX], has_empty)


def normalize(value: object, type_: Type) -> dict[str, Any]:
    """Return a value of JSON as an object of a type, saying nothing about unknown fields."""
    return decode(value, type_).obj
