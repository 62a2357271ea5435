"""Objects as protobuf: what was recorded, what types allow, and what is no message at all."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstack.apimachinery.schema.decode import normalize
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.protobuf.codec import encode, from_protobuf, to_protobuf
from kvstack.apimachinery.schema.protobuf.envelope import (
    list_content,
    unwrap,
    watch_frame,
    wrap,
)
from kvstack.apimachinery.schema.protobuf.wire import (
    LENGTH,
    ProtobufError,
    delimited,
    read_varint,
    signed,
    signed32,
    skip,
    tag,
    varint,
)
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apimachinery.schema.types import Type
from tests.apimachinery.schema.recordings import lines
from tests.apimachinery.schema.strategies import values

TABLE = load()
CORE = "io.k8s.api.core.v1"
POD = TABLE.types[f"{CORE}.Pod"]


def type_of(api_version: str, kind: str) -> Type:
    group, _, version = api_version.rpartition("/")
    found = TABLE.type_of(Kind(group, version, kind))
    assert found is not None
    return found


def test_recorded_messages_are_read_and_written_again_byte_by_byte() -> None:
    seen = compared = 0
    for line in lines("protobuf"):
        data = base64.b64decode(line["base64"])
        version, kind, content, *rest = unwrap(data)
        type_ = type_of(version, kind)
        obj = from_protobuf(content, type_)
        assert rest == ["", ""]
        assert wrap(version, kind, to_protobuf(obj, type_)) == data, line["name"]
        seen += 1
        if "json" in line:
            whole = {"kind": kind, "apiVersion": version, **obj}
            assert json.dumps(whole) == json.dumps(line["json"]), line["name"]
            assert encode(line["json"], type_) == data
            compared += 1
    assert (seen, compared) == (429, 244)


def test_recorded_frames_of_watches_are_made_of_their_events() -> None:
    seen = 0
    for line in lines("protobuf-frames"):
        frame = base64.b64decode(line["base64"])
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        name_end = 6 + frame[5]
        name = frame[6:name_end].decode()
        enveloped = frame[frame.index(b"k8s\0") :]
        assert watch_frame(name, enveloped) == frame, line["name"]
        unwrap(enveloped)
        seen += 1
    assert seen == 15


@pytest.mark.parametrize("row", list(TABLE), ids=lambda row: f"{row.group_version}/{row.name}")
def test_every_kind_survives(row: Any) -> None:
    @settings(max_examples=8)
    @given(values(row.type))
    def survives(value: dict[str, Any]) -> None:
        obj = normalize(value, row.type)
        content = to_protobuf(obj, row.type)
        back = from_protobuf(content, row.type)
        assert to_protobuf(back, row.type) == content
        assert normalize(back, row.type) == back
        assert list(back) == list(normalize(back, row.type))
        assert _without_empty(back) == _without_empty(obj)

    survives()


def _without_empty(value: Any) -> Any:
    """Drop what protobuf does not tell apart: nothing, and empty lists, maps and bytes."""
    if isinstance(value, dict):
        found = {name: _without_empty(each) for name, each in value.items()}
        return {name: each for name, each in found.items() if each not in (None, [], {}, "")}
    if isinstance(value, list):
        return [_without_empty(each) for each in value]
    return value


def test_zeros_are_written_and_pointers_are_not() -> None:
    config_map = TABLE.types[f"{CORE}.ConfigMap"]
    meta = b"\x0a\x00\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x00"
    assert to_protobuf(normalize({}, config_map), config_map) == b"\x0a\x10" + meta
    port = TABLE.types[f"{CORE}.ContainerPort"]
    assert to_protobuf({}, port) == b"\x0a\x00\x10\x00\x18\x00\x22\x00\x2a\x00"


def test_quantities_and_the_like() -> None:
    selector = TABLE.types[f"{CORE}.ResourceFieldSelector"]
    assert to_protobuf({"divisor": "500m"}, selector) == b"\x0a\x00\x12\x00\x1a\x06\x0a\x04500m"
    assert to_protobuf({}, selector) == b"\x0a\x00\x12\x00\x1a\x03\x0a\x010"
    assert from_protobuf(b"\x1a\x08\x0a\x061024Mi", selector)["divisor"] == "1Gi"
    action = TABLE.types[f"{CORE}.TCPSocketAction"]
    assert to_protobuf({"port": "x"}, action) == b"\x0a\x07\x08\x01\x10\x00\x1a\x01x\x12\x00"
    assert from_protobuf(b"\x0a\x0b\x10" + varint(-1), action) == {"port": -1}
    with pytest.raises(ProtobufError, match="quantities must match"):
        from_protobuf(b"\x1a\x03\x0a\x01x", selector)


def test_unknown_fields_are_skipped_and_packed_numbers_are_read() -> None:
    context = TABLE.types[f"{CORE}.PodSecurityContext"]
    content = b"\x20\x05\x20\x06\xfa\x3f\x02ab\xf8\x3f\x01\xf9\x3f12345678\xfd\x3f1234"
    assert from_protobuf(content, context) == {"supplementalGroups": [5, 6]}
    assert from_protobuf(b"\x22\x02\x05\x06", context) == {"supplementalGroups": [5, 6]}
    assert from_protobuf(b"\xfb\x3f\x08\x01\xfb\x3f\xfc\x3f\xfc\x3f", context) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"\x0a",
        b"\x0a\x05ab",
        b"\x0a\x03\x0a\x09a",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x00\x00",
        b"\x0f\x00",
        b"\xfb\x3f\x08",
        b"\xf9\x3f123",
        b"\x0c",
    ],
)
def test_bytes_that_are_no_message_are_refused(content: bytes) -> None:
    with pytest.raises(ProtobufError):
        from_protobuf(content, POD)


def test_deep_messages_are_refused() -> None:
    name = next(name for name in TABLE.types if name.endswith("v1.JSONSchemaProps"))
    props = TABLE.types[name]
    content = b""
    for _ in range(3000):
        content = delimited(tag(props.fields["not"].number, LENGTH), content)
    with pytest.raises(ProtobufError, match="nested too deeply"):
        from_protobuf(content, props)


@given(st.binary(max_size=40) | st.binary(max_size=40).map(lambda tail: b"\x0a\x14" + tail))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        obj = from_protobuf(content, POD)
    except ProtobufError:
        return
    assert isinstance(to_protobuf(obj, POD), bytes)


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints(number: int) -> None:
    data = varint(number)
    found, end = read_varint(data, 0)
    assert end == len(data)
    assert signed(found) == number
    if -(2**31) <= number < 2**31:
        assert signed32(found) == number


def test_a_field_of_no_wire_type() -> None:
    with pytest.raises(ProtobufError, match="illegal wireType 6"):
        skip(b"\0", 0, 6, 1)


def test_envelopes() -> None:
    data = wrap("apps/v1", "Deployment", b"abc")
    assert unwrap(data) == ("apps/v1", "Deployment", b"abc", "", "")
    with pytest.raises(ProtobufError, match=r"expected prefix \[107 56 115 0\]$"):
        unwrap(b"{}")
    assert unwrap(b"k8s\0").content == b""


def test_lists_are_made_of_stored_items() -> None:
    pods = TABLE.types[f"{CORE}.PodList"]
    items = [normalize({"metadata": {"name": name}}, POD) for name in "ab"]
    whole: dict[str, Any] = {"metadata": {"resourceVersion": "5"}, "items": items}
    meta = next(each for name, each in TABLE.types.items() if name.endswith("meta.v1.ListMeta"))
    parts = [to_protobuf(each, POD) for each in items]
    joined = list_content(to_protobuf(whole["metadata"], meta), parts)
    assert joined == to_protobuf(normalize(whole, pods), pods)
