"""Stages of recorded stories that are known to end otherwise, and why."""

from typing import Final

_SURGE: Final = "of several nodes with equal pods the first by name is chosen, not a random one"

DIFFERENCES: Final = {
    ("pdb-forms", 2): "all budgets of a pod are updated, not a random one of them",
    ("ds-surge", 1): _SURGE,
    ("ds-surge", 2): _SURGE,
}
"""By name of the story and number of the stage."""
