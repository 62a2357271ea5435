"""Parameters of operations in OpenAPI documents."""

from collections.abc import Iterable
from typing import Any, Final

from kvstack.apimachinery.schema.types import Field, Shape, Type

Parameter = dict[str, Any]

_KNOWN: Final = {
    "allowWatchBookmarks": ("boolean", "Whether a watch may send BOOKMARK events."),
    "continue": ("string", "The token of the page before; the next page begins after it."),
    "dryRun": ("string", "All: go through all stages, but store nothing."),
    "fieldManager": (
        "string",
        "Who makes the change, at most 128 printable characters; required for apply patches.",
    ),
    "fieldSelector": ("string", "Return only objects whose fields match."),
    "fieldValidation": (
        "string",
        "What happens to unknown and duplicate fields: Ignore drops them, Warn also sends a warning"
        " for each (the default), Strict refuses the request.",
    ),
    "force": ("boolean", "Take fields over from other managers; only for apply patches."),
    "gracePeriodSeconds": (
        "integer",
        "Seconds until the object is deleted; 0 deletes at once. Default: the object's own.",
    ),
    "ignoreStoreReadErrorWithClusterBreakingPotential": (
        "boolean",
        "Delete an object that cannot be read from the store, without looking at finalizers or"
        " preconditions. This may break the cluster.",
    ),
    "labelSelector": ("string", "Return only objects whose labels match."),
    "limit": ("integer", "The number of objects on a page; the answer says how to go on."),
    "orphanDependents": ("boolean", "Deprecated; use propagationPolicy."),
    "pretty": ("string", "Whether JSON is indented."),
    "propagationPolicy": (
        "string",
        "What happens to dependents: Orphan, Background or Foreground.",
    ),
    "resourceVersion": ("string", "The state to read, or to watch from."),
    "resourceVersionMatch": ("string", "How resourceVersion is meant: Exact or NotOlderThan."),
    "sendInitialEvents": (
        "boolean",
        "Whether a watch begins with an event for each object there is.",
    ),
    "shardSelector": ("string", "Return only objects of a shard; behind a feature gate."),
    "timeoutSeconds": ("integer", "Seconds until a list is given up, or a watch ends."),
    "watch": ("boolean", "Whether to send changes as they come, instead of a list."),
}

LIST: Final = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "pretty",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
)
WRITE: Final = ("dryRun", "fieldManager", "fieldValidation", "pretty")
PATCH: Final = (*WRITE, "force")
DELETE: Final = (
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "pretty",
    "propagationPolicy",
)
DELETE_COLLECTION: Final = (
    *DELETE,
    *(each for each in LIST if each[-5:] not in {"marks", "watch"}),
)
READ: Final = ("pretty",)

_TYPES: Final = {
    Shape.BOOL: "boolean",
    Shape.INT32: "integer",
    Shape.INT64: "integer",
    Shape.STRING: "string",
}


def query(names: Iterable[str]) -> list[Parameter]:
    """Return known parameters of the query, each once."""
    return [_parameter(name, "query", *_KNOWN[name]) for name in dict.fromkeys(names)]


def options(type_: Type) -> list[Parameter]:
    """Return the parameters of a struct of options, such as PodExecOptions; no times."""
    return [
        _parameter(field.name, "query", _TYPES[shape], "")
        for field in type_.fields.values()
        if not field.inline and (shape := _shape(field)) in _TYPES
    ]


def in_path(name: str, description: str) -> Parameter:
    """Return a parameter of the path."""
    found = _parameter(name, "path", "string", description)
    found["required"] = True
    return dict(sorted(found.items()))


def hoisted(operations: list[list[Parameter]]) -> tuple[list[Parameter], list[list[Parameter]]]:
    """Return the parameters that all operations of a path have, and what each has besides."""
    common = [each for each in operations[0] if all(each in other for other in operations[1:])]
    rest = [[each for each in own if each not in common] for own in operations]
    return _sorted(common), [_sorted(own) for own in rest]


def _sorted(parameters: list[Parameter]) -> list[Parameter]:
    return sorted(parameters, key=lambda each: (each["name"], each["in"]))


def _shape(field: Field) -> Shape:
    element = field.type.element
    is_list = field.type.shape is Shape.LIST and element is not None
    return element.shape if is_list and element is not None else field.type.shape


def _parameter(name: str, where: str, type_: str, description: str) -> Parameter:
    head = {"description": description} if description else {}
    return {**head, "in": where, "name": name, "schema": {"type": type_, "uniqueItems": True}}
