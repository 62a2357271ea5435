"""A comparison as text, one line per object, and as JSON.

~ deployment shop/web     image 1.4 → 1.5
+ replicaset shop/web-7c9
- configmap shop/old
1 changed, 1 added, 1 removed
"""

from typing import Any, Final

import orjson

from kvstack.clusters.comparison.comparison import Change, Comparison, Difference
from kvstack.clusters.comparison.hiding import shown_change
from kvstack.clusters.comparison.summaries import summary

MARKS: Final = {
    Change.CHANGED: "~",
    Change.REPLACED: "±",
    Change.ADDED: "+",
    Change.REMOVED: "-",
}
_WIDTH_MAX: Final = 56
_SAME: Final = "no difference\n"


def as_text(comparison: Comparison) -> str:
    """Return a line for each object, and how many there are."""
    if not comparison.differences and not comparison.unreadable:
        return _SAME
    named = [(each, _name(each)) for each in comparison.differences]
    width = min(max((len(name) for _, name in named), default=0), _WIDTH_MAX)
    lines = [
        f"{MARKS[each.change]} {name:<{width}}  {summary(each)}".rstrip() for each, name in named
    ]
    lines += [f"! {each}" for each in comparison.unreadable]
    return "\n".join([*lines, _summary(comparison)]) + "\n"


def as_json(comparison: Comparison) -> str:
    """Return all objects with all their fields; secrets are not shown."""
    document = {
        "differences": [
            {
                "change": each.change.value,
                "kind": each.kind,
                "group": each.resource.group,
                "resource": each.resource.resource,
                "namespace": each.namespace,
                "name": each.name,
                "fields": _fields(each),
            }
            for each in comparison.differences
        ],
        "unreadable": comparison.unreadable,
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n"


def _fields(difference: Difference) -> list[dict[str, Any]]:
    shown = (shown_change(each, difference.kind) for each in difference.fields)
    return [{"path": each.text, "before": each.before, "after": each.after} for each in shown]


def _name(difference: Difference) -> str:
    kind = difference.kind.lower() or str(difference.resource)
    return f"{kind} {difference.path}"


def _summary(comparison: Comparison) -> str:
    words = {
        Change.CHANGED: "changed",
        Change.REPLACED: "replaced",
        Change.ADDED: "added",
        Change.REMOVED: "removed",
    }
    counts = comparison.counts
    parts = [f"{counts[change]} {word}" for change, word in words.items() if counts[change]]
    if comparison.unreadable:
        parts.append(f"{len(comparison.unreadable)} unreadable")
    return ", ".join(parts)
