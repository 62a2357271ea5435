"""Requests that are as much work as the limits allow: bodies of 3 MiB, and of 100,000 values.

They are made when they are sent: each worker that collects tests reads this module.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

MAPS: Final = "/api/v1/namespaces/default/configmaps"
PODS: Final = "/api/v1/namespaces/default/pods"
JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
APPLY: Final = "application/apply-patch+yaml"
TABLE: Final = "application/json;as=Table;g=meta.k8s.io;v=v1"

_BYTES: Final = 2_990_000
_VALUES: Final = 95_000


class Attack(NamedTuple):
    """One request, and the codes that it may be answered with."""

    method: str
    path: str
    content_type: str
    """Of a GET: what is accepted."""
    body: Callable[[], bytes]
    codes: tuple[int, ...]


def _map(data: bytes, name: bytes = b"a") -> bytes:
    head = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"%b"},"data":'
    return head % name + data + b"}"


def _members(count: int) -> bytes:
    return b"{" + b",".join(b'"%x":""' % n for n in range(count)) + b"}"


def _yaml(name: bytes, count: int) -> bytes:
    head = b"kind: ConfigMap\napiVersion: v1\nmetadata: {name: %b}\ndata:\n" % name
    return head + b"".join(b" k%x: a\n" % n for n in range(count))


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes((number & 127 | 128,))
        number >>= 7
    return out + bytes((number,))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _protobuf(name: bytes, count: int) -> bytes:
    entries = b"".join(_field(2, _field(1, b"%x" % n) + _field(2, b"")) for n in range(count))
    content = _field(1, _field(1, name)) + entries
    return b"k8s\0" + _field(1, _field(1, b"v1") + _field(2, b"ConfigMap")) + _field(2, content)


def _containers(count: int) -> bytes:
    items = b",".join(b'{"name":"a%x","image":"b"}' % n for n in range(count))
    return b'{"metadata":{"name":"a"},"spec":{"containers":[%b]}}' % items


MAKE_LARGE: Final = Attack("POST", MAPS, JSON, lambda: _map(_members(_VALUES), b"large"), (201,))
"""What the reads and small changes below are about."""

ATTACKS: Final = {
    "3 MB of lists": Attack(
        "POST", MAPS, JSON, lambda: _map(b"[" + b",".join([b"[]"] * (_BYTES // 3)) + b"]"), (413,)
    ),
    "3 MB of members": Attack("POST", MAPS, JSON, lambda: _map(_members(_BYTES // 11)), (413,)),
    "3 MB of escapes": Attack(
        "POST", MAPS, JSON, lambda: _map(b'{"a":"' + b"\\n" * (_BYTES // 2) + b'"}'), (422,)
    ),
    "3 MB of containers": Attack("POST", PODS, JSON, lambda: _containers(_BYTES // 30), (413,)),
    "3 MB of protobuf": Attack(
        "POST", MAPS, PROTOBUF, lambda: _protobuf(b"a", _BYTES // 12), (413,)
    ),
    "3 MB of YAML": Attack("POST", MAPS, YAML, lambda: _yaml(b"a", _BYTES // 11), (413,)),
    "3 MB of a YAML list": Attack(
        "POST", MAPS, YAML, lambda: b"[" + b"a," * (_BYTES // 2) + b"]", (413,)
    ),
    "3 MB of a configuration": Attack(
        "PATCH",
        f"{MAPS}/applied?fieldManager=m",
        APPLY,
        lambda: _yaml(b"applied", _BYTES // 11),
        (413,),
    ),
    "3 MB of a merge patch": Attack(
        "PATCH",
        f"{MAPS}/large",
        "application/merge-patch+json",
        lambda: b'{"data":' + _members(_BYTES // 11) + b"}",
        (413,),
    ),
    "many members": Attack("POST", MAPS, JSON, lambda: _map(_members(_VALUES), b"b"), (201, 409)),
    "many containers": Attack("POST", PODS, JSON, lambda: _containers(_VALUES // 3), (403, 422)),
    "many entries of protobuf": Attack(
        "POST", MAPS, PROTOBUF, lambda: _protobuf(b"c", _VALUES), (201, 409)
    ),
    "many lines of YAML": Attack("POST", MAPS, YAML, lambda: _yaml(b"d", _VALUES), (201, 409)),
    "many lines of YAML that the crate does not read": Attack(
        "POST", MAPS, YAML, lambda: _yaml(b"f", _VALUES) + b"x: [!!str, a]\n", (201, 409)
    ),
    "many lines of a configuration": Attack(
        "PATCH", f"{MAPS}/e?fieldManager=m", APPLY, lambda: _yaml(b"e", _VALUES), (200, 201)
    ),
    "a small change of a large object": Attack(
        "PATCH",
        f"{MAPS}/large",
        "application/merge-patch+json",
        lambda: b'{"metadata":{"labels":{"a":"b"}}}',
        (200,),
    ),
    "a large object as YAML": Attack("GET", f"{MAPS}/large", YAML, bytes, (200,)),
    "large objects as protobuf": Attack("GET", MAPS, PROTOBUF, bytes, (200,)),
    "large objects as a Table": Attack("GET", MAPS, TABLE, bytes, (200,)),
}
