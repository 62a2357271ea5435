"""How many calls an operation makes: a measure of its cost that no busy machine changes.

    with CallCounter() as counter:
        node.turn(inbox)
    counter.counts     Counts(python=61, c=97)

Counted are calls of the project's functions, and calls of C functions that those make; so versions
of the standard library do not matter. Comprehensions and generators are left out, because versions
of Python differ: the former are calls in 3.11 alone, the latter are resumed once more there.
"""

import gc
import inspect
import json
import sys
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final, NamedTuple, Self

TABLE: Final = Path(__file__).parent / "micro" / "call_counts.json"
TOLERANCE: Final = 0.01
_ROOT: Final = Path(__file__).parents[1]
_SOURCES: Final = tuple(
    f"{_ROOT / name}/" for name in ("kvstore", "kvstack", "agents", "apiserver")
)
_COMPREHENSIONS: Final = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})
_RESUMED: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Counts(NamedTuple):
    """Calls of Python functions and of C functions."""

    python: int
    c: int

    def is_near(self, other: "Counts") -> bool:
        """Tell whether both numbers differ by no more than the tolerance."""
        pairs = zip(self, other, strict=True)
        return all(abs(mine - its) <= TOLERANCE * its for mine, its in pairs)


class CallCounter:
    """Counts the calls that this thread makes within a block, which may call nothing in between."""

    def __init__(self) -> None:
        self.counts = Counts(0, 0)
        self._python = self._c = 0
        self._was_collecting = False

    def __enter__(self) -> Self:
        self._was_collecting = gc.isenabled()
        gc.disable()  # its callbacks would be counted
        sys.setprofile(self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.setprofile(None)
        if self._was_collecting:
            gc.enable()
        self.counts = Counts(self._python, self._c)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(_SOURCES):
            return
        if event == "call":
            is_counted = code.co_name not in _COMPREHENSIONS and not code.co_flags & _RESUMED
            self._python += is_counted
        elif event == "c_call":
            self._c += 1


def read_table() -> dict[str, Counts]:
    """Return the committed counts by operation."""
    return {name: Counts(**row) for name, row in json.loads(TABLE.read_text()).items()}


def write_table(table: dict[str, Counts]) -> None:
    """Write the counts, operations in order."""
    rows = (f' "{name}": {json.dumps(table[name]._asdict())}' for name in sorted(table))
    TABLE.write_text("{\n" + ",\n".join(rows) + "\n}\n")
