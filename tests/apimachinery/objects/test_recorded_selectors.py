"""Selectors that a real server was asked with, and what it said of those it refused."""

import pytest

from kvstack.apimachinery.objects import fields, labels
from tests.apimachinery.schema.recordings import lines

STEPS = list(lines("selectors"))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step['kind']}:{step['text']}"[:60])
def test_the_answer_is_the_same(step: dict[str, str]) -> None:
    parse = labels.parse if step["kind"] == "label" else fields.parse
    if not step["message"]:
        parse(step["text"])
        return
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole text is compared
        parse(step["text"])
    assert str(caught.value) == step["message"]
