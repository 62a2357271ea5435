"""Pruning of fields that a schema does not know.

    prune({"a": 1, "b": 2}, {"type": "object", "properties": {"a": {"type": "integer"}}})
    → {"a": 1}, in place

Kind, version and metadata stay. Below a schema that preserves unknown fields, only known fields are
pruned further.
"""

from typing import Any, Final

from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import META_FIELDS, Schema

_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"


def prune(
    value: Any,  # noqa: ANN401 — of any schema
    schema: Schema | None,
    *,
    is_resource: bool = False,
    path: str = "",
    dropped: list[str] | None = None,
) -> None:
    """Prune a value in place by a schema; None: an empty one.

    is_resource: whether the value is a whole resource though the schema does not say so. path: of
    the value; dropped: receives the dropped paths.
    """
    walk = _Pruning(dropped)
    walk.prune(value, schema, path, is_resource=is_resource)


class _Pruning:
    """One traversal of a value."""

    def __init__(self, dropped: list[str] | None) -> None:
        self._dropped = dropped

    def prune(
        self,
        value: Any,  # noqa: ANN401
        schema: Schema | None,
        path: str,
        *,
        is_resource: bool = False,
    ) -> None:
        if schema is not None and schema.get(_PRESERVE):
            self._look_below(value, schema, path, is_resource=is_resource)
        elif isinstance(value, dict):
            self._look_below(value, schema or {}, path, is_resource=is_resource, drops=True)
        elif isinstance(value, list):
            items = (schema or {}).get("items")
            for position, item in enumerate(value):
                self.prune(item, items, f"{path}[{position}]")

    def _look_below(
        self,
        value: Any,  # noqa: ANN401
        schema: Schema | None,
        path: str,
        *,
        is_resource: bool = False,
        drops: bool = False,
    ) -> None:
        """Prune the known fields of a value; `drops`: drop unknown ones."""
        if schema is None:
            return
        if isinstance(value, list):
            items = schema.get("items")
            for position, item in enumerate(value):
                self._look_below(item, items, f"{path}[{position}]")
        elif isinstance(value, dict):
            is_embedded = is_resource or schema.get(_EMBEDDED)
            properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
            for name in list(value):
                if is_embedded and name in META_FIELDS:
                    continue
                is_known = name in properties or extra is not None
                if is_known and not isinstance(value[name], (dict, list)):
                    continue
                where = f"{path}.{name}" if path else name
                if name in properties:
                    self.prune(value[name], properties[name], where)
                elif extra is not None:
                    self.prune(value[name], extra if isinstance(extra, dict) else None, where)
                elif drops:
                    del value[name]
                    if self._dropped is not None:
                        self._dropped.append(where)
