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
"""

from typing import Any, Final, NamedTuple

from kvstack.apiserver.schema.findings import UNKNOWN, Finding, StopDecodingError
from kvstack.apiserver.schema.types import Type
from kvstack.apiserver.schema.walkers import walker

UNKNOWN_MAX: Final = 100
"""Unknown fields that are reported of one object."""


class DecodeError(ValueError):
    """A value does not fit its type; the message is Go's."""


class Decoded(NamedTuple):
    """An object that was read, and what a strict reader would say about it."""

    obj: dict[str, Any]
    unknown: list[str]
    """`unknown field "spec.foo"`, in the order of the input, each once, at most UNKNOWN_MAX."""


def decode(value: object, type_: Type) -> Decoded:
    """Return a value of JSON as an object of a type of shape STRUCT; raises DecodeError."""
    findings: list[Finding] = []
    try:
        obj = walker(type_)(value, findings)
    except StopDecodingError as stop:
        raise DecodeError(stop.finding.message) from stop
    if not findings:
        return Decoded(obj, [])
    for each in findings:
        if each.kind is not UNKNOWN:
            raise DecodeError(each.message)
    texts = dict.fromkeys(each.message for each in findings)
    return Decoded(obj, list(texts)[:UNKNOWN_MAX])


def normalize(value: object, type_: Type) -> dict[str, Any]:
    """Return a value of JSON as an object of a type, saying nothing about unknown fields."""
    return decode(value, type_).obj


def check(value: object, type_: Type) -> list[str]:
    """Return the unknown fields of a value as `Decoded` lists them; raises DecodeError."""
    return decode(value, type_).unknown
