"""All functions: by name how they are declared, by overload what they do."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kvstack.cel.checker.functions import Functions, Overload, merged
from kvstack.cel.library import (
    authorizers,
    conversions,
    formats,
    lists,
    networks,
    operators,
    quantities,
    semantic_versions,
    strings,
    urls,
)

_MODULES: Final = (
    strings,
    lists,
    conversions,
    urls,
    authorizers,
    quantities,
    networks,
    formats,
    semantic_versions,
)
ALL: Final[Functions] = merged(
    operators.FUNCTIONS,
    *(each.FUNCTIONS for each in _MODULES),
    lists.INCLUDES,
    lists.OPTIONALS,
)
"""The functions that stored expressions may use."""
COMPATIBLE: Final[Functions] = {
    name: overloads
    for name, overloads in ALL.items()
    if name not in lists.INCLUDES and not name.startswith("jsonpatch.")
}
"""The functions for new expressions: those of an API server one minor version older, too."""
WITHOUT_PATCHES: Final[Functions] = {
    name: overloads for name, overloads in ALL.items() if not name.startswith("jsonpatch.")
}
PATCHES: Final[Functions] = {"jsonpatch.escapeKey": ALL["jsonpatch.escapeKey"]}
"""The functions for expressions that make patches only."""
OVERLOADS: Final[Mapping[str, Overload]] = {
    overload.identifier: overload for overloads in ALL.values() for overload in overloads
}
IMPLEMENTATIONS: Final[Mapping[str, Callable[..., Any]]] = {
    identifier: function
    for module in _MODULES
    for identifier, function in module.IMPLEMENTATIONS.items()
}
