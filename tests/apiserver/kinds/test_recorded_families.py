"""Kinds against what a real kube-apiserver answered to writes of them."""

from typing import Final

import pytest

from tests.apiserver.kinds.replay import ASIDE, DIFFERENT, EQUAL, replay_all
from tests.apiserver.kinds.service_operations import SERVICE_OPERATIONS

EQUAL_COUNTS: Final = {
    "defaults-core": 623,
    "defaults-extension": 715,
    "defaults-network": 487,
    "defaults-policy": 523,
    "defaults-storage": 585,
    "invalid-core": 606,
    "invalid-extension": 1164,
    "invalid-network": 592,
    "invalid-policy": 1083,
    "invalid-storage": 653,
    "updates-core": 424,
    "updates-extension": 507,
    "updates-network": 443,
    "updates-policy": 256,
    "updates-storage": 359,
}


@pytest.mark.parametrize("name", EQUAL_COUNTS)
def test_recorded_writes(name: str) -> None:
    """Status, message, causes, objects and warnings are those that were recorded."""
    counts, differences = replay_all([name], SERVICE_OPERATIONS)
    assert differences == []
    assert counts[DIFFERENT] == 0
    assert counts[EQUAL] == EQUAL_COUNTS[name]
    assert counts[ASIDE] > 0
