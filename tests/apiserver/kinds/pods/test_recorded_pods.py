"""What a real kube-apiserver answered about pods, and what the hooks make of it."""

from typing import Final

import pytest

from tests.apiserver.kinds.pod_operations import POD_OPERATIONS
from tests.apiserver.kinds.replay import EQUAL, replay_all

EMPTY: Final = {
    "invalid-pods": (
        "spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.managedFields = []",
        "spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.ownerReferences = []",
        "spec.securityContext.supplementalGroups = []",
        "spec.resources.claims = []",
    ),
    "updates-pods": (
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        ".nodeSelectorTerms[0].matchFields = []",
        "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution = []",
        "spec.containers[0].resources.limits = {}",
        "spec.nodeSelector.disk removed",
        "spec.volumes = []",
        "spec.containers[0].resources.claims = []",
    ),
}
"""Changes that leave a list or map empty: decoding makes it absent, which Go tells apart."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "equal"), [("defaults-pods", 2270), ("invalid-pods", 3667), ("updates-pods", 763)]
)
def test_answers(family: str, equal: int) -> None:
    """All answers are the same but for what is listed above."""
    counts, differences = replay_all([family], POD_OPERATIONS)
    known = EMPTY.get(family, ())
    assert [each for each in differences if not each.split("\n")[0].endswith(known)] == []
    assert counts[EQUAL] >= equal
    assert len(differences) <= len(known)
