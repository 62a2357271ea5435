"""JSON patch (RFC 6902), with the liberties and the errors that Kubernetes' clients know.

    patch, findings = parse(b'[{"op":"add","path":"/a/-","value":3}]')
    apply({"a": [1]}, patch)   → {"a": [1, 3]}

The liberties: `replace` of a member that is absent adds it, `test` of an absent member for null
holds, indices below zero count from the end (of the list as it will be, for `add`), an `add`
without a value adds null. A step through null or a scalar is a missing path.

Objects on the way of an operation come out with their members sorted, all others as they were:
refusals quote the patched object. One difference: `test` compares values, where upstream compares
their texts, so that a text written with other escapes is equal here.
"""

from collections.abc import Callable
from typing import Any, Final

import orjson

from kvstack.apimachinery.objects.status import bad_request, too_large
from kvstack.apimachinery.objects.text.go_numbers import NumberError, atoi
from kvstack.apimachinery.objects.text.json_syntax import DEPTH_MAX, JsonError
from kvstack.apimachinery.objects.text.json_text import (
    FINDINGS_MAX,
    Json,
    RepeatedMembers,
    copied,
    duplicate_field,
    equal,
    has_repeated,
    is_too_deep,
    parse_repeated,
    sort_members,
    type_word,
    unknown_field,
    write,
)
from kvstack.apimachinery.objects.text.json_text import parse as parse_json

Operation = dict[str, Json]
Patch = list[Operation | None]
Container = dict[str, Any] | list[Any]

OPERATIONS_MAX: Final = 10_000
COPIED_BYTES_MAX: Final = 3 * 1024 * 1024

_TEXT_MEMBERS: Final = ("op", "path", "from")
_MEMBERS: Final = frozenset((*_TEXT_MEMBERS, "value"))


class JsonPatchError(ValueError):
    """A patch that does not apply; the message is upstream's, though few of its clients see it."""


def parse(data: bytes, *, is_strict: bool = True) -> tuple[Patch, list[str]]:
    """Return the operations of a text, and what strict reading finds; raises ApiError.

    is_strict: whether unknown and repeated members are reported, and all members
    must be of the right type.
    """
    prefix = "error decoding patch: " if is_strict else ""
    try:
        value = parse_json(data)
    except JsonError as error:
        raise bad_request(f"{prefix}{error}") from None
    names = ("[]handlers.jsonPatchOp", "handlers.jsonPatchOp")
    patch = _checked(value, prefix, names if is_strict else _LENIENT_NAMES)
    findings: list[str] = []
    if is_strict:
        _check_texts(patch, prefix)
        findings = _findings(parse_repeated(data) if has_repeated(data, value) else patch)
    if len(patch) > OPERATIONS_MAX:
        raise too_large(
            f"The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {len(patch)}"
        )
    return patch, findings


def apply(document: Json, patch: Patch) -> Json:
    """Return the patched document; the argument is unchanged; raises JsonPatchError."""
    application = _Application(copied(document))
    try:
        for operation in patch:
            application.apply(operation or {})
    except orjson.JSONEncodeError:
        raise _too_deep() from None
    return application.result()


_LENIENT_NAMES: Final = ("jsonpatch.Patch", "jsonpatch.Operation")


