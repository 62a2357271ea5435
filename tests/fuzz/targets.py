"""Readers that are given any bytes: each reads them, or refuses them in its own way, soon.

    TARGETS["json"](b"…")     returns; anything that is raised is a fault

What a target refuses with is what its callers handle, and nothing else. Some compare what they read
with what they read once more of their own text.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from kvstack.apimachinery.objects import fields, json_patch, labels, merge_patch, quantity
from kvstack.apimachinery.objects.json_patch import JsonPatchError
from kvstack.apimachinery.objects.request_info import RequestInfoError, parse_query, request_info
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text import json_text, yaml_text
from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apimachinery.objects.text.json_syntax import JsonError
from kvstack.apimachinery.objects.text.yaml_scalars import YamlError
from kvstack.apimachinery.schema import strategic_merge
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.protobuf.codec import from_protobuf, to_protobuf
from kvstack.apimachinery.schema.protobuf.wire import ProtobufError
from kvstack.apimachinery.schema.resource import Resource
from kvstack.apiserver.apply import field_set
from kvstack.apiserver.http.negotiation import NotAcceptableError, Offer, negotiate
from kvstack.apiserver.policy.admission.configuration import AdmissionSettings, read_configuration
from kvstack.apiserver.policy.audit.policy import read_policy
from kvstack.apiserver.policy.authentication.jwt.verifying import read_token
from kvstack.apiserver.policy.remote.kubeconfig import read_kubeconfig
from kvstack.apiserver.registry import continue_token
from kvstack.apiserver.registry.encryption.configuration import read_encryption
from kvstack.apiserver.verbs.forms.bodies import MEDIA_TYPES, read_object, read_options
from kvstack.cel.admission import Declared, compile_admission
from kvstack.cel.errors import EvaluationError
from kvstack.cel.values import NONE
from kvstack.component.http.answers import AnswerError, AnswerReader, HttpAnswer
from kvstack.component.http.websocket import Frames
from kvstack.component.streams.spdy.frames import Codec, SpdyError

Target = Callable[[bytes], None]

COST_MAX: Final = 100_000
POD: Final = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["x"]},
    "spec": {
        "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}],
        "tolerations": [{"key": "k"}],
    },
}


@cache
def rows() -> tuple[Resource, ...]:
    """All resources that have a type, in an order that does not change."""
    return tuple(load())


def pod_row() -> Resource:
    return next(each for each in rows() if each.name == "pods")


def json_target(data: bytes) -> None:
    with suppress(JsonError):
        value = json_text.parse(data)
        json_text.has_repeated(data, value)
        again = json_text.parse(json_text.write(value))
        assert json_text.equal(value, again), (value, again)


def yaml_target(data: bytes) -> None:
    with suppress(YamlError):
        value = yaml_text.parse(data).value
        again = yaml_text.parse(yaml_text.write(value)).value
        assert json_text.equal(value, again), (value, again)


def protobuf_target(data: bytes) -> None:
    if len(data) < 2:
        return
    row = rows()[int.from_bytes(data[:2], "big") % len(rows())]
    with suppress(ProtobufError):
        obj = from_protobuf(data[2:], row.type)
        again = from_protobuf(to_protobuf(obj, row.type), row.type)
        assert json_text.equal(obj, again), (obj, again)


def body_target(data: bytes) -> None:
    """A body of each media type, for any resource, and as options of a delete."""
    if len(data) < 3:
        return
    media_type = MEDIA_TYPES[data[0] % len(MEDIA_TYPES)]
    row = rows()[int.from_bytes(data[1:3], "big") % len(rows())]
    with suppress(ApiError):
        read_object(data[3:], media_type, row.kind, row.type)
    with suppress(ApiError):
        read_options(data[3:], media_type, row.kind)


def patch_target(data: bytes) -> None:
    for is_strict in (True, False):
        with suppress(ApiError, JsonPatchError, JsonError):
            operations, _ = json_patch.parse(data, is_strict=is_strict)
            json_patch.apply(POD, operations)
    with suppress(ApiError, JsonError):
        patch, _ = merge_patch.parse(data)
        merge_patch.apply(dict(POD), patch)
    with suppress(ApiError, JsonError):
        patch = json_text.parse(data)
        if isinstance(patch, dict):
            strategic_merge.apply(POD, patch, pod_row().type)


def fields_target(data: bytes) -> None:
    """Managed fields, as a client may write them."""
    with suppress(JsonError, field_set.FieldsError):
        found = field_set.read(json_text.parse(data))
        assert field_set.read(found) == found
        assert field_set.is_subset(found, found)
        assert not field_set.difference(found, found)


def selectors_target(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with suppress(labels.SelectorError):
        selector = labels.parse(text)
        selector.matches({"a": "b", "n": "5"})
        assert str(labels.parse(str(selector))) == str(selector), text
    with suppress(fields.FieldSelectorError):
        fields.parse(text)


def quantity_target(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with suppress(quantity.QuantityError):
        found = quantity.canonical(text)
        assert quantity.canonical(found) == found, (text, found)
        quantity.compare(quantity.parse(text), quantity.parse(found))


def cel_target(data: bytes) -> None:
    """Expressions of policies: compiled with a message, or run within their cost."""
    text = data.decode("utf-8", "replace")
    compiled = compile_admission(Declared(is_stored=True), text)
    if compiled.program is None:
        assert compiled.problem
        return
    bindings: dict[str, Any] = {
        "object": POD,
        "oldObject": None,
        "request": {"operation": "CREATE", "name": "p"},
        "namespaceObject": None,
        "none": NONE,
    }
    with suppress(EvaluationError):
        compiled.program.evaluate(bindings, COST_MAX)


def request_target(data: bytes) -> None:
    """Paths and queries, and what clients accept."""
    text = data.decode("utf-8", "replace")
    path, _, query = text.partition("?")
    with suppress(RequestInfoError, ValueError):
        request_info("GET", f"/{path}", parse_query(query))
    with suppress(NotAcceptableError):
        negotiate(text, Offer())
    with suppress(continue_token.TokenError):
        continue_token.decode(text)
    read_token(text)


def frames_target(data: bytes) -> None:
    """What clients send on connections that were upgraded."""
    frames = Frames(1000)
    assert all(len(each) <= 1000 for each in frames.receive(data))
    frames.replies()
    with suppress(SpdyError):
        for _ in Codec(is_client=False).receive(data):
            continue


def answers_target(data: bytes) -> None:
    """What webhooks answer: the same, in however many pieces it comes."""

    def read(*pieces: bytes) -> object:
        reader = AnswerReader(1000)
        try:
            if not any(reader.take(piece) for piece in pieces if piece):
                reader.end()
        except AnswerError as error:
            return type(error)
        return reader.answer

    half = len(data) // 2
    whole = read(data)
    if isinstance(whole, HttpAnswer):
        assert read(data[:half], data[half:]) == whole, whole


def configuration_target(data: bytes) -> None:
    """Files that flags name."""

    def no_file(_: str) -> bytes:
        raise DocumentError("there is none")

    readers: tuple[Callable[[], object], ...] = (
        lambda: read_configuration(data, no_file, AdmissionSettings()),
        lambda: read_policy(data),
        lambda: read_encryption(data),
        lambda: read_kubeconfig(data, Path("/nowhere")),
    )
    for read in readers:
        with suppress(DocumentError):
            read()


TARGETS: Final[Mapping[str, Target]] = {
    "json": json_target,
    "yaml": yaml_target,
    "protobuf": protobuf_target,
    "body": body_target,
    "patch": patch_target,
    "fields": fields_target,
    "selectors": selectors_target,
    "quantity": quantity_target,
    "cel": cel_target,
    "request": request_target,
    "frames": frames_target,
    "answers": answers_target,
    "configuration": configuration_target,
}

_POD: Final = orjson.dumps(POD)
SEEDS: Final[Mapping[str, tuple[bytes, ...]]] = {
    "json": (_POD, b'{"a":1.5e3,"b":[null,true,"\\u00e4\\ud83d"]}', b'{"a":1,"a":2}'),
    "yaml": (
        b"a: &x {b: 1, c: [~, 0x1F, 1e3, 'q', \"\\x41\"]}\nd: *x\n",
        b"---\na: |\n  text\n  more\nb: !!binary aGVsbG8=\n",
        b"? complex\n: 2001-01-01\n<<: {a: b}\n",
    ),
    "protobuf": (b"\0\0\x0a\x07\x0a\x01p\x12\0\x1a\0", b"\0\x10\x12\x04\x0a\x02\x08\x01"),
    "body": (
        b"\0\0\0" + _POD,
        b"\x01\0\0kind: Pod\napiVersion: v1\nmetadata: {name: p}\n",
        b"\x02\0\0k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x03\x0a\x01p",
    ),
    "patch": (
        b'[{"op":"add","path":"/metadata/labels/c~1d","value":1},{"op":"move","from":"/a","path":"/b"}]',
        b'{"spec":{"containers":[{"name":"c","$patch":"replace"}],"$setElementOrder/tolerations":[]}}',
        b'{"metadata":{"labels":null,"$deleteFromPrimitiveList/finalizers":["x"],"$retainKeys":["a"]}}',
    ),
    "fields": (b'{"f:a":{".":{},"k:{\\"n\\":1}":{}},"v:\\"x\\"":{},"i:0":{}}',),
    "selectors": (b"a in (b,c),d notin (e),!f,g!=h,i>5", b"metadata.name=x,spec.a!=b\\,c"),
    "quantity": (b"1.5Gi", b"-12e-3", b"1E6", b"0.000000001"),
    "cel": (
        b"object.spec.containers.all(c, c.image.matches('^[a-z]+$')) && has(object.metadata.name)",
        b"{'a': [1, 2.0, 3u, b'\\x00', r'\\n', null]}.a.map(x, type(x)).size() > 2 ? 1 : -1",
        b"quantity('1Gi').add(1).isLessThan(quantity('2Gi')) || duration('1h') > duration('5s')",
        b"[1, 2].sort().slice(0, 1) == optional.of([1]).orValue([]) && ip('::1').isLoopback()",
    ),
    "request": (
        b"api/v1/namespaces/a/pods/b/log?watch=1&fieldSelector=metadata.name%3Dx",
        b"application/json;as=Table;g=meta.k8s.io;v=v1,application/yaml;q=0.5,*/*",
        continue_token.encode(5, "/a\0").encode(),
    ),
    "frames": (
        b"\x89\x85\0\0\0\0hello\x88\x80\0\0\0\0",
        b"\x80\x03\0\x06\0\0\0\x04\0\0\0\x01\0\0\0\x01\x01\0\0\x02hi",
    ),
    "answers": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
        b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2;a=b\r\n{}\r\n0\r\nX: y\r\n\r\n",
        b"HTTP/1.0 404 No\r\nContent-Type: text/plain\r\n\r\nnothing",
    ),
    "configuration": (
        b"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, verbs: [get]}]\n",
        b"apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
        b"plugins: [{name: PodSecurity}]\n",
        b"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"
        b"resources: [{resources: [secrets], providers: [{identity: {}}]}]\n",
    ),
}
"""What every target begins with, to be made other."""

DICTIONARY: Final = tuple(
    sorted({word for seeds in SEEDS.values() for word in re.findall(rb"\w{3,}", b" ".join(seeds))})
)
"""Words that are put into what is tried."""
