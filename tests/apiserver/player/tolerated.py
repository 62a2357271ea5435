"""Every difference from the recordings that is allowed, each with its reason.

A row names scenarios (a pattern of the whole name) and places (a pattern of the whole place, as
comparing.Found has it) and perhaps steps. What no row allows is a failure.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from tests.apiserver.player.scenarios import Difference


class Tolerated(NamedTuple):
    """Where a difference is allowed, and why."""

    why: str
    scenarios: str
    places: str
    steps: tuple[int, ...] = ()  # empty: all


TOLERATED = (
    Tolerated(
        "two seconds before a watch ends a bookmark tells that the store's revision has moved,"
        " which leases of the server itself move now and then",
        "watches-bookmark",
        "events",
    ),
    Tolerated(
        "the copy in memory still has this revision and needs no history; upstream's began later",
        "lists-expired",
        r"status|headers/.*|json/.*",
        steps=(19, 20, 21, 23),
    ),
    Tolerated(
        "the build is told, not the version: commit, state of the tree, date, compiler",
        "authz/401|authz/403-urls|authz/certificates|meta-headers|meta-health",
        "json/(gitCommit|gitTreeState|buildDate|goVersion|compiler|platform)",
    ),
    Tolerated(
        "which of two exceeded quotas is told is chance there; here it is the first by name",
        "admission/quota/two",
        "json/message",
        steps=(6,),
    ),
    Tolerated(
        "redirects of webhooks are not followed: they could lead the API server anywhere",
        "admission/webhook/validating-redirect-Fail",
        "json/(message|details/.*)",
    ),
    Tolerated(
        "one delete asks each webhook once; upstream asks thrice where a pod is on its way already",
        "admission/webhook/validating-requests",
        "calls",
        steps=(18,),
    ),
)


@lru_cache(maxsize=1 << 12)
def reason(scenario: str, step: int, place: str) -> str:
    """Return why a difference at this place is allowed; empty if it is not."""
    for row in TOLERATED:
        if row.steps and step not in row.steps:
            continue
        if re.fullmatch(row.scenarios, scenario) and re.fullmatch(row.places, place):
            return row.why
    return ""


def untolerated(scenario: str, differences: list[Difference]) -> list[Difference]:
    """Return the differences that no row allows."""
    return [each for each in differences if not reason(scenario, each.step, each.found.place)]
