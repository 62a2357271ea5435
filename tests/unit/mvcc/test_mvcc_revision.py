"""Revision keys: etcd's bytes, and nothing else passes."""

import pytest

from kvstore.errors import CorruptionError
from kvstore.mvcc.revision import parse_revision_key, revision_key


def test_the_bytes_are_etcds() -> None:
    assert revision_key(5, 2).hex() == "00000000000000055f0000000000000002"
    assert revision_key(5, 2, tombstone=True).hex() == "00000000000000055f000000000000000274"
    assert revision_key(2**63 - 1)[:8] == b"\x7f" + b"\xff" * 7


def test_parse_reverses_make() -> None:
    assert parse_revision_key(revision_key(7, 9)) == (7, 9, False)
    assert parse_revision_key(revision_key(7, 9, tombstone=True)) == (7, 9, True)


def test_order_of_bytes_is_order_of_changes() -> None:
    keys = [
        revision_key(main, sub, tombstone=tombstone)
        for main in (1, 2, 255, 256)
        for sub, tombstone in ((0, True), (1, False), (256, True))
    ]
    assert keys == sorted(keys)


@pytest.mark.parametrize(
    "key",
    [
        b"",
        revision_key(1)[:16],
        revision_key(1) + b"x",
        revision_key(1) + b"tt",
        revision_key(1).replace(b"_", b"-"),
        b"\x80" + revision_key(1)[1:],
        revision_key(1)[:9] + b"\x80" + bytes(7),
    ],
)
def test_anything_else_is_corruption_and_named(key: bytes) -> None:
    with pytest.raises(CorruptionError, match=f"revision key {key.hex()} "):
        parse_revision_key(key)
