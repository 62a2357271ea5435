"""Which values of a comparison are shown, and which are hidden as secret.

shown_change(change, "Secret")     → the same change, its values hidden or masked
"""

from typing import Any, Final

from kvstack.clusters.comparison.field_changes import FieldChange
from kvstack.clusters.pack.masking import Masking, is_secret_name

HIDDEN: Final = "(hidden)"
_SECRET: Final = "Secret"
_DATA: Final = (("data",), ("stringData",))


def is_hidden(change: FieldChange, kind: str) -> bool:
    """Return whether the values of a field are hidden entirely."""
    if kind == _SECRET and change.path[:1] in _DATA:
        return True
    return any(is_secret_name(each.strip("[]")) for each in change.path)


def shown_change(change: FieldChange, kind: str) -> FieldChange:
    """Return a change as it may be shown."""
    before, after = change.before, change.after
    if is_hidden(change, kind):
        return change._replace(before=_hidden(before), after=_hidden(after))
    name, masking = change.path[-1] if change.path else "", Masking()
    # With the name of the field: of arguments it says that they are some.
    old, new = (masking.masked({name: each})[name] for each in (before, after))
    return change._replace(before=old, after=new)


def _hidden(value: Any) -> Any:  # noqa: ANN401 - JSON
    return value if value is None or isinstance(value, bool) else HIDDEN
