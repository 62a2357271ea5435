"""What a real kube-apiserver answered about workloads, and what the hooks make of it."""

from typing import Final

import pytest

from tests.apiserver.kinds.replay import EQUAL, replay_all
from tests.apiserver.kinds.workload_operations import WORKLOAD_OPERATIONS

EMPTY: Final = {
    "invalid-workloads": (
        "spec.template.metadata.labels = {}",
        "spec.template.metadata.labels.job removed",
        "spec.behavior.scaleDown.policies = []",
        "spec.behavior.scaleUp.policies = []",
    ),
}
"""Changes that leave a list or map empty: decoding makes it absent, which Go tells apart."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "equal"),
    [("defaults-workloads", 719), ("invalid-workloads", 1094), ("updates-workloads", 908)],
)
def test_answers(family: str, equal: int) -> None:
    """All answers are the same but for what is listed above."""
    counts, differences = replay_all([family], WORKLOAD_OPERATIONS)
    known = EMPTY.get(family, ())
    assert [each for each in differences if not each.split("\n")[0].endswith(known)] == []
    assert counts[EQUAL] >= equal
