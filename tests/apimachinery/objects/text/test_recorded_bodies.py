"""Bodies that a real server read or refused, and what it wrote as YAML."""

import pytest

from kvstack.apimachinery.objects.text import json_text, yaml_text
from tests.apimachinery.schema.recordings import lines

BODIES = list(lines("bodies"))
ANSWERS = list(lines("yaml-answers"))


TOLD_OTHERWISE = {
    "meta-duplicates/13": "refused for an unknown field before keys are looked at",
    "meta-bodies-yaml/26": "the key is told of in a warning",
    "meta-bodies-json/42": "a number too large for a float is refused later, by its type",
    "crds-numbers/10": "the same, of a custom resource",
}


def read(body: dict[str, str]) -> str:
    """Return what strict reading says of a body; raises ValueError."""
    data = body["text"].encode()
    if body["type"] == "yaml":
        return yaml_text.parse(data).repeated
    json_text.parse(data)
    return ""


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body["name"])
def test_a_body_is_read_or_refused(body: dict[str, str]) -> None:
    try:
        found = read(body)
    except ValueError as error:
        found = str(error)
    assert (found == body["error"]) is (body["name"] not in TOLD_OTHERWISE)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer["name"])
def test_yaml_is_written_byte_by_byte(answer: dict[str, str]) -> None:
    value = yaml_text.parse(answer["text"].encode()).value
    assert yaml_text.write(value).decode() == answer["text"]
