"""The check that nobody changes what is stored or kept."""

import os
import subprocess
import sys
from typing import Any

import pytest

from kvstack.apimachinery.objects import unchanged
from kvstack.apiserver.kinds.strategy import Conversion


@pytest.fixture
def changes() -> list[str]:
    """What the check has found; emptied, since finding it is the test."""
    unchanged.found.clear()
    return unchanged.found


def test_it_runs_in_all_tests() -> None:
    assert unchanged.IS_CHECKED


def test_a_change_deep_inside_is_found(changes: list[str]) -> None:
    value = {"metadata": {"annotations": {"a": "b"}}, "spec": [{"x": 1}]}
    check = unchanged.watched(value, "the object")
    check()
    copied_on_top = dict(value)
    copied_on_top["metadata"].pop("annotations")  # type: ignore[attr-defined]
    with pytest.raises(unchanged.ChangedError, match="the object was changed: …"):
        check()
    assert len(changes) == 1
    changes.clear()


def test_a_function_that_changes_its_argument_is_named(changes: list[str]) -> None:
    def breaks(obj: dict[str, Any]) -> dict[str, Any]:
        obj["spec"]["x"] = 2
        return obj

    conversion = Conversion(to_stored=breaks, to_served=lambda obj: {**obj, "more": 1})
    assert conversion.to_served({"spec": {}}) == {"spec": {}, "more": 1}
    with pytest.raises(unchanged.ChangedError, match=r"argument 0 of .*breaks was changed"):
        conversion.to_stored({"spec": {"x": 1}})
    changes.clear()


def test_values_that_orjson_cannot_write_are_compared_too(changes: list[str]) -> None:
    value = {"n": 2**70, "inner": []}
    check = unchanged.watched(value, "it")
    check()
    value["inner"] = [1]
    with pytest.raises(unchanged.ChangedError):
        check()
    changes.clear()


def test_without_the_variable_nothing_is_wrapped() -> None:
    script = (
        "from kvstack.apimachinery.objects import unchanged\n"
        "def f(x): x.append(1)\n"
        "assert unchanged.keeps(0)(f) is f\n"
        "assert unchanged.watched([], 'it')() is None\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != unchanged.VARIABLE}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
