"""All that a plan tells, from what came of a change."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kvstack.agents.client.activity import Due
from kvstack.clusters.comparison.comparison import Change, compare
from kvstack.clusters.plan.by_itself import Parted, part
from kvstack.clusters.plan.change import Outcome
from kvstack.clusters.plan.objects import PODS, Objects
from kvstack.clusters.plan.outline import TELLING, Outline, outline
from kvstack.clusters.plan.plan_run import WATCHES_PROGRESS, PlanResult
from kvstack.clusters.plan.stuck import Finding, stuck
from kvstack.clusters.plan.unforeseen import NOWHERE, assumed, unforeseen

STUCK: Final = "stuck"
UNFORESEEN: Final = "unforeseen"
DELETE: Final = "delete"
_SAME_S: Final = 60.0
FAIL_ON: Final = (STUCK, UNFORESEEN, DELETE)


@dataclass(slots=True)
class Report:
    """What a plan tells."""

    outline: Outline
    stuck: list[Finding]
    unforeseen: list[Finding]
    assumed: list[str]
    later: list[Due]
    """What comes by itself after the end, of those that a plan tells of."""
    outcome: Outcome
    passed_s: float
    revision: int
    """Of the contents that the change was made on."""
    deletes: int
    """Objects that are gone afterwards."""
    is_different: bool
    came: int = 0
    """How many differences would have come without the change, too."""
    prevented: list[str] = field(default_factory=list)
    """What would have come or gone without the change."""

    def fails(self, kinds: frozenset[str]) -> list[str]:
        """Return which of FAIL_ON are so."""
        is_so = {
            STUCK: bool(self.stuck),
            UNFORESEEN: bool(self.unforeseen),
            DELETE: self.deletes > 0,
        }
        return [each for each in FAIL_ON if each in kinds and is_so[each]]


def report_of(result: PlanResult) -> Report:
    """Return what is told of a plan."""
    before, after = Objects(result.before), Objects(result.after)
    parted, unchanged = _parted(result), before
    if result.unchanged is not result.before:
        unchanged = Objects(result.unchanged)
    comparison, came = parted.followed, parted.came_paths
    stuck_anyway = {(each.path, each.text) for each in stuck(before, unchanged, ())}
    found_stuck = [
        each
        for each in stuck(before, after, result.writes.refused)
        if (each.resource, each.path) not in came and (each.path, each.text) not in stuck_anyway
    ]
    if result.outcome.stopped:
        found_stuck.insert(0, Finding(NOWHERE, "", "the command", result.outcome.stopped))
    moving_anyway = {(each.who, each.what) for each in result.unchanged_state.moving}
    moving = [each for each in result.state.moving if (each.who, each.what) not in moving_anyway]
    found_unforeseen = unforeseen(comparison, before, after, result.unasked, moving)
    found_unforeseen += [Finding(NOWHERE, "", "", each) for each in comparison.unreadable]
    moved = [each for each in result.began_with.moving if each.who]
    took = assumed(before, after, came, result.left_out, result.ready_after_s)
    if moved:
        took.append(f"the cluster did not rest before the change: {moved[0].who} {moved[0].what}")
    deletes = sum(each.change is Change.REMOVED for each in comparison.differences)
    return Report(
        outline(comparison, before, after, result.writes, found_stuck, found_unforeseen),
        found_stuck,
        found_unforeseen,
        took,
        list(_later(result)),
        result.outcome,
        result.passed_s,
        result.before.revision,
        deletes,
        bool(comparison.differences),
        len(parted.came),
        [
            f"{each.kind.lower()} {each.path}"
            for each in parted.prevented
            if each.resource not in TELLING and each.resource != PODS
        ],
    )


def _parted(result: PlanResult) -> Parted:
    found = compare(result.before, result.after)
    if result.unchanged is result.before:
        return Parted(found, [], [])
    return part(found, compare(result.before, result.unchanged))


def _later(result: PlanResult) -> Iterator[Due]:
    """Yield what comes after the end, and would not have come then without the change."""
    known = {(each.who, each.what): each.in_s - result.passed_s for each in result.began_with.due}
    if result.unchanged is not result.before:
        known |= {(each.who, each.what): each.in_s for each in result.unchanged_state.due}
    for each in result.state.due:
        before_s = known.get((each.who, each.what))
        is_new = before_s is None or abs(before_s - each.in_s) > _SAME_S
        if is_new and each.who != WATCHES_PROGRESS:
            yield each
