"""Which endpoint a gateway takes next."""

import random
from collections import Counter

from kvstore.proxy.gateway.remotes import Remotes
from kvstore.server.discovery.dns import Service


def remotes(*rows: tuple[str, int, int]) -> Remotes:
    """Return endpoints of (host, priority, weight)."""
    return Remotes([Service(host, 1, *rest) for host, *rest in rows], random.Random(7))


def picks(of: Remotes, count: int) -> list[str]:
    found = [of.pick() for _ in range(count)]
    return [each.service.target for each in found if each is not None]


def set_aside(of: Remotes, host: str) -> None:
    for each in of.all:
        if each.service.target == host:
            each.is_active = False


def test_without_weights_they_take_turns() -> None:
    assert picks(remotes(("a", 0, 0), ("b", 0, 0), ("c", 0, 0)), 6) == ["a", "b", "c"] * 2


def test_the_lowest_priority_that_lives_counts() -> None:
    some = remotes(("far", 2, 0), ("near", 1, 0))
    assert picks(some, 3) == ["near"] * 3
    set_aside(some, "near")
    assert picks(some, 3) == ["far"] * 3


def test_one_that_is_set_aside_gets_nothing_until_it_is_back() -> None:
    some = remotes(("a", 0, 0), ("b", 0, 0))
    set_aside(some, "a")
    assert picks(some, 2) == ["b", "b"]
    set_aside(some, "b")
    assert some.pick() is None
    some.all[0].is_active = True
    assert picks(some, 2) == ["a", "a"]


def test_weights_are_shares_and_no_weight_is_a_small_one() -> None:
    counts = Counter(picks(remotes(("heavy", 0, 30), ("light", 0, 10), ("none", 0, 0)), 8000))
    assert 5500 < counts["heavy"] < 6300
    assert 1700 < counts["light"] < 2300
    assert 20 < counts["none"] < 200


def test_addresses_of_ipv6_have_brackets() -> None:
    assert Remotes([Service("::1", 80, 0, 0)], random.Random(1)).all[0].address == "[::1]:80"
