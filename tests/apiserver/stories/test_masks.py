"""Masks hide what differs between two runs, and no more."""

import pytest

from tests.apiserver.stories.clients import RELEASES, release_of
from tests.apiserver.stories.masks import comparable, masked


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x    Bound   5m", "x  Bound  12s"),
        ("uid: 0f6c2f5e-7d0e-4c52-9a53-6b7f6f2a1d11", "uid: 11111111-2222-4333-8444-555555555555"),
        ('creationTimestamp: "2026-11-22T13:42:29Z"', 'creationTimestamp: "2027-01-01T00:00:00Z"'),
        ("80:30123/TCP", "80:32111/TCP"),
        ("web-7c5ddbdf54-x7z9k", "web-5d4f8c7b99-b2c4d"),
        ("clusterIP: 10.0.3.4", "clusterIP: 10.0.200.1"),
    ],
)
def test_two_runs_are_the_same(one: str, other: str) -> None:
    assert masked(one) == masked(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("deployment.apps/web created", "deployment.apps/web configured"),
        ("web 1/3", "web 2/3"),
        ("cpu: 100m", "cpu: 200m"),
        ("replicas: 3", "replicas: 4"),
        ("yes", "no"),
    ],
)
def test_what_differs_is_seen(one: str, other: str) -> None:
    assert masked(one) != masked(other)


def test_comparisons_are_weakened_as_they_say() -> None:
    one, other = "b\na\n", "a\nb\nb\n"
    assert comparable(one, "", "") != comparable("a\nb\n", "", "")
    assert comparable(one, "sorted", "") == comparable("a\nb\n", "sorted", "")
    assert comparable(one, "set", "") == comparable(other, "set", "")
    assert comparable(one, "sorted", "") != comparable(other, "sorted", "")
    assert comparable(one, "last", "") == comparable("c\na\n", "last", "")
    assert comparable(one, "exit", "") == comparable("z", "exit", "")
    assert comparable("[x, y]", "sorted-words", "") == comparable("[y, x]", "sorted-words", "")


def test_of_explain_no_prose_is_compared() -> None:
    text = "KIND:  Pod\nDESCRIPTION:\n  Any words.\nFIELDS:\n  spec  <PodSpec>\n  pods/<name>/x\n"
    assert comparable(text, "", "explain") == [
        "KIND:  Pod",
        "DESCRIPTION:",
        "FIELDS:",
        "  spec  <PodSpec>",
    ]


def test_every_program_has_its_release() -> None:
    for name, release in RELEASES.items():
        assert release_of(release.kubectl) == release_of(release.helm) == name
    assert release_of("1.32.5") == "1.32"
    with pytest.raises(LookupError):
        release_of("2.0.0")
