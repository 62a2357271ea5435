"""Plays a file of scenarios and counts.

What needs custom resources, webhooks or admission by expressions is not there yet: those scenarios
are played like all others when their file is named, and they differ.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from tests.apiserver.player.counts import Counts
from tests.apiserver.player.scenarios import Difference, Scenario, lacking, play
from tests.apiserver.player.target import Target
from tests.apiserver.player.tolerated import untolerated

Tell = Callable[[Scenario, list[Difference]], None]


def family_of(path: Path) -> str:
    """Return the name of a file of recordings."""
    return path.name.removesuffix(".jsonl.gz")


def play_family(name: str, scenarios: Iterable[Scenario], target: Target, tell: Tell) -> Counts:
    """Play scenarios one after another; tell of those with differences that are not tolerated."""
    played = all_steps = same = same_steps = tolerated = not_played = 0
    for scenario in scenarios:
        played += 1
        steps = len(scenario["steps"])
        all_steps += steps
        if lacking(scenario, target):
            not_played += 1
            continue
        found = play(scenario, target)
        left = untolerated(scenario["name"], found)
        different = {each.step for each in left}
        same += not left
        same_steps += steps - len(different)
        tolerated += len({each.step for each in found} - different)
        if left:
            tell(scenario, left)
    return Counts(name, played, same, all_steps, same_steps, tolerated, not_played)
