"""Strategic merge patch: its rules, its laws, and what the library answered."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text.go_text import go_plain
from kvstack.apimachinery.objects.text.json_text import equal
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.strategic_merge import apply
from kvstack.apimachinery.schema.types import Type
from tests.apimachinery.schema.recordings import lines

TABLE = load()
TYPES: dict[str, Type] = {
    "Deployment": TABLE.types["io.k8s.api.apps.v1.Deployment"],
    "Pod": TABLE.types["io.k8s.api.core.v1.Pod"],
    "Service": TABLE.types["io.k8s.api.core.v1.Service"],
}
RECORDED = [(each[1], each[2]) for each in lines("library-answers") if each[0] == "smp"]


def patched(obj: dict[str, Any], patch: dict[str, Any], kind: str = "Pod") -> dict[str, Any]:
    return apply(obj, patch, TYPES[kind]).obj


def containers(*names: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name} for name in names]}}


def names_of(obj: dict[str, Any]) -> list[str]:
    return [each["name"] for each in obj["spec"]["containers"]]


def test_the_answers_of_the_library() -> None:
    assert len(RECORDED) > 500
    different: list[object] = []
    for (kind, obj, patch), recorded in RECORDED:
        try:
            found = apply(json.loads(obj), json.loads(patch), TYPES[kind])
        except ApiError as error:
            told = recorded.get("err")
            if told != error.message and error.code != 422:
                different.append((obj, patch, error.message, recorded))
            continue
        if not equal(found.obj, recorded.get("v")) or go_plain(found.rest) != recorded["p"]:
            different.append((obj, patch, found, recorded))
    assert different == []


names = st.lists(st.sampled_from("abcdef"), unique=True, max_size=5)


@given(names, names)
def test_new_items_stand_before_those_that_follow_them(server: list[str], own: list[str]) -> None:
    result = names_of(patched(containers(*server), containers(*own)))
    assert sorted(result) == sorted({*server, *own})
    assert [each for each in result if each in own] == own
    others = [each for each in server if each not in own]
    assert [each for each in result if each not in own] == others


@given(names, names)
def test_a_second_time_changes_nothing(server: list[str], own: list[str]) -> None:
    patch = containers(*own)
    patch["spec"]["$setElementOrder/containers"] = [{"name": name} for name in own]
    before = copy.deepcopy(patch)
    obj = containers(*(server or ["a"]))
    once = patched(obj, patch)
    assert patch == before
    assert patched(once, patch) == once


@given(names, names)
def test_deleted_items_are_gone(server: list[str], gone: list[str]) -> None:
    patch = {"spec": {"containers": [{"$patch": "delete", "name": name} for name in gone]}}
    left = [each for each in server if each not in gone]
    assert names_of(patched(containers(*server), patch)) == left


def test_lists_without_a_strategy_are_replaced() -> None:
    obj = {"spec": {"containers": [{"name": "a", "args": ["x", "y"]}]}}
    patch = {"spec": {"containers": [{"name": "a", "args": ["z"]}]}}
    assert patched(obj, patch)["spec"]["containers"][0]["args"] == ["z"]


def test_lists_of_scalars() -> None:
    obj = {"metadata": {"finalizers": ["a", "b", "c"]}}
    patch: dict[str, Any] = {"metadata": {"finalizers": ["d", "b"]}}
    assert patched(obj, patch) == {"metadata": {"finalizers": ["d", "a", "b", "c"]}}
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "x"]}}
    assert patched(obj, patch) == {"metadata": {"finalizers": ["b", "c"]}}
    patch = {"metadata": {"$setElementOrder/finalizers": ["c", "a"]}}
    assert patched(obj, patch) == {"metadata": {"finalizers": ["b", "c", "a"]}}


def test_objects_can_be_replaced_emptied_and_pruned() -> None:
    obj = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    for patch, strategy in (
        ({"$patch": "replace", "type": "Recreate"}, {"type": "Recreate"}),
        ({"$patch": "delete"}, {}),
        ({"$retainKeys": ["type"], "type": "Recreate"}, {"type": "Recreate"}),
        ({"rollingUpdate": None}, {"type": "RollingUpdate"}),
    ):
        result = patched(obj, {"spec": {"strategy": patch}}, "Deployment")
        assert result == {"spec": {"strategy": strategy}}


def test_new_objects_lose_nulls_and_directives() -> None:
    patch = {
        "metadata": {"labels": {"a": None, "b": "1"}},
        "spec": {"volumes": [{"name": "v", "x": None}, {"name": "w", "$patch": "delete"}]},
    }
    assert patched({}, patch) == {
        "metadata": {"labels": {"b": "1"}},
        "spec": {"volumes": [{"name": "v"}]},
    }


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        ({"spec": {"$retainKeys": ["x"], "hostNetwork": True}}, 400,
         "invalid patch format of retainKeys"),
        ({"spec": {"$deleteFromPrimitiveList": []}}, 400,
         "invalid patch format of primitive list"),
        ({"spec": {"$setElementOrder": []}}, 400, "invalid patch format of setElementOrder list"),
        ({"spec": {"$patch": "x"}}, 500, "unknown patch type: x in map: map[$patch:x]"),
        ({"spec": {"containers": [{"image": "x"}]}}, 500,
         "map: map[image:x] does not contain declared merge key: name"),
        ({"spec": {"containers": [{"$patch": "merge", "name": "a"}]}}, 500,
         "merging lists cannot yet be specified in the patch"),
        ({"spec": {"containers": [None]}}, 500,
         "list element types are not identical: [[map[name:a]] [<nil>]]"),
        ({"metadata": {"labels": {"x": {"y": "z"}}}}, 500,
         "merging an object in json but data type is not struct, instead is: map"),
        ({"spec": {"$setElementOrder/x": []}}, 500,
         'unable to find api field in struct PodSpec for the json field "x"'),
        ({"metadata": {"finalizers": [["a"]]}}, 422,
         "the server rejected our request due to an error in our request"),
        ({"metadata": {"finalizers": [None]}}, 400, "invalid JSON document"),
    ],
)  # fmt: skip
def test_patches_that_are_refused(patch: dict[str, Any], code: int, message: str) -> None:
    obj = {**containers("a"), "metadata": {"labels": {"x": {}}, "finalizers": []}}
    with pytest.raises(ApiError) as caught:
        patched(obj, patch)
    assert (caught.value.code, caught.value.message) == (code, message)


def test_many_items_are_merged_in_time() -> None:
    server = [{"name": f"n{n}"} for n in range(5000)]
    own = [{"name": f"n{n}", "image": "x"} for n in range(0, 10_000, 2)]
    result = patched({"spec": {"containers": server}}, {"spec": {"containers": own}})
    assert len(result["spec"]["containers"]) == 7500
