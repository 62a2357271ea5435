"""The same watches and writes on this project's server and on real etcd: the same events for each.

See tests/support/differential/watch.py for what is compared and how both are kept in step.
"""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.differential import strategies as draw
from tests.support.differential.calls import Base, Now
from tests.support.differential.pair import Pair, examples
from tests.support.differential.watch import Step, run

pytestmark = [pytest.mark.xdist_group("differential-watch"), pytest.mark.timeout(1800)]

REVISIONS: Final = st.sampled_from(
    [0, 0, Base(0), Base(1), Base(2), Now(0), Now(-1), Now(1), Base(-1), 1, -1]
)
CREATES: Final = draw.with_options(
    draw.ranges | st.fixed_dictionaries({"key": draw.common_keys}),
    start_revision=REVISIONS,
    prev_kv=draw.flags,
    fragment=draw.flags,
    progress_notify=draw.flags,
    filters=st.lists(st.sampled_from([0, 1, 0, 1, 7]), max_size=2),
    watch_id=st.integers(0, 4),
)
WATCHES: Final = st.tuples(st.just("Watch"), CREATES)
CANCELS: Final = st.tuples(st.just("Cancel"), st.integers(-1, 4))
PROGRESS: Final = st.just(("Progress", None))
COMPACTIONS: Final = st.tuples(
    st.just("Compact"),
    st.fixed_dictionaries({"revision": st.sampled_from([Now(0), Now(-1), Base(1)])}),
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    started = Pair(tmp_path_factory.mktemp("pair"))
    yield started
    started.close()


def some(*steps: st.SearchStrategy[Any], at_most: int) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.one_of(steps), min_size=1, max_size=at_most)


@examples(25)
@given(watches=st.lists(WATCHES, min_size=1, max_size=4), writes=some(draw.writes, at_most=8))
def test_watches_from_now_on(pair: Pair, watches: list[Step], writes: list[Step]) -> None:
    run(pair, [], watches + writes)


@examples(25)
@given(before=some(draw.writes, at_most=8), watches=st.lists(WATCHES, min_size=1, max_size=4))
def test_watches_of_the_past(pair: Pair, before: list[Step], watches: list[Step]) -> None:
    run(pair, before, watches)


@examples(30)
@given(
    before=some(draw.writes, at_most=4),
    steps=some(
        WATCHES, WATCHES, draw.writes, draw.writes, CANCELS, PROGRESS, COMPACTIONS, at_most=12
    ),
)
def test_all_that_happens_to_a_stream(pair: Pair, before: list[Step], steps: list[Step]) -> None:
    run(pair, before, steps)
