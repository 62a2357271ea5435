"""Kubeconfigs as text: entries are added and removed, and all else stays as it was written.

    text = with_entry(text, "contexts", {"name": "before-1", "context": {…}})
    text = without_entry(text, "contexts", "before-1")
    text = with_current(text, "default")

Comments, order, indentation and what is not known here are kept: only the lines of an entry change.
Where an entry has no lines of its own (JSON, `contexts: []`), the document is written anew from its
nodes, which keeps every value and loses comments. Each result is read again and compared with what
it must say; if it says anything else, that is an error, and nothing is written.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import yaml

from kvstack.apimachinery.objects.json_object import Object

EMPTY: Final = """\
apiVersion: v1
kind: Config
clusters:
users:
contexts:
"""
_CURRENT: Final = "current-context"


class KubeconfigTextError(ValueError):
    """A text that is no kubeconfig, or cannot be changed; the text says why."""


def with_entry(text: str, members: str, entry: Object) -> str:
    """Return a kubeconfig with an entry more; one of the same name is an error."""
    text = text if text.strip() else EMPTY
    before = _read(text)
    if any(each.get("name") == entry["name"] for each in before.get(members) or ()):
        raise KubeconfigTextError(f"there is an entry {entry['name']!r} in {members} already")
    desired = {**before, members: [entry, *(before.get(members) or ())]}
    return _checked(
        desired,
        lambda: _lines_added(text, members, entry),
        lambda: _nodes_added(text, members, entry),
    )


def without_entry(text: str, members: str, name: str) -> str:
    """Return a kubeconfig without an entry; the same text if there is none of this name."""
    before = _read(text)
    entries = before.get(members) or []
    left = [each for each in entries if each.get("name") != name]
    if len(left) == len(entries):
        return text
    return _checked(
        {**before, members: left},
        lambda: _lines_removed(text, members, name),
        lambda: _nodes_removed(text, members, name),
    )


def with_current(text: str, name: str) -> str:
    """Return a kubeconfig with another current context."""
    before = _read(text)
    if before.get(_CURRENT, "") == name:
        return text
    root = _compose(text)
    for key, value in root.value:
        if key.value == _CURRENT:
            shown = yaml.safe_dump(name, default_flow_style=True).removesuffix("\n...\n").strip()
            start, end = value.start_mark.index, value.end_mark.index
            changed = partial("".join, (text[:start], shown, text[end:]))
            return _checked({**before, _CURRENT: name}, changed, changed)
    raise KubeconfigTextError(f"there is no {_CURRENT} to be changed")


# Reading, and the check.


def _read(text: str) -> Object:
    try:
        found = yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise KubeconfigTextError(str(error)) from error
    if not isinstance(found, dict):
        raise KubeconfigTextError("it holds no kubeconfig")
    for members in ("clusters", "users", "contexts"):
        entries = found.get(members)
        if entries is not None and not (
            isinstance(entries, list) and all(isinstance(each, dict) for each in entries)
        ):
            raise KubeconfigTextError(f"{members} is no list of entries")
    return found


def _checked(desired: Object, first: Callable[[], str | None], second: Callable[[], str]) -> str:
    """Return the text of the first way if it reads as `desired`, else that of the second."""
    for way in (first, second):
        text = way()
        if text is None:
            continue
        try:
            if _normal(_read(text)) == _normal(desired):
                return text
        except KubeconfigTextError:
            continue
    raise KubeconfigTextError("it is written in a way that cannot be changed safely")


def _normal(found: Object) -> Object:
    """Return what a kubeconfig says, whether its empty lists are written or not."""
    return {
        name: value
        for name, value in found.items()
        if value or name not in ("clusters", "users", "contexts")
    }


# By lines.


def _lines_added(text: str, members: str, entry: Object) -> str | None:
    dumped = yaml.safe_dump([entry], sort_keys=False, default_flow_style=False)
    root = _compose(text)
    if root.flow_style:
        return None
    for key, value in root.value:
        if key.value != members:
            continue
        if isinstance(value, yaml.SequenceNode) and value.value and not value.flow_style:
            at = _line_start(text, value.value[0].start_mark.index)
            indent = text[at : value.value[0].start_mark.index].partition("-")[0]
        elif isinstance(value, yaml.ScalarNode) and not value.value:
            at, indent = _line_end(text, key.end_mark.index), ""
        else:
            return None
        return text[:at] + _indented(dumped, indent) + text[at:]
    newline = "" if text.endswith("\n") else "\n"
    return f"{text}{newline}{members}:\n{dumped}"


def _lines_removed(text: str, members: str, name: str) -> str | None:
    root = _compose(text)
    if root.flow_style:
        return None
    for key, value in root.value:
        if key.value != members or not isinstance(value, yaml.SequenceNode) or value.flow_style:
            continue
        for item in value.value:
            if _name_of(item) == name:
                start = _line_start(text, item.start_mark.index)
                return text[:start] + text[_line_end(text, _last_index(item)) :]
    return None


def _indented(text: str, indent: str) -> str:
    return "".join(f"{indent}{line}" for line in text.splitlines(keepends=True))


def _line_start(text: str, index: int) -> int:
    return text.rfind("\n", 0, index) + 1


def _line_end(text: str, index: int) -> int:
    """Return where the line after the one of an index begins."""
    at = text.find("\n", max(index - 1, 0))
    return len(text) if at < 0 else at + 1


def _last_index(node: yaml.Node) -> int:
    """Return where the last scalar or flow collection of a node ends."""
    if isinstance(node, yaml.MappingNode) and node.value and not node.flow_style:
        return _last_index(node.value[-1][1])
    if isinstance(node, yaml.SequenceNode) and node.value and not node.flow_style:
        return _last_index(node.value[-1])
    return node.end_mark.index


def _name_of(item: yaml.Node) -> str:
    if isinstance(item, yaml.MappingNode):
        for key, value in item.value:
            if key.value == "name":
                return str(value.value)
    return ""


# By nodes.


def _nodes_added(text: str, members: str, entry: Object) -> str:
    root = _compose(text)
    added = yaml.compose(yaml.safe_dump([entry], sort_keys=False), Loader=yaml.SafeLoader)
    assert isinstance(added, yaml.SequenceNode), "it was written as a list"
    for number, (key, value) in enumerate(root.value):
        if key.value == members:
            if isinstance(value, yaml.SequenceNode):
                value.value[:0] = added.value
                value.flow_style = bool(root.flow_style)
            else:
                root.value[number] = (key, added)
            return _written(root)
    root.value.append((yaml.ScalarNode("tag:yaml.org,2002:str", members), added))
    return _written(root)


def _nodes_removed(text: str, members: str, name: str) -> str:
    root = _compose(text)
    for key, value in root.value:
        if key.value == members and isinstance(value, yaml.SequenceNode):
            value.value = [item for item in value.value if _name_of(item) != name]
    return _written(root)


def _compose(text: str) -> yaml.MappingNode:
    root = yaml.compose(text, Loader=yaml.CSafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise KubeconfigTextError("it holds no kubeconfig")
    return root


def _written(root: yaml.Node) -> str:
    text: str = yaml.serialize(root, Dumper=yaml.SafeDumper, allow_unicode=True)
    return text
