"""Values that recur are read as if they had not been seen before."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects.text.json_text import has_huge, parse_repeated, parse_with_huge
from kvstack.apimachinery.schema import recurring
from kvstack.apimachinery.schema.decode import DecodeError, decode_as_given
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.recurring import (
    KEY_BYTES_MAX,
    RecentResults,
    key_of,
    value_of,
)

POD = load().types["io.k8s.api.core.v1.Pod"]
SPEC = POD.fields["spec"].type
LOOK_ALIKE: list[Any] = [
    0, 0.0, -0.0, False, None, "", [], {}, math.inf, -math.inf, 1, True, 1.0, "1", "true", [None],
    {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": "1", "b": 2}, 2**63, 2.0**63, "\ud800", "\x00",
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def pod_of(spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": spec}


def test_similar_values_have_different_keys() -> None:
    keys = [key_of({"spec": value}) for value in LOOK_ALIKE]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    assert key_of(math.nan) != key_of(None)


@given(JSON, JSON)
def test_equal_keys_are_of_equal_values(one: Any, other: Any) -> None:
    assert (key_of(one) == key_of(other)) == (repr(one) == repr(other))


def test_what_has_no_key() -> None:
    assert key_of({"a": "x" * KEY_BYTES_MAX}) is None
    assert key_of(parse_repeated(b'{"a":1,"a":2}')) is None
    deep: Any = None
    for _ in range(5_000):
        deep = [deep]
    assert key_of(deep) is None
    results = RecentResults[str]()
    results.put(None, "x")
    assert results.get(None) is None


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurring, "KEYS_BYTES_MAX", 30)
    results = RecentResults[int]()
    for number in range(3):
        results.put(b"%010d" % number, number)
    assert [results.get(b"%010d" % number) for number in range(3)] == [0, 1, 2]
    results.put(b"another", 4)
    assert [results.get(b"%010d" % number) for number in range(3)] == [None] * 3
    assert results.get(b"another") == 4


def test_every_reader_has_a_spec_of_its_own() -> None:
    given_pod = pod_of({"containers": [{"name": "recurring", "image": "a", "env": []}], "x": None})
    given_pod["spec"]["containers"][0].pop("env")
    first = decode_as_given(given_pod, POD).obj
    second = decode_as_given(given_pod, POD).obj
    assert first == second
    assert list(first["spec"]) == list(second["spec"])
    second["spec"]["containers"][0]["image"] = "b"
    second["spec"]["containers"].append({})
    assert decode_as_given(given_pod, POD).obj == first


def test_findings_are_reported_each_time() -> None:
    unknown = pod_of({"containers": [{"name": "a", "imag": "x"}], "hostnam": "x"})
    empty = pod_of({"containers": [{"name": "a", "env": []}]})
    for _ in range(2):
        found = decode_as_given(unknown, POD)
        assert found.unknown == [
            'unknown field "spec.containers[0].imag"', 'unknown field "spec.hostnam"',
        ]  # fmt: skip
        assert decode_as_given(empty, POD).has_empty


def test_a_number_is_not_taken_for_the_boolean_that_was_seen() -> None:
    assert decode_as_given(pod_of({"hostNetwork": True}), POD).obj["spec"]["hostNetwork"] is True
    for value, word in ((1, "number"), (1.0, "number")):
        with pytest.raises(DecodeError, match=f"cannot unmarshal {word} into Go struct field"):
            decode_as_given(pod_of({"hostNetwork": value}), POD)


def test_a_number_that_no_float_holds_is_not_taken_for_null() -> None:
    decode_as_given(pod_of({"hostNetwork": None}), POD)
    with pytest.raises(DecodeError):
        decode_as_given(pod_of({"hostNetwork": math.inf}), POD)


def test_the_types_are_there() -> None:
    assert set(load().types) >= recurring.RECURRING
    assert SPEC.name in recurring.RECURRING


def test_a_value_that_cannot_be_kept_is_read_each_time() -> None:
    """A number that no float holds, in fields of any kind; its decoding is refused later."""
    huge = parse_with_huge(b'{"a":1e999}')
    template = {"metadata": {"managedFields": [{"fieldsV1": huge}]}, "spec": {}}
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": template}}
    for _ in range(2):
        assert has_huge(decode_as_given(pod_of({"volumes": [volume]}), POD).obj)


def test_a_copy_is_new_and_the_same() -> None:
    value = {"b": [1, 1.0, True, None, {"é": "\x00"}], "a": {}}
    key = key_of(value)
    assert key is not None
    copy = value_of(key)
    assert repr(copy) == repr(value)
    assert copy["a"] is not value["a"]
