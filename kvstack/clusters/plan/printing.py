"""A plan as a table, as JSON, and as markdown for a comment on a pull request.

Texts of the cluster are shown as they are, but for what would move the cursor of a terminal or end
a block of markdown.
"""

from collections.abc import Iterator
from typing import Any, Final

import orjson
import yaml

from kvstack.clusters.comparison.hiding import shown_change
from kvstack.clusters.comparison.printing import MARKS
from kvstack.clusters.plan.outline import Entry
from kvstack.clusters.plan.report import Report
from kvstack.clusters.plan.stuck import Finding

SAME: Final = "nothing would change\n"
_NAME_WIDTH_MAX: Final = 48
_TEXT_WIDTH_MAX: Final = 60
_INDENT: Final = "  "
_LATER_MAX: Final = 5
_COUNTED: Final = ("by you", "changed", "made", "deleted", "stuck", "not foreseen")


def as_table(report: Report) -> str:
    """Return a line for each object that matters, and the counts."""
    rows = list(_rows(report.outline.entries, 0))
    if not rows and not report.is_different:
        return SAME + _ending(report)
    name_width = min(max((len(name) for name, _, _ in rows), default=0), _NAME_WIDTH_MAX)
    text_width = min(max((len(text) for _, text, _ in rows), default=0), _TEXT_WIDTH_MAX)
    lines = [
        f"{name:<{name_width}}  {text:<{text_width}}  {by}".rstrip() for name, text, by in rows
    ]
    return "\n".join([*lines, counted(report)]) + "\n" + _ending(report)


def as_markdown(report: Report) -> str:
    """Return the table as a block, with what a reviewer has to know above it."""
    table = as_table(report).replace("`", "'")
    head = (
        f"**Plan:** {counted(report)}" if report.is_different else "**Plan:** nothing would change"
    )
    return f"{head.replace('`', chr(39))}\n\n```text\n{table}```\n"


def as_json(report: Report) -> str:
    """Return all of it."""
    return orjson.dumps(document(report), option=orjson.OPT_INDENT_2).decode() + "\n"


def as_yaml(report: Report) -> str:
    """Return the same as YAML."""
    text: str = yaml.safe_dump(document(report), sort_keys=False, allow_unicode=True)
    return text


def document(report: Report) -> dict[str, Any]:
    """Return all of a plan as JSON has it."""
    return {
        "revision": report.revision,
        "seconds": round(report.passed_s, 3),
        "counts": {each.replace(" ", "_"): report.outline.counts[each] for each in _COUNTED},
        "deletes": report.deletes,
        "entries": [_entry(each) for each in report.outline.entries],
        "derived": report.outline.derived,
        "unrelated": report.came,
        "prevented": report.prevented,
        "stuck": [_finding(each) for each in report.stuck],
        "unforeseen": [_finding(each) for each in report.unforeseen],
        "assumed": report.assumed,
        "later": [
            {"who": each.who, "what": each.what, "seconds": round(each.in_s, 1)}
            for each in report.later
        ],
        "command": {"exit_code": report.outcome.exit_code, "stopped": report.outcome.stopped},
    }


def counted(report: Report) -> str:
    """Return how many there are of what, in words."""
    counts = report.outline.counts
    parts = [f"{counts[each]} {each}" for each in _COUNTED if counts[each]]
    if report.outline.derived:
        parts.append(f"{report.outline.derived} derived")
    return ", ".join(parts) or "no difference"


def _ending(report: Report) -> str:
    lines = [
        f"later: {each.who} {plain(each.what)} in {_time(each.in_s)}"
        for each in report.later[:_LATER_MAX]
    ]
    if len(report.later) > _LATER_MAX:
        lines.append(f"later: {len(report.later) - _LATER_MAX} more")
    if report.came:
        lines.append(f"not shown: {report.came} that would happen without the change, too")
    if report.prevented:
        shown = ", ".join(report.prevented[:_LATER_MAX])
        more = len(report.prevented) - _LATER_MAX
        lines.append(f"prevented: {plain(shown)}{f' and {more} more' if more > 0 else ''}")
    if report.assumed:
        lines.append(f"assumed: {plain('; '.join(report.assumed))}")
    return "".join(f"{each}\n" for each in lines)


def _rows(entries: list[Entry], depth: int) -> Iterator[tuple[str, str, str]]:
    for each in entries:
        mark = each.mark or (MARKS[each.difference.change] if each.difference else " ")
        name = plain(f"{_INDENT * depth}{mark} {each.subject}")
        yield name, plain(each.text), _by(each)
        yield from _rows(each.below, depth + 1)


def _by(entry: Entry) -> str:
    at = "" if entry.at_s is None else f"+{entry.at_s:.0f} s"
    return ", ".join(filter(None, (plain(entry.who), at)))


def _time(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    if hours >= 2:
        return f"{hours:.0f} h"
    return f"{minutes:.0f} min" if minutes >= 2 else f"{seconds:.0f} s"


def plain(text: str) -> str:
    """Return a text in one line, without what controls a terminal."""
    line = text.replace("\n", " ").replace("\t", " ")
    return "".join(each if each.isprintable() else "\ufffd" for each in line)


def _entry(entry: Entry) -> dict[str, Any]:
    found: dict[str, Any] = {"subject": entry.subject, "text": entry.text, "by": entry.who}
    if entry.at_s is not None:
        found["seconds"] = round(entry.at_s, 3)
    if entry.mark:
        found["mark"] = entry.mark
    difference = entry.difference
    if difference is not None:
        changes = (shown_change(each, difference.kind) for each in difference.fields)
        found |= {
            "change": difference.change.value,
            "kind": difference.kind,
            "group": difference.resource.group,
            "resource": difference.resource.resource,
            "namespace": difference.namespace,
            "name": difference.name,
            "fields": [{"path": c.text, "before": c.before, "after": c.after} for c in changes],
        }
    if entry.below:
        found["below"] = [_entry(each) for each in entry.below]
    return found


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "subject": finding.subject,
        "text": finding.text,
        "by": finding.who,
        "group": finding.resource.group,
        "resource": finding.resource.resource,
        "path": finding.path,
    }
