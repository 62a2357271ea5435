"""Which time of this server stands for a recorded one, in requests that send times back.

Recorded times are equal wherever two writes fell into one second, so one recorded time stands for
several own ones. What a request sends back is taken from the latest earlier answer that had the
recorded time at the same place of the same object, else of any object, else anywhere.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_ENTRY = ("manager", "operation", "apiVersion", "subresource")


class TimePath(NamedTuple):
    """Where a time stands."""

    owners: tuple[str, ...]  # uid and name of the object, as recorded and as far as it tells them
    path: str  # a JSON pointer below the object; an entry of managedFields by what it is known by


class ObjectTimes:
    """The times that the answers of one scenario have told."""

    def __init__(self) -> None:
        self._own: dict[tuple[str, ...], str] = {}

    def look(self, recorded: Any, got: Any) -> None:
        """Note the times of an answer, but for parts that came otherwise than recorded."""
        for place, told, own in _pairs(recorded, got, TimePath((), "")):
            self._own.update(dict.fromkeys(_keys(place, told), own))

    def fill(self, body: Any, chosen: Callable[[str], bool]) -> Any:
        """Return a recorded body with own times; those that requests have chosen stay."""

        def filled(value: Any, path: TimePath) -> Any:
            if isinstance(value, dict):
                inside = _inside(value, path)
                return {key: filled(each, _at(inside, key)) for key, each in value.items()}
            if isinstance(value, list):
                return [filled(each, _item(path, n, each)) for n, each in enumerate(value)]
            if not _is_time(value) or chosen(value):
                return value
            return next((self._own[k] for k in _keys(path, value) if k in self._own), value)

        return filled(body, TimePath((), ""))


def _keys(path: TimePath, recorded: str) -> tuple[tuple[str, ...], ...]:
    """What a time is looked up by, the most exact first."""
    exact = ((recorded, path.path, owner) for owner in path.owners)
    return *exact, (recorded, path.path), (recorded,)


def _pairs(recorded: Any, got: Any, path: TimePath) -> Iterator[tuple[TimePath, str, str]]:
    if isinstance(recorded, dict) and isinstance(got, dict):
        path = _inside(recorded, path)
        for key in recorded.keys() & got.keys():
            yield from _pairs(recorded[key], got[key], _at(path, key))
    elif isinstance(recorded, list) and isinstance(got, list):
        own = {_item(path, number, each): each for number, each in enumerate(got)}
        for number, each in enumerate(recorded):
            below = _item(path, number, each)
            yield from _pairs(each, own.get(below), below)
    elif _is_time(recorded) and _is_time(got):
        yield path, recorded, got


def _inside(value: dict[str, Any], path: TimePath) -> TimePath:
    """Return where the members of an object stand: those of an API object, below itself."""
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        return path
    named = (metadata.get(key) for key in ("uid", "name"))
    owners = tuple(each for each in named if isinstance(each, str))
    return TimePath(owners, "") if owners else path


def _at(path: TimePath, key: str) -> TimePath:
    return TimePath(path.owners, f"{path.path}/{key}")


def _item(path: TimePath, number: int, item: Any) -> TimePath:
    if path.path.endswith("/managedFields") and isinstance(item, dict):
        return _at(path, " ".join(str(item.get(part, "-")) for part in _ENTRY))
    return _at(path, str(number))


def _is_time(value: Any) -> bool:
    return isinstance(value, str) and _TIME.fullmatch(value) is not None
