"""Definitions and values of custom resources against what a real kube-apiserver answered."""

from collections import Counter
from typing import Any

import pytest

from kvstack.apiserver.apiextensions.customresourcedefinitions.values import ValueSchema
from tests.apiserver.kinds.replay import DIFFERENT, EQUAL, recorded, replay_all

VALUES: list[dict[str, Any]] = list(recorded("custom-values"))


def test_definitions() -> None:
    """Faults of definitions are told in the same words."""
    counts, differences = replay_all(["definitions"])
    assert differences == []
    assert (counts[EQUAL], counts[DIFFERENT]) == (78, 0)


@pytest.mark.parametrize("name", sorted({each["name"] for each in VALUES}))
def test_values(name: str) -> None:
    """What is wrong with values of a schema is told in the same words."""
    for line in VALUES:
        if line["name"] == name:
            errors = ValueSchema(line["schema"], is_served=True).errors(line["value"], "")
            found = {(each.reason, each.field, each.body) for each in errors}
            causes = {(each["reason"], each["field"], each["message"]) for each in line["causes"]}
            assert found == causes, line["value"]


def test_enough_is_recorded() -> None:
    """Of many keywords and formats, good values and bad ones."""
    counts = Counter(bool(each["causes"]) for each in VALUES)
    assert (counts[False], counts[True]) == (162, 56)
