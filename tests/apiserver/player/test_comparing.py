"""The player forgives what cannot be the same twice, and nothing else."""

import base64
import json
import time
from typing import Any

import pytest

from tests.apiserver.player.comparing import Comparison, FieldDifference
from tests.apiserver.player.filling import Filler
from tests.apiserver.player.learned import Learned
from tests.apiserver.player.values import split

UID = "0f6c2f5e-7d0e-4c52-9a53-6b7f6f2a1d11"
OTHER_UID = "11111111-2222-4333-8444-555555555555"
TIME = "2026-11-22T13:42:29Z"


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def answer(document: Any, status: int = 200, **headers: str) -> dict[str, Any]:
    return {"status": status, "headers": headers, "json": document}


def compared(
    recorded: dict[str, Any], got: dict[str, Any], learned: Learned | None = None
) -> list[FieldDifference]:
    learned = learned or Learned()
    comparison = Comparison(learned, lambda text: text)
    comparison.answers(recorded, got)
    learned.keep(comparison.news)
    return comparison.found


def paths(recorded: Any, got: Any, learned: Learned | None = None) -> list[str]:
    return [found.path for found in compared(answer(recorded), answer(got), learned)]


def test_a_text_is_split_into_its_form_and_what_is_volatile() -> None:
    form, parts = split(f'pod "a" has uid {UID} since {TIME}, resourceVersion: 12')
    assert form == 'pod "a" has uid <uid> since <time#-#-#T#:#:#Z>, resourceVersion: <rv>'
    assert [part.kind for part in parts] == ["uid", "time", "rv"]


@pytest.mark.parametrize(
    ("recorded", "got"),
    [
        ({"uid": UID}, {"uid": OTHER_UID}),
        ({"creationTimestamp": TIME}, {"creationTimestamp": now()}),
        ({"resourceVersion": "12"}, {"resourceVersion": "34"}),
        ({"message": f"object meta: {UID}"}, {"message": f"object meta: {OTHER_UID}"}),
        ({"clusterIP": "10.0.3.4"}, {"clusterIP": "10.0.200.1"}),
        ({"nodePort": 30123}, {"nodePort": 32000}),
        ({"causes": [{"a": "1"}, {"b": "2"}]}, {"causes": [{"b": "2"}, {"a": "1"}]}),
        ({"message": "[b: no, a: no]"}, {"message": "[a: no, b: no]"}),
    ],
)
def test_what_cannot_be_the_same_twice_is_forgiven(recorded: Any, got: Any) -> None:
    assert paths(recorded, got) == []


@pytest.mark.parametrize(
    ("recorded", "got", "path"),
    [
        ({"a": 1}, {"a": 2}, "json/a"),
        ({"a": 1}, {"a": 1.0}, "json/a"),
        ({"a": 1}, {"a": True}, "json/a"),
        ({"a": 1}, {}, "json/a"),
        ({}, {"a": 1}, "json/a"),
        ({"a": None}, {}, "json/a"),
        ({"a": [1, 2]}, {"a": [2, 1]}, "json/a/0"),
        ({"a": [1]}, {"a": [1, 1]}, "json/a"),
        ({"a": "x"}, {"a": "y"}, "json/a"),
        ({"uid": UID}, {"uid": "no-uid"}, "json/uid"),
        ({"at": TIME}, {"at": "2020-01-01T00:00:00Z"}, "json/at"),
        ({"at": TIME}, {"at": now().replace("Z", ".123456Z")}, "json/at"),
        ({"clusterIP": "10.0.3.4"}, {"clusterIP": "10.0.0.0"}, "json/clusterIP"),
        ({"nodePort": 30123}, {"nodePort": 80}, "json/nodePort"),
        ({"message": "[b: no, a: no]"}, {"message": "[a: no, c: no]"}, "json/message"),
        ({"resourceVersion": "12"}, {"resourceVersion": ""}, "json/resourceVersion"),
    ],
)
def test_anything_else_is_reported(recorded: Any, got: Any, path: str) -> None:
    assert path in paths(recorded, got)


def test_status_and_headers_are_compared() -> None:
    recorded = answer({}, 201, **{"content-type": "application/json", "x-other": "y"})
    found = compared(recorded, answer({}, 200, **{"x-other": "y", "x-more": "z", "etag": "e"}))
    assert [each.path for each in found] == ["status", "headers/content-type", "headers/etag"]


def test_one_recorded_value_stands_for_one_of_this_server_throughout() -> None:
    learned = Learned()
    assert paths({"uid": UID}, {"uid": OTHER_UID}, learned) == []
    assert paths({"uid": UID}, {"uid": UID.replace("0f6c", "ffff")}, learned) == ["json/uid"]
    two = {"a": "10.0.1.1", "b": "10.0.1.2"}
    assert paths(two, {"a": "10.0.9.9", "b": "10.0.9.9"}, learned) == ["json/b"]


