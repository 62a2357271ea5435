"""The deepest values that may be read pass everywhere, even below a tall stack."""

from collections.abc import Callable
from typing import Any

import pytest

from kvstack.apimachinery.objects import json_patch, merge_patch
from kvstack.apimachinery.objects.text import json_text, yaml_text
from kvstack.apimachinery.objects.text.go_text import go_plain, go_value
from kvstack.apimachinery.objects.text.json_syntax import DEPTH_MAX
from kvstack.apimachinery.schema import strategic_merge
from kvstack.apimachinery.schema.load import load

FRAMES_BELOW = 200
POD = load().types["io.k8s.api.core.v1.Pod"]


def nested(make: Callable[[Any], Any]) -> Any:
    value: Any = make(1)
    for _ in range(DEPTH_MAX - 2):
        value = make(value)
    return {"x": value}


DEEPEST = [nested(lambda value: {"x": value}), nested(lambda value: [value])]


def below(frames: int, operation: Callable[[], object]) -> object:
    return operation() if frames == 0 else below(frames - 1, operation)


@pytest.mark.parametrize("value", DEEPEST, ids=["objects", "lists"])
@pytest.mark.parametrize(
    "operation",
    [
        lambda value: yaml_text.parse(json_text.write(value)),
        lambda value: yaml_text.parse(yaml_text.write(value)),
        lambda value: json_text.repeated_fields(json_text.parse_repeated(json_text.write(value))),
        lambda value: json_text.parse(json_text.write(value)[:-1] + b',"y":"\xff"}'),
        lambda value: merge_patch.apply({}, value),
        lambda value: merge_patch.apply(value, value),
        lambda value: json_patch.apply(value, [{"op": "test", "path": "", "value": value}]),
        lambda value: json_patch.apply({}, [{"op": "add", "path": "/x", "value": value["x"]}]),
        lambda value: strategic_merge.apply({}, value, POD),
        go_plain,
        go_value,
    ],
    ids=[
        "json as yaml", "yaml", "repeated", "read again", "new by merge", "merge", "test", "add",
        "strategic", "plain", "value",
    ],
)  # fmt: skip
def test_the_deepest_values(operation: Callable[[Any], object], value: Any) -> None:
    below(FRAMES_BELOW, lambda: operation(value))
