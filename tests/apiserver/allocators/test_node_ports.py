"""Which node ports can be had, and how the taken ones are stored."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apiserver.allocators.node_ports import (
    ALLOCATED,
    DEFAULT_RANGE,
    PortClaims,
    bitmap,
    decode_bitmap,
    encode_bitmap,
    ports_of,
)
from kvstack.component.net.port_range import PortRange, parse_range

SMALL = PortRange(30000, 30003)


def claims(taken: int = 0, *, is_dry_run: bool = False) -> PortClaims:
    """Return no claims on a small range."""
    return PortClaims(SMALL, taken, lambda n: 0, is_dry_run=is_dry_run)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30000-32767", (30000, 32767)),
        ("30000+100", (30000, 30100)),
        ("31000", (31000, 31000)),
    ],
)
def test_range(text: str, expected: tuple[int, int]) -> None:
    """The three forms of the flag."""
    assert parse_range(text) == expected


@pytest.mark.parametrize("text", ["", "x", "2-1", "0-10", "1-65536", "65000+600", "1-2-3"])
def test_no_range(text: str) -> None:
    """Numbers of ports, the smaller first."""
    with pytest.raises(ValueError, match=r"range|invalid literal"):
        parse_range(text)


def test_default_range_keeps_86_ports_for_those_who_ask() -> None:
    """The first chosen port lies above them."""
    chosen = PortClaims(DEFAULT_RANGE, 0, lambda n: 0).claim_any()
    assert chosen == 30086


def test_claim_asked() -> None:
    """It must lie in the range and be free, also of this write's own claims."""
    some = claims(bitmap(SMALL, [30001]))
    assert some.claim(30001) == ALLOCATED
    assert some.claim(30002) == ""
    assert some.claim(30002) == ALLOCATED
    assert some.claim(29999) == (
        "provided port is not in the valid range. The range of valid ports is 30000-30003"
    )
    assert some.claimed == [30002]


def test_claim_any_until_the_range_is_full() -> None:
    """Then there is none."""
    some = claims(bitmap(SMALL, [30001]))
    assert [some.claim_any() for _ in range(4)] == [30000, 30002, 30003, None]


def test_result_has_claimed_and_lacks_released() -> None:
    """A port out of the range (of an older setting) is released silently."""
    some = claims(bitmap(SMALL, [30001, 30002]))
    some.claim(30003)
    some.release(30001)
    some.release(80)
    assert list(ports_of(SMALL, some.result())) == [30002, 30003]


def test_dry_run_makes_up_ports_and_minds_no_range() -> None:
    """What is taken counts all the same."""
    some = claims(bitmap(SMALL, [30001]), is_dry_run=True)
    assert [some.claim_any(), some.claim_any()] == [32769, 32770]
    assert some.claim(80) == ""
    assert some.claim(30001) == ALLOCATED


@given(st.sets(st.integers(30000, 30099)), st.lists(st.none() | st.integers(30000, 30099)))
def test_no_port_is_given_twice(taken: set[int], asked: list[int | None]) -> None:
    """Whether asked for or chosen."""
    block = PortRange(30000, 30099)
    some = PortClaims(block, bitmap(block, taken), Random(7).randrange)
    for each in asked:
        if each is None:
            port = some.claim_any()
            assert port is not None or len(taken) + len(some.claimed) == 100
        else:
            some.claim(each)
    assert len(set(some.claimed)) == len(some.claimed)
    assert not taken & set(some.claimed)
    assert set(ports_of(block, some.result())) == taken | set(some.claimed)


@given(st.sets(st.integers(30000, 32767)))
def test_bitmap_is_stored_and_read(ports: set[int]) -> None:
    """The ports come back in order."""
    bits = decode_bitmap(encode_bitmap(bitmap(DEFAULT_RANGE, ports)))
    assert list(ports_of(DEFAULT_RANGE, bits)) == sorted(ports)


def test_stored_bitmap_is_big_endian() -> None:
    """As Go's big.Int writes it: bit 0 is the first port, in the last byte."""
    assert encode_bitmap(bitmap(DEFAULT_RANGE, [30000, 30009])) == "AgE="
    assert encode_bitmap(0) == ""
    assert bitmap(SMALL, [80, 30000]) == 1
