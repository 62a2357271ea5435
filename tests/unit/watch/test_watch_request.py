"""The requests of a client on a watch stream."""

import pytest

from kvstore.errors import Code
from kvstore.watch.request import (
    FRAGMENT,
    MALFORMED,
    NO_DELETE,
    NO_PUT,
    PREV_KV,
    Cancel,
    Create,
    Progress,
    Refused,
    parse_request,
)
from tests.support.models.watch_history import PROGRESS, cancel, create


@pytest.mark.parametrize(
    ("key", "range_end", "expected_key", "expected_end"),
    [
        (b"a", b"", b"a", None),
        (b"", b"", b"\0", None),
        (b"a", b"b", b"a", b"b"),
        (b"a", b"\0", b"a", b""),
        (b"", b"\0", b"\0", b""),
        (b"\0", b"\0", b"\0", b""),
        (b"", b"b", b"\0", b"b"),
    ],
)
def test_keys_and_ranges(
    key: bytes, range_end: bytes, expected_key: bytes, expected_end: bytes | None
) -> None:
    wanted = parse_request(create(key=key, range_end=range_end, start_revision=7, watch_id=-3))
    assert wanted == Create(expected_key, expected_end, 7, -3, 0, progress_notify=False)


@pytest.mark.parametrize("range_end", [b"a", b"A", b"a\0"[:1]])
def test_an_empty_range_is_refused(range_end: bytes) -> None:
    wanted = parse_request(create(key=b"a", range_end=range_end))
    assert wanted == Refused("mvcc: watcher range is empty", b"a", range_end)


def test_a_negative_start_is_refused_before_anything_else() -> None:
    wanted = parse_request(create(key=b"b", range_end=b"a", start_revision=-1))
    assert wanted == Refused("etcdserver: mvcc: required revision has been compacted")


def test_flavor() -> None:
    wanted = parse_request(
        create(key=b"a", prev_kv=True, fragment=True, filters=[0, 1, 1, 9], progress_notify=True)
    )
    assert isinstance(wanted, Create)
    assert wanted.flavor == PREV_KV | FRAGMENT | NO_PUT | NO_DELETE
    assert wanted.progress_notify


def test_the_other_requests() -> None:
    assert parse_request(cancel(7)) == Cancel(7)
    assert parse_request(PROGRESS) == Progress()
    assert parse_request(b"") is None


@pytest.mark.parametrize("body", [b"\xff\xff", b"\x0a\x05\x01"])
def test_bytes_that_are_no_request(body: bytes) -> None:
    assert parse_request(body) is MALFORMED
    assert MALFORMED.code == Code.INTERNAL
    assert MALFORMED.text.startswith("grpc: failed to unmarshal the received message: proto:")
