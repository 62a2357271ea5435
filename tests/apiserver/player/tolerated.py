"""Every difference from the recordings that is allowed, each with its reason.

A row names scenarios (a pattern of the whole name) and paths (a pattern of the whole path, as
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
    paths: str
    steps: tuple[int, ...] = ()  # empty: all


TOLERATED = (
    Tolerated(
        "two seconds before a watch ends a bookmark may have a newer revision, since the server's"
        " own leases change the store",
        "watches-bookmark",
        "events",
    ),
    Tolerated(
        "the watch cache still has this revision; upstream's starts later",
        "lists-expired",
        r"status|headers/.*|json/.*",
        steps=(19, 20, 21, 23),
    ),
    Tolerated(
        "details of the build instead of the version: commit, tree state, date, compiler",
        "authz/401|authz/403-urls|authz/certificates|meta-headers|meta-health",
        "json/(gitCommit|gitTreeState|buildDate|goVersion|compiler|platform)",
    ),
    Tolerated(
        "of two exceeded quotas upstream reports either, kvstack the first by name",
        "admission/quota/two",
        "json/message",
        steps=(6,),
    ),
    Tolerated(
        "redirects of webhooks are not followed, since they could lead the API server anywhere",
        "admission/webhook/validating-redirect-Fail",
        "json/(message|details/.*)",
    ),
    Tolerated(
        "a delete calls each webhook once; upstream calls it three times for a terminating pod",
        "admission/webhook/validating-requests",
        "calls",
        steps=(18,),
    ),
)


@lru_cache(maxsize=1 << 12)
def reason(scenario: str, step: int, path: str) -> str:
    """Return why a difference at this path is allowed; empty if it is not."""
    for row in TOLERATED:
        if row.steps and step not in row.steps:
            continue
        if re.fullmatch(row.scenarios, scenario) and re.fullmatch(row.paths, path):
            return row.why
    return ""


def untolerated(scenario: str, differences: list[Difference]) -> list[Difference]:
    """Return the differences that no row allows."""
    return [each for each in differences if not reason(scenario, each.step, each.found.path)]
