"""OpenAPI v2 of aggregated servers, merged into one document.

    part = part_of(document, "/apis/metrics.k8s.io/v1beta1")   their paths, and what these refer to
    merged(own, [part, …])                                     one document of all

What is present first stays: a path that another server has too is left out, and a different
definition of the same name is renamed (`Thing_v2`), including references.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from kvstack.apimachinery.objects.text import json_text

Document: TypeAlias = dict[str, Any]

_SECTIONS: Final = ("definitions", "parameters")
_KINDS: Final = "x-kubernetes-group-version-kind"
_REFERENCE: Final = "$ref"


def part_of(document: Any, path: str) -> Document:  # noqa: ANN401
    """Return the part of a document below a path; raises ValueError if it is invalid."""
    if not isinstance(document, dict) or json_text.is_too_deep(document):
        raise ValueError("an OpenAPI document must be an object that is not too deep")
    paths = _section(document, "paths")
    kept = {each: item for each, item in paths.items() if each.startswith(f"{path}/")}
    sections = {name: _section(document, name) for name in _SECTIONS}
    part: Document = {"paths": kept, **{name: {} for name in _SECTIONS}}
    waiting: list[Any] = [kept]
    while waiting:
        for reference in _references(waiting.pop()):
            section, name = _target(reference)
            if section in sections and name in sections[section] and name not in part[section]:
                part[section][name] = sections[section][name]
                waiting.append(sections[section][name])
    return part


def merged(own: Document, parts: Iterable[Document]) -> Document:
    """Return a document merged with parts; the arguments are not changed."""
    document = {**own, "paths": dict(own["paths"])}
    for section in _SECTIONS:
        document[section] = dict(own.get(section) or {})
    for part in parts:
        names: dict[str, str] = {}
        for section in _SECTIONS:
            taken: set[str] = set()
            for name, value in part[section].items():
                new = _name_in(document[section], taken, name, value)
                taken.add(new)
                names[f"#/{section}/{name}"] = f"#/{section}/{new}"
        for section in _SECTIONS:
            for name, value in part[section].items():
                _, new = _target(names[f"#/{section}/{name}"])
                there = document[section].get(new)
                if there is None:
                    document[section][new] = _renamed(value, names)
                else:
                    document[section][new] = _with_kinds(there, value)
        for path, item in part["paths"].items():
            document["paths"].setdefault(path, _renamed(item, names))
    for section in ("paths", *_SECTIONS):
        document[section] = dict(sorted(document[section].items()))
    if not document["parameters"]:
        del document["parameters"]
    return dict(sorted(document.items()))


def _section(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    section = document.get(name, {})
    if not isinstance(section, dict):
        raise ValueError(f"{name} of an OpenAPI document must be an object")  # noqa: TRY004
    return section


def _references(value: Any) -> Iterator[str]:  # noqa: ANN401
    """Yield the references of a value, at any depth."""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict):
            reference = current.get(_REFERENCE)
            if isinstance(reference, str):
                yield reference
            waiting += current.values()
        elif isinstance(current, list):
            waiting += current


def _target(reference: str) -> tuple[str, str]:
    """Return section and name of a reference's target; empty: it has another form."""
    section, _, name = reference.removeprefix("#/").partition("/")
    return section, name


def _name_in(
    section: Mapping[str, Any],
    taken: Collection[str],
    name: str,
    value: Any,  # noqa: ANN401
) -> str:
    """Return the name of a merged definition: its own, or the first that is free or equal."""
    new, number = name, 1
    while new in taken or (
        new in section and _without_kinds(section[new]) != _without_kinds(value)
    ):
        number += 1
        new = f"{name}_v{number}"
    return new


def _without_kinds(value: Any) -> Any:  # noqa: ANN401
    if not isinstance(value, dict) or _KINDS not in value:
        return value
    return {name: each for name, each in value.items() if name != _KINDS}


def _with_kinds(there: Any, value: Any) -> Any:  # noqa: ANN401
    """Return a definition with the group-version-kinds of both."""
    if not isinstance(value, dict) or not isinstance(there, dict):
        return there
    added = value.get(_KINDS)
    if not isinstance(added, list):
        return there
    kinds = list(there.get(_KINDS) or ())
    kinds += [each for each in added if each not in kinds]
    return {**there, _KINDS: kinds}


def _renamed(value: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401
    """Return a value with renamed references."""
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: names.get(each, each)
        if key == _REFERENCE and isinstance(each, str)
        else _renamed(each, names)
        for key, each in value.items()
    }
