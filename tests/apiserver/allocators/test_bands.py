"""The low band of a range and the order in which numbers are tried."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apiserver.allocators.bands import band, candidates


@pytest.mark.parametrize(
    ("size", "expected"),
    [(4, 0), (16, 0), (17, 16), (256, 16), (512, 32), (4096, 256), (1 << 64, 256)],
)
def test_band_of_addresses(size: int, expected: int) -> None:
    """A sixteenth, between 16 and 256, none in the smallest ranges."""
    assert band(size, least=16, most=256, step=16) == expected


@pytest.mark.parametrize(
    ("size", "expected"), [(16, 0), (17, 16), (512, 16), (2768, 86), (65535, 128)]
)
def test_band_of_ports(size: int, expected: int) -> None:
    """A thirty-second, between 16 and 128."""
    assert band(size, least=16, most=128, step=32) == expected


def test_upper_band_comes_first_from_a_random_start_and_around() -> None:
    """Each band is walked around once."""
    assert list(candidates(1, 3, 8, lambda n: n // 2)) == [6, 7, 8, 4, 5, 2, 3, 1]


def test_no_low_band() -> None:
    """All numbers are of the upper band then."""
    assert list(candidates(5, 0, 7, lambda n: n - 1)) == [7, 5, 6]


@given(st.integers(0, 9), st.integers(0, 40), st.integers(0, 50), st.randoms())
def test_each_number_is_tried_once_the_low_band_last(
    first: int, offset: int, more: int, random: object
) -> None:
    """Whatever the random numbers are."""
    last = first + more
    numbers = list(candidates(first, offset, last, lambda n: random.randrange(n)))  # type: ignore[attr-defined]
    assert sorted(numbers) == list(range(first, last + 1))
    upper = max(last - first - offset + 1, 0)
    assert all(number >= first + offset for number in numbers[:upper])
