"""Kinds against what a real kube-apiserver answered to writes of them."""

import re
from typing import Final

import pytest

from tests.apiserver.kinds.replay import ASIDE, DIFFERENT, EQUAL, replay_all
from tests.apiserver.kinds.service_acts import SERVICE_ACTS

EQUAL_COUNTS: Final = {
    "defaults-core": 623,
    "defaults-extension": 715,
    "defaults-network": 487,
    "defaults-policy": 523,
    "defaults-storage": 585,
    "invalid-core": 606,
    "invalid-extension": 1162,
    "invalid-network": 592,
    "invalid-policy": 1083,
    "invalid-storage": 653,
    "updates-core": 424,
    "updates-extension": 507,
    "updates-network": 443,
    "updates-policy": 256,
    "updates-storage": 359,
}

_CRD: Final = "invalid/extension/crd/spec.versions[0].schema.openAPIV3Schema"

KNOWN: Final = frozenset({
    f"{_CRD}.properties.spec.properties.color.x-kubernetes-validations [3]",
    f"{_CRD}.properties.spec.properties.color.x-kubernetes-validations [4]",
})  # fmt: skip
"""Rules in CEL are not run on defaults, so those that do not compile are told once only."""
_PLACE: Final = re.compile(r"\S+ \[\d+\]")


@pytest.mark.parametrize("name", EQUAL_COUNTS)
def test_recorded_writes(name: str) -> None:
    """Status, message, causes, objects and warnings are those that were recorded."""
    counts, differences = replay_all([name], SERVICE_ACTS)
    places = [found[0] for each in differences if (found := _PLACE.match(each))]
    family = name.replace("-", "/")
    assert len(places) == counts[DIFFERENT]
    assert sorted(places) == sorted(each for each in KNOWN if each.startswith(f"{family}/"))
    assert counts[EQUAL] == EQUAL_COUNTS[name]
    assert counts[ASIDE] > 0
