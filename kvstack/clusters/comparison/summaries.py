"""The difference of an object in few words: the most important first.

image 1.4 → 1.5, replicas 2 → 5        a Deployment
Running → Failed, Ready True → False   a pod
data.key, and 3 more fields            else
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kvstack.clusters.comparison.comparison import Change, Difference
from kvstack.clusters.comparison.field_changes import FieldChange
from kvstack.clusters.comparison.hiding import HIDDEN, shown_change

NAMED_MAX: Final = 4
"""Fields that are named; of more, how many there are."""
VALUE_CHARS: Final = 40
_ARROW: Final = "→"
_REPLICAS: Final = ("spec", "replicas")
_PHASE: Final = ("status", "phase")


def summary(difference: Difference) -> str:
    """Return what is different of an object."""
    if difference.change in (Change.ADDED, Change.REMOVED):
        return ""
    fields = [shown_change(each, difference.kind) for each in difference.fields]
    parts = ["replaced by another one"] if difference.change is Change.REPLACED else []
    shown_numbers: set[int] = set()
    for part, numbers in (
        *_images(fields),
        *_of_path(fields, _REPLICAS, "replicas "),
        *_of_path(fields, _PHASE, ""),
        *_conditions(fields),
    ):
        parts.append(part)
        shown_numbers.update(numbers)
    rest = [each for number, each in enumerate(fields) if number not in shown_numbers]
    rest.sort(key=lambda each: each.path[:1] == ("status",))
    room = max(NAMED_MAX - len(parts), 1)
    parts += [_describe(each) for each in rest[:room]]
    if len(rest) > room:
        parts.append(f"and {len(rest) - room} more")
    return ", ".join(parts)


def _images(fields: Sequence[FieldChange]) -> Iterator[tuple[str, list[int]]]:
    """Yield the images that changed; containers with the same change are one."""
    found: dict[tuple[str, str], list[int]] = {}
    for number, each in enumerate(fields):
        is_image = each.path[-1:] == ("image",) and each.path[0] == "spec"
        if is_image and isinstance(each.before, str) and isinstance(each.after, str):
            found.setdefault((each.before, each.after), []).append(number)
    for (before, after), numbers in found.items():
        old, new = _without_common(before, after)
        yield f"image {old} {_ARROW} {new}", numbers


def _without_common(before: str, after: str) -> tuple[str, str]:
    """Return two images without the name they share: only their tags."""
    one, other = before.rpartition(":"), after.rpartition(":")
    is_tag = one[1] and other[1] and "/" not in one[2] + other[2]
    return (one[2], other[2]) if is_tag and one[0] == other[0] else (before, after)


def _of_path(
    fields: Sequence[FieldChange], path: tuple[str, ...], word: str
) -> Iterator[tuple[str, list[int]]]:
    for number, each in enumerate(fields):
        if each.path == path:
            yield f"{word}{_short(each.before)} {_ARROW} {_short(each.after)}", [number]


def _conditions(fields: Sequence[FieldChange]) -> Iterator[tuple[str, list[int]]]:
    """Yield the conditions whose status changed, with the reason of the new one."""
    by_type: dict[str, dict[str, tuple[int, FieldChange]]] = {}
    for number, each in enumerate(fields):
        if each.path[:2] == ("status", "conditions") and len(each.path) in (3, 4):
            rest = each.path[3] if len(each.path) == 4 else ""
            by_type.setdefault(each.path[2].strip("[]"), {})[rest] = (number, each)
    for type_, changes in by_type.items():
        numbers = [number for number, _ in changes.values()]
        if "" in changes:
            _, whole = changes[""]
            old, new = (_status(each) for each in (whole.before, whole.after))
        elif "status" in changes:
            old, new = changes["status"][1].before, changes["status"][1].after
        else:
            continue
        reason = changes["reason"][1].after if "reason" in changes else ""
        why = f" ({reason})" if reason else ""
        yield f"{type_} {_short(old)} {_ARROW} {_short(new)}{why}", numbers


def _status(condition: object) -> object:
    return condition.get("status") if isinstance(condition, dict) else None


def _describe(change: FieldChange) -> str:
    name = change.text
    if change.before is None:
        new = "is new" if change.after == HIDDEN else f"{_ARROW} {_short(change.after)}"
        return f"{name} {new}"
    if change.after is None:
        return f"{name} was removed"
    if change.before == change.after:  # neither is shown
        return f"{name} differs"
    return f"{name} {_short(change.before)} {_ARROW} {_short(change.after)}"


def _short(value: Any) -> str:  # noqa: ANN401 - JSON
    """Return a value in a few characters."""
    if value is None:
        return "none"
    if isinstance(value, dict):
        return f"{{{len(value)} fields}}" if value else "{}"
    if isinstance(value, list):
        if all(isinstance(each, (str, int)) for each in value):
            return _cut(f"[{' '.join(map(str, value))}]")
        return f"[{len(value)} items]"
    if isinstance(value, bool):
        return str(value).lower()
    return _cut(str(value)) or '""'


def _cut(text: str) -> str:
    line = text.replace("\n", "\\n")
    return line if len(line) <= VALUE_CHARS else f"{line[: VALUE_CHARS - 1]}…"
