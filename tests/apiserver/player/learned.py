"""What a scenario knows so far: which own value stands for which recorded one.

A value that the scenario's own requests chose is `given` and must come back as it is. Any other
volatile value is learned at its first sight and stands for the same own value from then on; two
recorded uids, names, addresses or node ports never stand for one own value.
"""

import json
import re
from typing import Any

from tests.apiserver.player.values import NAME_BASE_MAX, SUFFIX, Part, parts_of, second_of

ONE_TO_ONE = {"uid", "name", "volume", "ip", "port"}
_PREFIXES = (
    re.compile(r'generateName\\?": ?\\?"([^"\\]+)'),
    re.compile(r'generateName: ([^\s"\\]+)'),
)


class Learned:
    """The values of one scenario."""

    def __init__(self) -> None:
        self.own: dict[str, str] = {}  # recorded → own, all kinds but the next two
        self.revisions: dict[str, str] = {}
        self.ports: dict[str, str] = {}
        self._taken: dict[str, str] = {}  # own → recorded, where that must be one to one
        self._given: set[str] = set()
        self._seen: set[str] = set()
        self._prefixes: set[str] = set()
        self._generated: re.Pattern[str] | None = None

    def look_at_request(self, request: dict[str, Any]) -> None:
        """Note what a recorded request chose by itself."""
        text = json.dumps(request, ensure_ascii=False)
        self._given.update(value for value in _values(text) if value not in self._seen)
        self._find_prefixes(text)

    def look_at_answer(self, answer: dict[str, Any]) -> None:
        """Note what the recorded server has told."""
        text = json.dumps(answer, ensure_ascii=False)
        self._seen.update(_values(text))
        self._find_prefixes(text)

    def is_given(self, value: str) -> bool:
        """Tell whether the requests chose this value."""
        return value in self._given

    def has_chosen(self, time: str) -> bool:
        """Tell whether the requests chose this time."""
        return self.is_given(second_of(time))

    @property
    def generated(self) -> re.Pattern[str] | None:
        """What finds names that were made from a generateName of this scenario."""
        return self._generated

    def same(self, part: Part, own: str, news: "News") -> bool:
        """Tell whether an own value may stand for a recorded one; note it as news."""
        kind, recorded = part
        if kind == "rv":
            news.revisions.setdefault(recorded, own)
            return True
        table, noted = (self.ports, news.ports) if kind == "port" else (self.own, news.own)
        if kind in ONE_TO_ONE:
            before = table.get(recorded) or noted.get(recorded)
            if before is not None:
                return before == own
            if (self._taken.get(own) or news.taken.get(own, recorded)) != recorded:
                return False
            news.taken[own] = recorded
        noted.setdefault(recorded, own)
        return True

    def keep(self, news: "News") -> None:
        """Take over what one comparison has learned."""
        self.own = news.own | self.own
        self.revisions = news.revisions | self.revisions
        self.ports |= news.ports
        self._taken |= news.taken

    def _find_prefixes(self, text: str) -> None:
        found = {
            prefix[:NAME_BASE_MAX] for pattern in _PREFIXES for prefix in pattern.findall(text)
        }
        if found <= self._prefixes:
            return
        self._prefixes |= found
        longest_first = sorted(self._prefixes, key=len, reverse=True)
        bases = "|".join(map(re.escape, longest_first))
        self._generated = re.compile(f"(?<![a-z0-9])(?:{bases}){SUFFIX}(?![a-z0-9])")


class News:
    """What one comparison has learned; dropped if its step is repeated."""

    def __init__(self) -> None:
        self.own: dict[str, str] = {}
        self.revisions: dict[str, str] = {}
        self.ports: dict[str, str] = {}
        self.taken: dict[str, str] = {}


def _values(text: str) -> set[str]:
    return {second_of(value) if kind == "time" else value for kind, value in parts_of(text)}
