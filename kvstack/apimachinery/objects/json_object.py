"""The type of API objects: plain dicts, whose form the schema of their kind gives and no class."""

from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
"""A JSON object: an API object, or a part of one."""
