"""Table cells that many kinds share."""

from collections.abc import Iterable, Mapping


def first_of(maximum: int, items: Iterable[str], separator: str = ",") -> str:
    """Return the first items joined, and the number of the others."""
    listed = list(items)
    text = separator.join(listed[:maximum])
    more = len(listed) - maximum
    return f"{text} + {more} more..." if more > 0 else text


def pairs_text(pairs: Mapping[str, str] | None) -> str:
    """Return a map of labels as a selector, `<none>` if it is empty."""
    return ",".join(f"{key}={pairs[key]}" for key in sorted(pairs)) if pairs else "<none>"


def bool_text(value: bool | None) -> str:  # noqa: FBT001
    """Return a boolean as in Kubernetes' tables."""
    if value is None:
        return "<unset>"
    return "True" if value else "False"
