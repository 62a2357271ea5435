"""Sets of completion indexes and their texts.

    parse("1,3-5,7", 6)      → {1, 3, 4, 5}
    text({0, 1, 3, 4, 5})    → "0,1,3-5"

A text names single indexes and runs of at least three.
"""

from collections.abc import Iterable
from typing import Final

from kvstack.apimachinery.objects.json_object import Object

INDEX: Final = "batch.kubernetes.io/job-completion-index"


def parse(text: str | None, completions: int) -> set[int]:
    """Return the indexes of a text below a limit; invalid ones are left out."""
    indexes: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        if not _is_number(first) or not (last == "" or _is_number(last)):
            continue
        end = int(last) if last else int(first)
        indexes.update(range(int(first), min(end, completions - 1) + 1))
    return indexes


def text(indexes: Iterable[int]) -> str:
    """Return the text of indexes."""
    parts: list[str] = []
    run: list[int] = []
    for index in sorted(indexes):
        if run and index != run[-1] + 1:
            parts.append(_run_text(run))
            run = []
        run.append(index)
    if run:
        parts.append(_run_text(run))
    return ",".join(parts)


def index_of(pod: Object) -> int | None:
    """Return the completion index of a pod; None: it has none."""
    found: str = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(found) if _is_number(found) else None


def _run_text(run: list[int]) -> str:
    if len(run) == 1:
        return str(run[0])
    return f"{run[0]},{run[-1]}" if len(run) == 2 else f"{run[0]}-{run[-1]}"


def _is_number(digits: str) -> bool:
    return digits.isascii() and digits.isdecimal()
