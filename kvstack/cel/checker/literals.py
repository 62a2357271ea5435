"""Errors in the literals of an expression, found before it runs.

Texts of moments, spans of time and patterns, formats with their values, and lists and maps whose
items are not of one type.
"""

from collections.abc import Iterator
from typing import Final

from kvstack.apimachinery.objects.text.go_patterns import PatternError, compile_pattern
from kvstack.cel.checker.types import (
    DYN_KIND,
    LIST,
    MAP,
    OPAQUE,
    PARAM,
    TYPE,
    Type,
)
from kvstack.cel.errors import CelError, Issue
from kvstack.cel.library import conversions
from kvstack.cel.library.formatting import check_format
from kvstack.cel.syntax.nodes import Call, ListNode, Literal, MapNode, Node, walk

_PARSERS: Final = {
    "duration": conversions.parse_duration,
    "timestamp": conversions.parse_timestamp,
}


def literal_issues(root: Node) -> list[Issue]:
    """Return what is wrong with the values of an expression whose types are known."""
    issues: list[Issue] = []
    nodes = list(walk(root))
    calls = [each for each in nodes if isinstance(each, Call)]
    for call in calls:
        issues += _argument_issues(call)
    exempt = {id(inner) for call in calls if call.function == "format" for inner in walk(call)}
    for node in nodes:
        if isinstance(node, (ListNode, MapNode)) and id(node) not in exempt:
            issues += _mixed(node)
    for call in calls:
        issue = _format_issue(call)
        if issue is not None:
            issues.append(issue)
    return issues


def _argument_issues(call: Call) -> Iterator[Issue]:
    argument = call.arguments[0] if call.arguments else None
    if not isinstance(argument, Literal):
        return
    value = argument.value
    if call.function == "matches":
        try:
            compile_pattern(str(value))
        except PatternError:
            yield Issue(argument.offset, "invalid matches argument")
        return
    parse = _PARSERS.get(call.function)
    if parse is None or not isinstance(value, (str, int)):
        return
    try:
        if isinstance(value, str):
            parse(value)
        elif call.function == "timestamp":
            conversions.IMPLEMENTATIONS["int64_to_timestamp"](value)
    except CelError:
        yield Issue(argument.offset, f"invalid {call.function} argument")


def _mixed(node: ListNode | MapNode) -> Iterator[Issue]:
    """Yield what is not of the type of the items before it; of a list only the first."""
    if isinstance(node, ListNode):
        columns = [
            [(each, position in node.optionals) for position, each in enumerate(node.elements)]
        ]
    else:
        columns = [
            [(each.key, False) for each in node.entries],
            [(each.value, each.is_optional) for each in node.entries],
        ]
    for column in columns:
        wanted: Type | None = None
        for each, is_optional in column:
            type_ = each.type
            if is_optional and type_.parameters:
                type_ = type_.parameters[0]
            if wanted is None:
                wanted = type_
            elif not _equivalent(wanted, type_):
                yield Issue(each.offset, f"expected type '{wanted}' but found '{type_}'")
                if isinstance(node, ListNode):
                    break


def _equivalent(one: Type, other: Type) -> bool:
    """Return whether two types are equal apart from type parameters and dyn."""
    if one.kind == other.kind and one.kind in {PARAM, DYN_KIND}:
        return True
    if one.kind in {LIST, MAP, OPAQUE, TYPE}:
        return (
            one.kind == other.kind
            and one.name == other.name
            and len(one.parameters) == len(other.parameters)
            and all(map(_equivalent, one.parameters, other.parameters))
        )
    return one is other


def _format_issue(call: Call) -> Issue | None:
    pattern = call.target
    if call.function != "format" or not isinstance(pattern, Literal) or len(call.arguments) != 1:
        return None
    values = call.arguments[0]
    if not isinstance(pattern.value, str) or not isinstance(values, ListNode):
        return None
    return check_format(call.offset, pattern.value, values.elements)
