from hypothesis import given
from hypothesis import strategies as st

from kvstack.apiserver.policy.flow_control.allocation import Claim, Shares, limits, share_out
from kvstack.apiserver.policy.flow_control.demand import Demand
from kvstack.apiserver.policy.flow_control.retry import RetryAfter
from kvstack.apiserver.policy.flow_control.work import Objects, list_seats, write_work

SECOND = 1_000_000_000


def test_seats_are_those_of_the_objects_made_at_start() -> None:
    found = limits(
        600,
        {
            "exempt": Shares(0),
            "catch-all": Shares(5),
            "global-default": Shares(20, 50, hand_size=6),
            "leader-election": Shares(10, 0, hand_size=4),
            "node-high": Shares(40, 25, hand_size=6),
            "system": Shares(30, 33, hand_size=6),
            "workload-high": Shares(40, 50, hand_size=6),
            "workload-low": Shares(100, 90, hand_size=6),
        },
    )
    assert {name: (e.nominal, e.low) for name, e in found.items()} == {
        "exempt": (0, 0),
        "catch-all": (13, 13),
        "global-default": (49, 25),
        "leader-election": (25, 25),
        "node-high": (98, 74),
        "system": (74, 50),
        "workload-high": (98, 49),
        "workload-low": (245, 25),
    }
    assert found["workload-low"].request_max == 37
    assert found["leader-election"].request_max == 4
    assert found["catch-all"].request_max == 0
    assert found["catch-all"].high == 613


def claims(values: list[tuple[float, float, float]]) -> list[Claim]:
    return [Claim(low + target, low, low + target + high) for target, low, high in values]


NUMBERS = st.floats(0, 500, allow_nan=False)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=8).map(claims), NUMBERS)
def test_shares_keep_to_their_bounds_and_use_all_there_is(
    claims: list[Claim], seats: float
) -> None:
    found, proportion = share_out(seats, claims)
    assert proportion >= 0
    for claim, share in zip(claims, found, strict=True):
        assert claim.low <= share <= claim.high
    low, high = sum(c.low for c in claims), sum(c.high for c in claims)
    assert abs(sum(found) - min(max(seats, low), high)) < 1e-6 * max(1, high)


def test_everybody_gets_the_same_proportion() -> None:
    found, proportion = share_out(60, [Claim(10, 0, 100), Claim(20, 0, 100), Claim(10, 25, 100)])
    assert proportion > 1
    assert [round(each, 6) for each in found] == [11.666667, 23.333333, 25.0]


def test_demand_is_weighted_by_time() -> None:
    demand = Demand(0)
    demand.set(10, SECOND)
    demand.set(0, 2 * SECOND)
    period = demand.end_period(4 * SECOND)
    assert (period.average, period.high) == (2.5, 10)
    assert round(period.deviation, 3) == 4.33
    first = demand.smoothed
    assert first == period.average + period.deviation
    assert demand.end_period(5 * SECOND).average == 0
    assert 0.97 * first < demand.smoothed < first


def test_retries_are_put_off_while_many_are_refused() -> None:
    retry = RetryAfter()
    told = []
    for second in range(100, 160):
        for _ in range(10):
            seconds = retry.refused(second)
        told.append(seconds)
    assert told[0] == 1
    assert told == sorted(told)
    assert told[-1] == 32 or told[-1] == 16
    later = [retry.refused(second) for second in range(300, 400, 2)]
    assert later[-1] == 1


def test_large_lists_take_more() -> None:
    many = Objects(10_000, 1_000)
    assert list_seats(many, 0, 37) == 10
    assert list_seats(many, 500, 37) == 5
    assert list_seats(many, 0, 4) == 4
    assert list_seats(many, 0, 0, is_streamed=False) == 100
    assert list_seats(many, 500, 0, is_streamed=False, selects=True) == 50
    assert list_seats(many, 0, 0, is_one=True) == 1
    assert list_seats(Objects(0, 0), 0, 0) == 1


def test_writes_take_more_with_more_watches() -> None:
    assert write_work(9, 37) == (1, 0)
    assert write_work(45, 37) == (5, 50_000)
    assert write_work(1000, 37) == (10, 500_000)
    assert write_work(1000, 4).seats == 4
