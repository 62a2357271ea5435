"""Why no node is feasible: the reasons by node, and the message for users.

0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. preemption: …
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from kvstack.agents.scheduler.cycle import Code, Failures, Reason, Refusal
from kvstack.agents.scheduler.snapshot.columns import BoolArray

NO_NODES: Final = "no nodes available to schedule pods"


@dataclass(slots=True)
class RefusedNodes:
    """Nodes a plugin refused that no plugin before it had refused."""

    plugin: str
    at: BoolArray
    failures: Failures


@dataclass(slots=True)
class Diagnosis:
    """Why nodes were refused."""

    node_count: int
    refusal: Refusal | None = None
    """No node was looked at."""
    refused_by: str = ""
    refused: list[RefusedNodes] = field(default_factory=list)
    rejectors: set[str] = field(default_factory=set)
    """Plugins that had a part in it."""
    others: dict[int, Reason] = field(default_factory=dict)
    """Reasons found otherwise (extenders), by slot."""

    def reason_of(self, slot: int) -> Reason | None:
        """Return why a node was refused, if it was."""
        for each in self.refused:
            if each.at[slot]:
                return each.failures.reasons[int(each.failures.numbers[slot]) - 1]
        return self.others.get(slot)

    def slots_of(self, code: Code) -> list[int]:
        """Return the nodes that were refused with a code, in the order of slots."""
        slots: list[int] = []
        for each in self.refused:
            numbers = each.failures.numbers
            wanted = [
                number
                for number, reason in enumerate(each.failures.reasons, 1)
                if reason.code is code
            ]
            for number in wanted:
                slots += (each.at & (numbers == number)).nonzero()[0].tolist()
        slots += [slot for slot, reason in self.others.items() if reason.code is code]
        return sorted(slots)

    def message(self, post_filter: str = "") -> str:
        """Return the text for users; post_filter: what preemption has to say."""
        head = f"0/{self.node_count} nodes are available:"
        if self.refusal is not None:
            text = f"{head} {self.refusal.text}."
        else:
            text = f"{head} {histogram(self._counts())}."
        return f"{text} {post_filter}" if post_filter else text

    def _counts(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for each in self.refused:
            numbers = each.failures.numbers[each.at]
            for number, reason in enumerate(each.failures.reasons, 1):
                count = int((numbers == number).sum())
                if count:
                    for text in reason.texts:
                        counts[text] += count
        for reason in self.others.values():
            counts.update(reason.texts)
        return counts


def histogram(counts: Counter[str]) -> str:
    """Return how often each text was given, sorted as texts."""
    return ", ".join(sorted(f"{number} {text}" for text, number in counts.items()))


def count_texts(reasons: Iterable[Reason]) -> Counter[str]:
    """Return how often each text was given."""
    counts: Counter[str] = Counter()
    for reason in reasons:
        counts.update(reason.texts)
    return counts
