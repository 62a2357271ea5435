"""Puts what the server under test gave into a recorded request, in place of what was recorded.

A step says in `uses` where a value of its request came from: [{value, step, at}], `at` a JSON
pointer into the answer of an earlier step. Beyond that, everything learned is put in, as whole
words; a resourceVersion only where it is one. Times are put in before that (object_times.py): a
recorded one may stand for several own ones.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.apiserver.player.learned import Learned

_REVISION = re.compile(r'(resourceVersion(?:=|\\?"?: ?\\?"))(\d+)(\b)')
PORT_KEYS = {"nodePort", "healthCheckNodePort"}


def at(document: Any, pointer: str) -> Any:
    """Return what a JSON pointer names; KeyError, IndexError or TypeError if there is nothing."""
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        document = document[int(key)] if isinstance(document, list) else document[key]
    return document


class Filler:
    """Fills one request."""

    def __init__(
        self,
        learned: Learned,
        uses: Sequence[Mapping[str, Any]],
        answers: Sequence[Mapping[str, Any]],
    ) -> None:
        self._learned = learned
        self._exact: dict[Any, Any] = {}
        for use in uses:
            try:
                self._exact[use["value"]] = at(answers[use["step"]], use["at"])
            except (KeyError, IndexError, TypeError):
                continue  # the earlier answer was another: that is told there
        self._words = learned.own | {str(k): str(v) for k, v in self._exact.items()}
        self._pattern: re.Pattern[str] | None = None
        if self._words:
            longest_first = sorted(self._words, key=len, reverse=True)
            words = "|".join(map(re.escape, longest_first))
            self._pattern = re.compile(rf"(?<![\w-])(?:{words})(?![\w-])")

    def text(self, text: str) -> str:
        """Fill a path, a header or a body of text."""
        if self._pattern is not None:
            text = self._pattern.sub(lambda match: self._words[match[0]], text)
        if self._exact:
            return text
        revisions = self._learned.revisions
        return _REVISION.sub(
            lambda match: match[1] + revisions.get(match[2], match[2]) + match[3], text
        )

    def json(self, value: Any, key: str = "") -> Any:
        """Fill a body of JSON."""
        if isinstance(value, dict):
            return {self._own_words(k): self.json(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [self.json(each, key) for each in value]
        if isinstance(value, str):
            if value in self._exact:
                return str(self._exact[value])
            if key == "resourceVersion":
                return self._learned.revisions.get(value, value)
            return self._own_words(value)
        if isinstance(value, int) and not isinstance(value, bool):
            if value in self._exact and not isinstance(self._exact[value], str):
                return self._exact[value]
            if key in PORT_KEYS:
                return int(self._learned.ports.get(str(value), value))
        return value

    def _own_words(self, text: str) -> str:
        if self._pattern is None:
            return text
        return self._pattern.sub(
            lambda match: match[0] if match[0] in self._exact else self._words[match[0]], text
        )