def _checked(value: Json, prefix: str, names: tuple[str, str]) -> Patch:
    """Return the value if it is a list of objects."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise _wrong_type(prefix, value, f"value of type {names[0]}")
    for each in value:
        if each is not None and not isinstance(each, dict):
            raise _wrong_type(prefix, each, f"value of type {names[1]}")
    return value


def _check_texts(patch: Patch, prefix: str) -> None:
    for operation in patch:
        for name, value in (operation or {}).items():
            if name in _TEXT_MEMBERS and not isinstance(value, (str, type(None))):
                raise _wrong_type(prefix, value, f"struct field jsonPatchOp.{name} of type string")


def _wrong_type(prefix: str, value: Json, position: str) -> Exception:
    return bad_request(f"{prefix}json: cannot unmarshal {type_word(value)} into Go {position}")


def _findings(patch: Patch) -> list[str]:
    """Return the errors for unknown and repeated members of an operation."""
    findings: dict[str, None] = {}
    for position, operation in enumerate(patch):
        seen: set[str] = set()
        if isinstance(operation, RepeatedMembers):
            names = [name for name, _ in operation.members]
        else:
            names = list(operation or ())
        for name in names:
            if name not in _MEMBERS:
                findings[f"json patch {unknown_field(f'[{position}].{name}')}"] = None
            elif name in seen:
                findings[f"json patch {duplicate_field(f'[{position}].{name}')}"] = None
            seen.add(name)
    return list(findings)[:FINDINGS_MAX]


class _Application:
    """A document that operations are applied to, one after another."""

    def __init__(self, document: Json) -> None:
        self._root: Container = document
        self._visited: dict[int, Container] = {}
        self._copied_bytes = 0

    def apply(self, operation: Operation) -> None:
        kind = operation.get("op")
        action = _ACTIONS.get(kind) if isinstance(kind, str) else None
        if action is None:
            raise JsonPatchError(f"Unexpected kind: {kind if isinstance(kind, str) else 'unknown'}")
        action(self, operation)

    def result(self) -> Json:
        if is_too_deep(self._root):
            raise _too_deep()
        for container in (self._root, *self._visited.values()):
            if isinstance(container, dict):
                sort_members(container)
        return self._root

    def add(self, operation: Operation) -> None:
        path = _path(operation, "add operation failed to decode path", has_reason=False)
        container, name = self._find(
            path, f'add operation does not apply: doc is missing path: "{path}": missing value'
        )
        _insert(container, name, copied(operation.get("value")), f"error in add for path: '{path}'")

    def remove(self, operation: Operation) -> None:
        path = _path(operation, "remove operation failed to decode path", has_reason=False)
        container, name = self._find(
            path, f'remove operation does not apply: doc is missing path: "{path}": missing value'
        )
        _remove(container, name, f"error in remove for path: '{path}'")

    def replace(self, operation: Operation) -> None:
        path = _path(operation, "replace operation failed to decode path")
        if path == "":
            self._replace_root(operation.get("value"))
            return
        missing = "replace operation does not apply: doc is missing"
        container, name = self._find(path, f"{missing} path: {path}: missing value")
        value = copied(operation.get("value"))
        if isinstance(container, dict):
            container[name] = value
            return
        try:
            position = _position(container, name)
        except JsonPatchError:
            raise JsonPatchError(f"{missing} key: {path}: missing value") from None
        container[position] = value

    def move(self, operation: Operation) -> None:
        source = _from(operation, "move")
        container, name = self._find(
            source, f"move operation does not apply: doc is missing from path: {source}:"
            " missing value",
        )  # fmt: skip
        error = f"error in move for path: '{name}'"
        value = _get(container, name, error)
        _remove(container, name, error)
        path = _path(operation, "move operation failed to decode path")
        container, name = self._find(path, _missing_destination("move", path))
        _insert(container, name, value, f"error in move for path: '{path}'")

    def copy(self, operation: Operation) -> None:
        source = _from(operation, "copy")
        container, name = self._find(
            source, f"copy operation does not apply: doc is missing from path: {source}:"
            " missing value",
        )  # fmt: skip
        value = _get(container, name, f"error in copy for from: '{source}'")
        path = _path(operation, "copy operation failed to decode path", has_reason=False)
        container, name = self._find(path, _missing_destination("copy", path))
        if value is not None:
            self._count_copied(value)
        _insert(container, name, copied(value), "error while adding value during copy")

    def test(self, operation: Operation) -> None:
        path = _path(operation, "test operation failed to decode path")
        value: Json = self._root
        if path != "":
            container, name = self._find(
                path, f"test operation does not apply: is missing path: {path}: missing value"
            )
            value = _get(container, name, f"error in test for path: '{path}'")
        if not equal(value, operation.get("value")):
            raise JsonPatchError(f"testing value {path} failed: test failed")
        self._visit_all(value)

    def _replace_root(self, value: Json) -> None:
        if not isinstance(value, (dict, list)):
            raise JsonPatchError("replace operation value must be object or array: %!w(<nil>)")
        self._root = copied(value)

    def _find(self, path: str, missing: str) -> tuple[Container, str]:
        """Return what the last step of a path goes into, and that step; raises JsonPatchError."""
        steps = [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")]
        if len(steps) < 2:
            raise JsonPatchError(missing)
        container = self._root
        for step in steps[1:-1]:
            try:
                value = _get(container, step, "")
            except JsonPatchError:
                raise JsonPatchError(missing) from None
            if not isinstance(value, (dict, list)):
                raise JsonPatchError(missing)
            container = value
            self._visited[id(container)] = container
        return container, steps[-1]

    def _count_copied(self, value: Json) -> None:
        self._copied_bytes += len(write(value))
        if self._copied_bytes > COPIED_BYTES_MAX:
            raise JsonPatchError(
                "Unable to complete the copy, the accumulated size increase of copy is"
                f" {self._copied_bytes}, exceeding the limit {COPIED_BYTES_MAX}"
            )

    def _visit_all(self, value: Json) -> None:
        waiting: list[Json] = [value]
        while waiting:
            each = waiting.pop()
            if isinstance(each, (dict, list)):
                self._visited[id(each)] = each
                waiting.extend(each.values() if isinstance(each, dict) else each)


_ACTIONS: Final[dict[str, Callable[[_Application, Operation], None]]] = {
    "add": _Application.add,
    "remove": _Application.remove,
    "replace": _Application.replace,
    "move": _Application.move,
    "copy": _Application.copy,
    "test": _Application.test,
}
_NO_PATH: Final = "operation missing path field: missing value"
_NO_TEXT: Final = "json: cannot unmarshal {} into Go value of type string"


def _too_deep() -> JsonPatchError:
    return JsonPatchError(f"exceeded max depth of {DEPTH_MAX}")


def _path(operation: Operation, failure: str, *, has_reason: bool = True) -> str:
    """Return the path of an operation; has_reason: the error has the reason why there is none."""
    path = operation.get("path")
    if isinstance(path, str):
        return path
    reason = _NO_PATH if path is None else _NO_TEXT.format(type_word(path))
    raise JsonPatchError(f"{failure}: {reason if has_reason else 'missing value'}")


def _from(operation: Operation, kind: str) -> str:
    source = operation.get("from")
    if isinstance(source, str):
        return source
    missing = "operation, missing from field: missing value"
    reason = missing if source is None else _NO_TEXT.format(type_word(source))
    raise JsonPatchError(f"{kind} operation failed to decode from: {reason}")


def _missing_destination(kind: str, path: str) -> str:
    what = f"{kind} operation does not apply: doc is missing destination path"
    return f"{what}: {path}: missing value"


def _get(container: Container, name: str, error: str) -> Json:
    """Return a member or an item; an absent member is null."""
    if isinstance(container, dict):
        return container.get(name)
    try:
        return container[_position(container, name)]
    except JsonPatchError as problem:
        raise JsonPatchError(f"{error}: {problem}") from None


def _insert(container: Container, name: str, value: Json, error: str) -> None:
    if isinstance(container, dict):
        container[name] = value
    elif name == "-":
        container.append(value)
    else:
        try:
            position = atoi(name)
        except NumberError as problem:
            text = f"value was not a proper array index: '{name}': {problem}"
            raise JsonPatchError(f"{error}: {text}") from None
        size = len(container) + 1
        if not -size <= position < size:
            raise JsonPatchError(f"{error}: {_bad_index(position)}")
        container.insert(position % size, value)


def _remove(container: Container, name: str, error: str) -> None:
    if isinstance(container, dict):
        if name not in container:
            text = f"Unable to remove nonexistent key: {name}: missing value"
            raise JsonPatchError(f"{error}: {text}")
        del container[name]
        return
    try:
        del container[_position(container, name)]
    except JsonPatchError as problem:
        raise JsonPatchError(f"{error}: {problem}") from None


def _position(items: list[Any], name: str) -> int:
    """Return the index that a step names in a list, from its end if it is below zero."""
    try:
        position = atoi(name)
    except NumberError as error:
        raise JsonPatchError(str(error)) from None
    if not -len(items) <= position < len(items):
        raise JsonPatchError(_bad_index(position))
    return position % len(items)


def _bad_index(position: int) -> str:
    return f"Unable to access invalid index: {position}: invalid index referenced"
