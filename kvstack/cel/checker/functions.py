"""Declarations of functions.

    declared('''
        startsWith: string.(string) -> bool       @ starts_with_string
    ''')

One overload a line: the name, what it takes (with a target before the dot), what it returns, and
the identifier by which costs and tests know the overload.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from kvstack.cel.checker.types import PARAM, Type, parse_type


class Overload(NamedTuple):
    """One of the ways to call a function."""

    identifier: str
    is_member: bool
    arguments: tuple[Type, ...]
    """The parameters; for a member function the target first."""
    result: Type
    parameters: tuple[Type, ...]
    """The type parameters."""


Functions: TypeAlias = Mapping[str, tuple[Overload, ...]]


def declared(text: str) -> dict[str, tuple[Overload, ...]]:
    """Return the functions of a text."""
    found: dict[str, list[Overload]] = {}
    for line in text.strip().splitlines():
        name, overload = _parse(line.strip())
        found.setdefault(name, []).append(overload)
    return {name: tuple(overloads) for name, overloads in found.items()}


def merged(*parts: Functions) -> Functions:
    """Return the functions of several tables; overloads of the same name are put together."""
    functions: dict[str, tuple[Overload, ...]] = {}
    for part in parts:
        for name, overloads in part.items():
            known = {each.identifier for each in functions.get(name, ())}
            more = tuple(each for each in overloads if each.identifier not in known)
            functions[name] = functions.get(name, ()) + more
    return functions


def _parse(line: str) -> tuple[str, Overload]:
    signature, _, identifier = line.partition(" @ ")
    name, _, rest = signature.partition(": ")
    taken, _, result = rest.partition(" -> ")
    taken = taken.strip()
    target, opening = taken[: _opening(taken)], _opening(taken)
    arguments = list(_split(taken[opening + 1 : -1]))
    is_member = target.endswith(".")
    if is_member:
        arguments.insert(0, target[:-1])
    types = tuple(parse_type(each) for each in arguments)
    returned = parse_type(result.strip())
    parameters = dict.fromkeys(_parameters((*types, returned)))
    return name, Overload(identifier.strip(), is_member, types, returned, tuple(parameters))


def _opening(text: str) -> int:
    """Return where the arguments begin: at the bracket that the last one closes."""
    depth = 0
    for position in range(len(text) - 1, -1, -1):
        if text[position] == ")":
            depth += 1
        elif text[position] == "(":
            depth -= 1
            if depth == 0:
                return position
    raise ValueError(text)


def _split(text: str) -> Iterable[str]:
    depth, start = 0, 0
    for position, character in enumerate(text):
        if character == "," and depth == 0:
            yield text[start:position]
            start = position + 1
        depth += (character == "(") - (character == ")")
    if text.strip():
        yield text[start:]


def _parameters(types: Iterable[Type]) -> Iterable[Type]:
    for each in types:
        if each.kind == PARAM:
            yield each
        yield from _parameters(each.parameters)
