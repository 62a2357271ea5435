"""Stages of recorded stories that are known to end otherwise, and why."""

from typing import Final

_SURGE: Final = "of several nodes whose pods are equal, one takes the first by name, not by chance"

DIFFERENCES: Final = {
    ("pdb-forms", 2): "of several budgets of a pod all are kept up to date, not one by chance",
    ("ds-surge", 1): _SURGE,
    ("ds-surge", 2): _SURGE,
}
"""By name of the story and number of the stage."""
