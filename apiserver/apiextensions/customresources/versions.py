"""The order of versions: by stability, then newest first.

sorted(("v1", "v2beta1", "v10", "foo"), key=version_rank)   → v10, v1, v2beta1, foo
"""

from typing import Any, Final

_STAGES: Final = {"": 0, "beta": 1, "alpha": 2}


def version_rank(version: str) -> tuple[Any, ...]:
    """Return the sort key of versions: v10, v2, v11beta2, v10beta3, v12alpha1, others."""
    head, stage, rest = version, "", ""
    for each in ("alpha", "beta"):
        if each in version:
            head, stage, rest = *version.partition(each)[:2], version.partition(each)[2]
    number = head.removeprefix("v")
    is_known = head.startswith("v") and _is_number(number) and (not stage or _is_number(rest))
    if not is_known:
        return 1, 0, 0, 0, version
    return 0, _STAGES[stage], -int(number), -int(rest or 0), version


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
