"""Endpoints go into slices with as few changes as can be."""

from hypothesis import given
from hypothesis import strategies as st

from kvstack.agents.controllers.network.slices.packing import (
    Changes,
    key_of_endpoint,
    packed,
)
from kvstack.apimachinery.objects.json_object import Object


def endpoint(number: int, *, ready: bool = True) -> Object:
    return {"addresses": [f"10.0.0.{number}"], "conditions": {"ready": ready}}


def a_slice(name: str, *numbers: int) -> Object:
    return {
        "metadata": {"name": name},
        "addressType": "IPv4",
        "endpoints": [endpoint(number) for number in numbers],
    }


def pack(slices: list[Object], numbers: list[int], limit: int = 3) -> Changes:
    desired = {key_of_endpoint(endpoint(number)): endpoint(number) for number in numbers}
    new = {"metadata": {"generateName": "s-"}, "addressType": "IPv4"}
    return packed(slices, desired, limit, lambda: dict(new), lambda _each: None)


def summary(slices: list[Object]) -> list[tuple[str, list[int]]]:
    return [
        (
            each["metadata"].get("name", ""),
            [int(found["addresses"][0].rpartition(".")[2]) for found in each["endpoints"]],
        )
        for each in slices
    ]


def test_nothing_changes() -> None:
    changes = pack([a_slice("a", 1, 2)], [1, 2])
    assert changes == Changes()


def test_new_ones_go_where_something_changes_anyway() -> None:
    """Not into the slice that has more room."""
    changes = pack([a_slice("a", 1, 2), a_slice("b", 3)], [1, 3, 4])
    assert summary(changes.update) == [("a", [1, 4])]


def test_slices_that_nothing_changes_in_are_not_filled_up() -> None:
    """As upstream's reconciler: 98 endpoints that stay as they are and 5 more make 98 and 5."""
    before = a_slice("a", *range(98))
    changes = pack([before], list(range(103)), limit=100)
    assert not changes.update
    assert [len(each["endpoints"]) for each in changes.create] == [5]


def test_slices_in_which_something_changes_are_filled_up() -> None:
    """One of the 98 became ready meanwhile: the slice is written anyway, so 100 and 3."""
    before = a_slice("a", *range(98))
    before["endpoints"][7] = endpoint(7, ready=False)
    changes = pack([before], list(range(103)), limit=100)
    assert [len(each["endpoints"]) for each in changes.update] == [100]
    assert [len(each["endpoints"]) for each in changes.create] == [3]


def test_what_fills_slices_gets_new_ones() -> None:
    changes = pack([a_slice("a", 1)], [1, 2, 3, 4, 5])
    assert summary(changes.create) == [("", [2, 3, 4])]
    assert summary(changes.update) == [("a", [1, 5])]


def test_the_rest_goes_where_it_fits_best() -> None:
    changes = pack([a_slice("a", 1), a_slice("b", 2, 3)], [1, 2, 3, 4])
    assert summary(changes.update) == [("b", [2, 3, 4])]


def test_empty_slices_go() -> None:
    changes = pack([a_slice("a", 1)], [])
    assert summary(changes.delete) == [("a", [1])]


def test_deletions_become_updates() -> None:
    changes = Changes(create=[a_slice("", 2)], delete=[a_slice("old", 1)])
    changes.recycle(lambda _old: True)
    assert (changes.create, changes.delete) == ([], [])
    assert summary(changes.update) == [("old", [2])]


def test_foreign_slices_are_not_recycled() -> None:
    changes = Changes(create=[a_slice("", 2)], delete=[a_slice("old", 1)])
    changes.recycle(lambda _old: False)
    assert len(changes.create) == len(changes.delete) == 1


@given(
    st.lists(st.sets(st.integers(1, 30), min_size=1, max_size=5), max_size=5),
    st.sets(st.integers(1, 40)),
)
def test_all_are_there_once(before: list[set[int]], desired: set[int]) -> None:
    """No endpoint is lost or doubled, and no slice is too full."""
    seen: set[int] = set()
    slices = []
    for number, members in enumerate(before):
        own = sorted(members - seen)
        seen |= members
        if own:
            slices.append(a_slice(f"s{number}", *own))
    changes = pack(slices, sorted(desired), limit=5)
    after = [*changes.create, *changes.update, *changes.unchanged(slices)]
    found = [number for _, members in summary(after) for number in members]
    assert sorted(found) == sorted(desired)
    assert all(len(each["endpoints"]) <= 5 for each in after)
