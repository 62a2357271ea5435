"""JSON patch against a naive model, and its texts."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects import json_patch
from kvstack.apimachinery.objects.json_patch import JsonPatchError, Patch
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text.json_text import equal, is_too_deep

leaves = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["x", "y"])
values = st.recursive(
    leaves,
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.sampled_from("ab/~"), children)
    ),
    max_leaves=6,
)
documents = st.dictionaries(st.sampled_from("abc"), values, min_size=1)
steps = st.sampled_from(["a", "b", "c", "~0", "~1", "0", "1", "-1", "-", "7"])
paths = st.lists(steps, min_size=1, max_size=3).map(lambda parts: "".join(f"/{p}" for p in parts))
operations = st.one_of(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "replace", "test"]), "path": paths, "value": values}
    ),
    st.fixed_dictionaries({"op": st.just("remove"), "path": paths}),
    st.fixed_dictionaries({"op": st.sampled_from(["move", "copy"]), "path": paths, "from": paths}),
)


class ModelError(Exception):
    pass


def model(document: Any, patch: list[dict[str, Any]]) -> Any:
    """Apply a patch naively."""
    document = copy.deepcopy(document)
    for operation in patch:
        kind = operation["op"]
        if kind in {"move", "copy"}:
            value = copy.deepcopy(model_get(document, operation["from"]))
            if kind == "move":
                model_remove(document, operation["from"])
            model_add(document, operation["path"], value)
        elif kind == "remove":
            model_remove(document, operation["path"])
        elif kind == "test":
            if not equal(model_get(document, operation["path"]), operation["value"]):
                raise ModelError
        elif kind == "replace":
            holder, name = model_find(document, operation["path"])
            if isinstance(holder, list):
                holder[model_index(holder, name, 0)] = copy.deepcopy(operation["value"])
            else:
                holder[name] = copy.deepcopy(operation["value"])
        else:
            model_add(document, operation["path"], copy.deepcopy(operation["value"]))
    return document


def model_find(document: Any, path: str) -> tuple[Any, str]:
    parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    for part in parts[:-1]:
        document = model_item(document, part)
        if not isinstance(document, (dict, list)):
            raise ModelError
    return document, parts[-1]


def model_item(holder: Any, name: str) -> Any:
    return holder[model_index(holder, name, 0)] if isinstance(holder, list) else holder.get(name)


def model_index(holder: list[Any], name: str, extra: int) -> int:
    try:
        index = int(name)
    except ValueError:
        raise ModelError from None
    size = len(holder) + extra
    if not -size <= index < size:
        raise ModelError
    return index % size


def model_get(document: Any, path: str) -> Any:
    return model_item(*model_find(document, path))


def model_remove(document: Any, path: str) -> None:
    holder, name = model_find(document, path)
    if isinstance(holder, list):
        del holder[model_index(holder, name, 0)]
    elif name in holder:
        del holder[name]
    else:
        raise ModelError


def model_add(document: Any, path: str, value: Any) -> None:
    holder, name = model_find(document, path)
    if isinstance(holder, dict):
        holder[name] = value
    elif name == "-":
        holder.append(value)
    else:
        holder.insert(model_index(holder, name, 1), value)


@given(documents, st.lists(operations, max_size=4))
def test_a_patch_does_what_the_model_does(document: dict[str, Any], patch: list[Any]) -> None:
    before = copy.deepcopy((document, patch))
    try:
        expected = model(document, patch)
    except ModelError:
        with pytest.raises(JsonPatchError):
            json_patch.apply(document, patch)
    else:
        assert equal(json_patch.apply(document, patch), expected)
    assert (document, patch) == before


def test_the_result_shares_nothing_with_the_patch() -> None:
    patch: Patch = [{"op": "add", "path": "/a", "value": {"b": []}}]
    first = json_patch.apply({}, patch)
    first["a"]["b"].append(1)
    assert json_patch.apply({}, patch) == {"a": {"b": []}}


def test_objects_on_the_way_are_sorted() -> None:
    document = {"b": {"z": 1, "y": {"q": 1, "p": 2}}, "a": {"d": 1, "c": 2}}
    found = json_patch.apply(document, [{"op": "add", "path": "/b/x", "value": 1}])
    assert json.dumps(found) == json.dumps(
        {"a": {"d": 1, "c": 2}, "b": {"x": 1, "y": {"q": 1, "p": 2}, "z": 1}}
    )


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ({"op": "bad"}, "Unexpected kind: bad"),
        ({"path": "/a"}, "Unexpected kind: unknown"),
        ({"op": "remove", "path": "/x"},
         "error in remove for path: '/x': Unable to remove nonexistent key: x: missing value"),
        ({"op": "add", "path": "/x/y", "value": 1},
         'add operation does not apply: doc is missing path: "/x/y": missing value'),
        ({"op": "replace", "path": "/l/5", "value": 1},
         "replace operation does not apply: doc is missing key: /l/5: missing value"),
        ({"op": "test", "path": "/a", "value": 2}, "testing value /a failed: test failed"),
        ({"op": "add", "path": "/l/9", "value": 2}, "error in add for path: '/l/9': Unable to"
         " access invalid index: 9: invalid index referenced"),
    ],
)  # fmt: skip
def test_what_is_said_of_patches_that_do_not_apply(operation: dict[str, Any], message: str) -> None:
    with pytest.raises(JsonPatchError) as caught:
        json_patch.apply({"a": 1, "l": [1]}, [operation])
    assert str(caught.value) == message


def test_the_liberties() -> None:
    patch: Patch = [
        {"op": "replace", "path": "/new", "value": 1},
        {"op": "test", "path": "/absent", "value": None},
        {"op": "add", "path": "/l/-1", "value": 3},
        {"op": "remove", "path": "/l/-3"},
        {"op": "add", "path": "/n"},
    ]
    assert json_patch.apply({"l": [1, 2]}, patch) == {"l": [2, 3], "n": None, "new": 1}


def test_copies_are_limited() -> None:
    document = {"a": "x" * 100_000}
    patch: Patch = [{"op": "copy", "from": "/a", "path": f"/b{n}"} for n in range(40)]
    with pytest.raises(JsonPatchError, match="the accumulated size increase of copy is"):
        json_patch.apply(document, patch)


@pytest.mark.parametrize("kind", ["copy", "move"])
def test_depth_is_limited(kind: str) -> None:
    nested: dict[str, Any] = {}
    for _ in range(150):
        nested = {"a": nested}
    document = {"x": nested, "y": copy.deepcopy(nested)}
    patch: Patch = [{"op": kind, "from": "/x", "path": "/y" + "/a" * 100 + "/b"}]
    with pytest.raises(JsonPatchError, match="exceeded max depth"):
        json_patch.apply(document, patch)
    assert not is_too_deep(document)


@pytest.mark.parametrize(
    ("text", "is_strict", "code", "message"),
    [
        ("5", True, 400, "error decoding patch: json: cannot unmarshal number into Go value of type"
         " []handlers.jsonPatchOp"),
        ("{}", False, 400, "json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
        ("[1]", False, 400,
         "json: cannot unmarshal number into Go value of type jsonpatch.Operation"),
        ('[{"op":1}]', True, 400, "error decoding patch: json: cannot unmarshal number into Go"
         " struct field jsonPatchOp.op of type string"),
        ("[", True, 400, "error decoding patch: unexpected end of JSON input"),
        (f"[{','.join(['{}'] * 10_001)}]", True, 413, "Request entity too large: The allowed"
         " maximum operations in a JSON patch is 10000, got 10001"),
    ],
    ids=["number", "object", "item", "member", "truncated", "too many"],
)  # fmt: skip
def test_texts_that_are_no_patches(
    text: str,
    is_strict: bool,  # noqa: FBT001
    code: int,
    message: str,
) -> None:
    with pytest.raises(ApiError) as caught:
        json_patch.parse(text.encode(), is_strict=is_strict)
    assert (caught.value.code, str(caught.value)) == (code, message)


def test_findings() -> None:
    patch, found = json_patch.parse(b'[{"op":"test","op":"add","bogus":1,"path":"/a"},null]')
    assert patch[1] is None
    assert found == [
        'json patch duplicate field "[0].op"',
        'json patch unknown field "[0].bogus"',
    ]
    assert json_patch.parse(b'[{"bogus":1}]', is_strict=False)[1] == []
    assert json_patch.parse(b"null") == ([], [])