def test_a_value_that_a_request_chose_must_come_back() -> None:
    learned = Learned()
    learned.look_at_request({"json": {"spec": {"clusterIP": "10.0.3.4", "at": TIME}}})
    assert paths({"clusterIP": "10.0.3.4"}, {"clusterIP": "10.0.3.5"}, learned) != []
    assert paths({"at": TIME}, {"at": now()}, learned) != []


def test_generated_names_have_their_prefix() -> None:
    learned = Learned()
    learned.look_at_request({"json": {"metadata": {"generateName": "web-"}}})
    assert paths({"name": "web-x7z9k"}, {"name": "web-b2c4d"}, learned) == []
    assert paths({"name": "web-x7z9k"}, {"name": "web-other"}, learned) == ["json/name"]
    filled = Filler(learned, [], []).json({"name": "web-x7z9k", "other": "web-x7z9kk"})
    assert filled == {"name": "web-b2c4d", "other": "web-x7z9kk"}


def test_what_a_later_request_uses_is_this_servers_own() -> None:
    uses = [{"value": "12", "step": 0, "at": "/json/metadata/resourceVersion"}]
    filler = Filler(Learned(), uses, [answer({"metadata": {"resourceVersion": "34"}})])
    assert filler.text("/x?resourceVersion=12&limit=120") == "/x?resourceVersion=34&limit=120"
    assert filler.json({"a": "12", "b": 12, "c": "x12"}) == {"a": "34", "b": 12, "c": "x12"}


def test_updates_of_one_manager_are_one_and_others_are_not() -> None:
    def entry(manager: str, fields: dict[str, Any]) -> dict[str, Any]:
        named = {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": now()}
        return {**named, "fieldsV1": fields}

    split_up = [entry("a", {"f:x": {}}), entry("a", {"f:y": {}})]
    joined = [entry("a", {"f:x": {}, "f:y": {}})]
    assert paths({"managedFields": split_up}, {"managedFields": joined}) == []
    assert paths({"managedFields": split_up}, {"managedFields": split_up[:1]}) != []


def test_managed_fields_are_joined_in_yaml_too() -> None:
    def text(*entries: tuple[str, str], labels: str = "{}") -> dict[str, Any]:
        lines = [
            f"  - fieldsV1:\n      f:data:\n        f:{field}: {{}}\n    manager: {manager}\n"
            f"    operation: Update\n"
            for manager, field in entries
        ]
        managed = "  managedFields:\n" + "".join(lines)
        body = f"metadata:\n  labels: {labels}\n{managed}  name: a\n"
        return {"status": 200, "headers": {}, "text": body}

    apart, in_one = text(("m", "x"), ("m", "y")), text(("m", "y"), ("m", "x"))
    assert compared(apart, in_one) == []
    assert compared(apart, text(("m", "x"))) != []
    assert compared(apart, text(("m", "x"), ("n", "y"))) != []
    assert compared(apart, text(("m", "x"), ("m", "y"), labels="{b: c}")) != []


def test_managed_fields_are_joined_in_protobuf_too() -> None:
    def field(number: int, content: bytes) -> bytes:
        head = number << 3 | 2
        return (bytes([head]) if head < 128 else bytes([head & 127 | 128, head >> 7])) + (
            bytes([len(content)]) + content
        )

    def message(*owned: str, name: bytes = b"a", seconds: int = 1) -> dict[str, Any]:
        entries = [
            field(1, b"m") + field(2, b"Update") + field(4, bytes([8, seconds]))
            + field(7, field(1, b'{"f:data":{"f:%s":{}}}' % each.encode()))
            for each in owned
        ]  # fmt: skip
        meta = field(1, name) + b"".join(field(17, each) for each in entries)
        body = b"k8s\0" + field(2, field(1, meta))
        return {"status": 200, "headers": {}, "base64": base64.b64encode(body).decode()}

    assert compared(message("x", "y"), message("y", "x", seconds=2)) == []
    assert compared(message("x", "y"), message("x")) != []
    assert compared(message("x"), message("x", name=b"b")) != []


def test_a_page_goes_on_at_the_same_position() -> None:
    def token(revision: int, start: str) -> dict[str, str]:
        content = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": start})
        return {"continue": base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")}

    assert paths(token(5, "b\0"), token(77, "b\0")) == []
    assert paths(token(5, "b\0"), token(77, "c\0")) == ["json/continue/start"]


def test_messages_of_protobuf_are_compared_by_field() -> None:
    def message(*fields: bytes) -> dict[str, Any]:
        body = b"k8s\0" + b"".join(fields)
        return {"status": 200, "headers": {}, "base64": base64.b64encode(body).decode()}

    name, label = b"\x0a\x03abc", b"\x12\x05\x08\x01\x12\x01x"
    assert compared(message(name, label), message(name, label)) == []
    assert compared(message(name, label), message(name)) != []
    assert compared(message(name), message(b"\x0a\x03abd")) != []
    assert compared(message(name), message(b"\x1a\x03abc")) != []
