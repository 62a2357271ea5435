"""Core, network and storage kinds against what a real kube-apiserver answered to writes of them."""

from typing import Final

import pytest

from tests.apiserver.kinds.replay import ASIDE, DIFFERENT, EQUAL, replay_all
from tests.apiserver.kinds.service_acts import SERVICE_ACTS

EQUAL_COUNTS: Final = {
    "defaults-core": 623,
    "defaults-network": 487,
    "defaults-storage": 585,
    "invalid-core": 606,
    "invalid-network": 592,
    "invalid-storage": 648,
    "updates-core": 423,
    "updates-network": 442,
    "updates-storage": 357,
}

NO_EMPTIES: Final = frozenset({
    "invalid/storage/pv-csi/spec.capacity.storage [0]",
    "invalid/storage/pv-hostpath/spec.capacity [2]",
    "invalid/storage/pv-hostpath/spec.capacity.storage [0]",
    "invalid/storage/pv-local/spec.capacity.storage [0]",
    "invalid/storage/pv-nfs/spec.capacity.storage [0]",
    "updates/core/resourcequota-scopes/spec.scopes [3]",
    "updates/network/networkpolicy/spec.egress [22]",
    "updates/storage/pv-csi/spec [30]",
    "updates/storage/pv-csi/spec [33]",
})  # fmt: skip
"""Decoding drops empty lists and maps that are not written anyway. Go keeps them until the object
is stored: errors print them as `{}`, not null, and they raise a NetworkPolicy's generation."""


@pytest.mark.parametrize("name", EQUAL_COUNTS)
def test_recorded_writes(name: str) -> None:
    """Status, message, causes, objects and warnings are those that were recorded."""
    counts, differences = replay_all([name], SERVICE_ACTS)
    unknown = [each for each in differences if each.partition("]")[0] + "]" not in NO_EMPTIES]
    assert unknown == []
    assert counts[DIFFERENT] == sum(each.startswith(name.replace("-", "/")) for each in NO_EMPTIES)
    assert counts[EQUAL] == EQUAL_COUNTS[name]
    assert counts[ASIDE] > 0
