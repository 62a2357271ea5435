"""The targets of the fuzzer, each for a moment: their seeds, and seeds with other bytes in them."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import DICTIONARY, SEEDS, TARGETS

EXAMPLES = 60


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_read_or_refused(name: str) -> None:
    for seed in SEEDS[name]:
        TARGETS[name](seed)
        for start, end in pairwise(range(0, len(seed), 7)):
            TARGETS[name](seed[:start] + seed[end:])


@pytest.mark.parametrize("name", TARGETS)
def test_other_bytes_are_read_or_refused(name: str) -> None:
    pieces = st.lists(
        st.sampled_from([*SEEDS[name], *DICTIONARY]) | st.binary(max_size=12), max_size=5
    )

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(pieces, st.integers(0, 400))
    def check(found: list[bytes], end: int) -> None:
        TARGETS[name](b"".join(found)[:end])

    check()
