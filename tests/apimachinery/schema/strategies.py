"""Hypothesis strategies that are driven by the types of the table."""

import base64
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from kvstack.apimachinery.schema.types import Shape, Type

_TIMES = st.datetimes().map(
    lambda moment: moment.replace(year=max(moment.year, 1970)).strftime("%Y-%m-%dT%H:%M:%SZ")
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=3,
)
_LEAVES: dict[Shape, SearchStrategy[Any]] = {
    Shape.STRING: st.text(max_size=6),
    Shape.INT32: st.integers(-(2**31), 2**31 - 1),
    Shape.INT64: st.integers(-(2**63), 2**63 - 1),
    Shape.FLOAT64: st.floats(allow_nan=False, allow_infinity=False),
    Shape.BOOL: st.booleans(),
    Shape.BYTES: st.binary(max_size=6).map(lambda data: base64.b64encode(data).decode()),
    Shape.TIME: _TIMES,
    Shape.MICRO_TIME: _TIMES.map(lambda text: f"{text[:-1]}.123456Z"),
    Shape.DURATION: st.sampled_from(["0s", "1h2m3.5s", "-1ns"]),
    Shape.QUANTITY: st.sampled_from(["0", "1", "500m", "1Gi", "1.5Gi", "-3k", "1e3", "0.001"]),
    Shape.INT_OR_STRING: st.integers(-(2**31), 2**31 - 1) | st.sampled_from(["", "80%", "http"]),
    Shape.FIELDS_V1: st.just({"f:a": {}}),
    Shape.RAW: _JSON,
}


def values(type_: Type, depth: int = 6) -> SearchStrategy[Any]:
    """Return values that a decoder of the type accepts; below `depth` structs are empty."""
    if type_.shape is Shape.STRUCT:
        return _structs(type_, depth)
    if type_.element is not None and type_.shape is Shape.LIST:
        return st.lists(values(type_.element, depth), max_size=2)
    if type_.element is not None and type_.shape is Shape.MAP:
        return st.dictionaries(st.text(max_size=3), values(type_.element, depth), max_size=2)
    if type_.element is not None and type_.shape is Shape.RAW:
        return values(type_.element, depth - 1)
    return _LEAVES[type_.shape]


@st.composite
def _structs(draw: st.DrawFn, type_: Type, depth: int) -> dict[str, Any]:
    if depth == 0 or not type_.fields:
        return {}
    names = draw(st.lists(st.sampled_from(list(type_.fields)), max_size=6, unique=True))
    return {
        name: draw(st.none() | values(type_.fields[name].type, depth - 1))
        for name in names
        if not type_.fields[name].inline or type_.fields[name].embedded_in != ("TypeMeta",)
    }
