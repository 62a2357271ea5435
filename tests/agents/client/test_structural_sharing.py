"""Parts that objects have in common are held once, and objects stay what they are."""

import sys
from copy import deepcopy
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstack.agents.client.structural_sharing import (
    SHALLOW,
    compact,
    share,
    share_metadata,
    share_status,
)

KEYS = st.sampled_from("abc")
VALUES = st.recursive(
    st.sampled_from(("", "x", "y")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=3)


@settings(max_examples=100)
@given(OBJECTS, OBJECTS)
def test_an_object_stays_equal_to_itself(obj: dict[str, Any], like: dict[str, Any]) -> None:
    before, other = deepcopy(obj), deepcopy(like)
    share(obj, like)
    assert obj == before
    assert like == other


def test_equal_parts_become_the_same() -> None:
    like = {"spec": {"containers": [{"name": "a", "env": [1]}, {"name": "b"}], "node": "n1"}}
    obj = {"spec": {"containers": [{"name": "c", "env": [1]}, {"name": "b"}], "node": "n2"}}
    share(obj, like)
    ours, theirs = obj["spec"]["containers"], like["spec"]["containers"]
    assert ours[0]["env"] is theirs[0]["env"]  # type: ignore[index]
    assert ours[1] is theirs[1]
    assert ours[0] == {"name": "c", "env": [1]}
    assert obj["spec"]["node"] == "n2"


def test_a_status_that_changed_is_shared_with_that_of_another() -> None:
    ready = {"type": "Ready", "since": "12:00"}
    like: dict[str, Any] = {
        "spec": {"node": "n1"},
        "status": {"conditions": [dict(ready)], "ip": "1"},
    }
    old = {"spec": {"node": "n2"}, "status": {"conditions": [], "ip": ""}}
    obj: dict[str, Any] = {
        "spec": {"node": "n2"},
        "status": {"conditions": [dict(ready)], "ip": "2"},
    }
    share(obj, old, SHALLOW)
    share_status(obj, old, like)
    assert obj == {"spec": {"node": "n2"}, "status": {"conditions": [ready], "ip": "2"}}
    assert obj["spec"] is old["spec"]
    assert obj["status"]["conditions"] is like["status"]["conditions"]


def test_metadata_are_shared_and_the_rest_is_not() -> None:
    objects: list[dict[str, Any]] = [
        {
            "kind": "Widget",
            "apiVersion": "v1",
            "metadata": {"name": name, "labels": {"app": "web"}, "namespace": "-".join("ab")},
            "spec": {"free": form},
        }
        for name, form in (("a", 1), ("b", True))
    ]
    like, obj = objects
    before = deepcopy(obj)
    share_metadata(obj, like)
    assert obj == before
    assert type(obj["spec"]["free"]) is bool
    assert obj["metadata"]["labels"] is like["metadata"]["labels"]
    assert obj["metadata"]["namespace"] is like["metadata"]["namespace"]


def test_an_object_that_was_parsed_becomes_smaller_and_stays_the_same() -> None:
    spec = {f"member{number}": number for number in range(13)}
    obj = orjson.loads(orjson.dumps({"spec": spec, "status": {}}))
    size = sys.getsizeof(obj["spec"])
    compact(obj)
    assert obj == {"spec": spec, "status": {}}
    assert list(obj["spec"]) == list(spec)
    assert sys.getsizeof(obj["spec"]) <= size
