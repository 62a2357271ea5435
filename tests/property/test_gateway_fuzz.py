"""The gateway under bodies that nobody means: a clear answer each time, and the node unharmed."""

import json
import re
from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstore.server.gateway.routes import ROUTES
from kvstore.wire.rpc import Kind
from tests.support.http.harness import Pages

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["Zm9v", "Zg", "@@", "-1", "1e9", "18446744073709551615", "ASCEND", ""]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
# Those that would take the node away from the next example, or wait for ever.
SKIPPED = {"/v3/maintenance/snapshot", "/v3/maintenance/defragment", "/v3/lock/lock",
           "/v3/election/campaign", "/v3/election/observe", "/v3/watch", "/v3/auth/enable",
           "/v3/maintenance/transfer-leadership", "/v3/cluster/member/add",
           "/v3/cluster/member/remove", "/v3/maintenance/alarm"}  # fmt: skip
PATHS = sorted(path for path, route in ROUTES.items() if path not in SKIPPED)


def near(descriptor: object, depth: int = 3) -> st.SearchStrategy[object]:
    """Make objects with the fields of a message, whose values mostly fit."""

    def value(field: FieldDescriptor) -> st.SearchStrategy[object]:
        if field.message_type is not None:
            fitting: st.SearchStrategy[object] = near(field.message_type, depth - 1)
        elif field.type == FieldDescriptor.TYPE_BYTES:
            fitting = st.sampled_from(["Zm9v", "AA==", ""])
        elif field.type == FieldDescriptor.TYPE_STRING:
            fitting = st.text(max_size=4)
        elif field.type == FieldDescriptor.TYPE_BOOL:
            fitting = st.booleans()
        elif field.enum_type is not None:
            fitting = st.integers(-1, 4) | st.sampled_from(list(field.enum_type.values_by_name))
        else:
            fitting = st.integers(-2, 5) | st.integers(-2, 5).map(str)
        if field.is_repeated:
            fitting = st.lists(fitting, max_size=2)
        return st.one_of(fitting, fitting, fitting, JSON)

    if depth == 0:
        return st.just({})
    fields = {field.name: value(field) for field in descriptor.fields}  # type: ignore[attr-defined]
    return st.lists(st.sampled_from(list(fields) or [""]), max_size=4).flatmap(
        lambda names: st.fixed_dictionaries({n: fields[n] for n in names if n in fields})
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    with Pages(tmp_path_factory.mktemp("fuzz")) as made:
        yield made


def check(pages: Pages, path: str, body: bytes) -> None:
    """Ask once with a deadline, as a stream or a wait may have no other end."""
    headers = [("host", "x"), ("grpc-timeout", "200m")]
    answer = pages.ask("POST", path, body, headers)
    lines = answer.body.decode().rstrip("\n").split("\n")
    assert answer.status in {200, 400, 404, 409, 429, 500, 501, 504}, (path, body, answer)
    for line in filter(None, lines):
        said = json.loads(line)
        if answer.status != 200 and "error" not in said:
            assert set(said) <= {"code", "message"}
            assert isinstance(said["code"], int)
    if answer.status == 500:  # only what etcd calls unknown too
        assert re.search(r'"code":(2|15)\b|election|lock|DataLoss', answer.body.decode()), answer


@settings(max_examples=150)
@given(
    st.sampled_from(PATHS).flatmap(
        lambda path: st.tuples(st.just(path), near(ROUTES[path].request.DESCRIPTOR))
    )
)
def test_messages_that_nearly_fit(pages: Pages, case: tuple[str, object]) -> None:
    path, value = case
    check(pages, path, json.dumps(value).encode())


@settings(max_examples=60)
@given(st.sampled_from(PATHS), JSON)
def test_any_json(pages: Pages, path: str, value: object) -> None:
    check(pages, path, json.dumps(value).encode())


@settings(max_examples=60)
@given(st.sampled_from(PATHS), st.binary(max_size=60))
def test_any_bytes(pages: Pages, path: str, body: bytes) -> None:
    check(pages, path, body)


@settings(max_examples=60)
@given(st.data())
def test_good_messages_with_a_byte_changed(pages: Pages, data: st.DataObject) -> None:
    body = bytearray(
        b'{"compare":[{"key":"Zm9v","target":"VALUE","value":"YmFy"}],"success":[{"request_put":'
        b'{"key":"Zm9v","value":"YmFy","lease":"0"}}],"failure":[{"request_range":{"limit":1e1}}]}'
    )
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    check(pages, "/v3/kv/txn", bytes(body[: data.draw(st.integers(0, len(body)))]))


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"x":' + b"[" * 9_999 + b"]" * 9_999 + b"}",
        b'{"success":[{"request_txn":' * 5_000,
        b'{"success":[{"request_txn":' * 3_000 + b"{}" + b"}]}" * 3_000,
        b"1" * 1_000_000,
        b'{"key":' + b"9" * 500_000 + b"}",
        b'"' + b"\\u0061" * 100_000,
        b" " * 1_000_000,
        b'{"key":"' + b"A" * 3_000_001 + b'"}',
        b"\xef\xbb\xbf{}",
        b"\x00",
    ],
    ids=lambda body: f"{bytes(body[:12])!r}x{len(body)}",
)
def test_deep_long_and_odd(pages: Pages, body: bytes) -> None:
    for path in ("/v3/kv/txn", "/v3/kv/range", "/v3/lease/keepalive"):
        check(pages, path, body)
    assert pages.ask("GET", "/health").status == 200


def test_every_path_is_served_and_refuses_garbage(pages: Pages) -> None:
    assert len(ROUTES) == 51  # as many as etcd binds
    for path in ROUTES:
        for body in (b"xx", b"[]", b'{"'):
            answer = pages.ask("POST", path, body)
            assert answer.status == 400
            if ROUTES[path].kind is not Kind.BIDI:
                assert json.loads(answer.body)["code"] == 3


def test_a_body_may_be_refused_when_the_time_of_its_call_is_up(pages: Pages) -> None:
    body = b" " * 400_000 + b"xx"
    for us in range(100, 12_000, 150):
        headers = [("host", "x"), ("grpc-timeout", f"{us}u")]
        answer = pages.ask("POST", "/v3/lease/keepalive", body, headers)
        assert answer.status in {400, 504}, (us, answer)
