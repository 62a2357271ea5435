"""Coverage of rules by other rules, and the rules that are missing.

    missing(held, [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}])
    → the atoms of it that no single rule of `held` covers

An atom has one group, resource, verb and at most one name, or one URL and verb; so one rule covers
it or none does. Rules here are as roles have them, not compiled.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from kvstack.apimachinery.objects.text.go_text import go_quoted_list
from kvstack.apiserver.policy.authorization.rbac.rules import ALL, Source

Atom = dict[str, Any]
"""A rule with one item in each of its lists."""

_SHOWN: Final = (
    ("APIGroups", "apiGroups"),
    ("Resources", "resources"),
    ("NonResourceURLs", "nonResourceURLs"),
    ("ResourceNames", "resourceNames"),
    ("Verbs", "verbs"),
)


def missing(held: Iterable[Source], rules: Iterable[Source]) -> list[Atom]:
    """Return the atoms of rules that no held rule covers, in order."""
    owned = [_HeldRule(each) for each in held]
    return [
        atom
        for rule in rules
        for atom in atoms(rule)
        if not any(each.covers(atom) for each in owned)
    ]


def atoms(rule: Source) -> list[Atom]:
    """Return the atoms of a rule."""
    verbs: Sequence[str] = rule.get("verbs") or ()
    names: Sequence[str] = rule.get("resourceNames") or ()
    parts: list[Atom] = []
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in verbs:
                atom = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
                parts += [{**atom, "resourceNames": [name]} for name in names] or [atom]
    parts += [
        {"verbs": [verb], "nonResourceURLs": [url]}
        for url in rule.get("nonResourceURLs") or ()
        for verb in verbs
    ]
    return parts


def merged(parts: Iterable[Atom]) -> list[Atom]:
    """Return atoms with the same resource and name merged to one with all their verbs."""
    rules: list[Atom] = []
    by_resource: dict[tuple[str, ...], Atom] = {}
    for atom in parts:
        if "nonResourceURLs" in atom:
            rules.append(atom)
            continue
        names = atom.get("resourceNames") or ()
        key = (atom["apiGroups"][0], atom["resources"][0], *names)
        if key in by_resource:
            by_resource[key]["verbs"] += atom["verbs"]
        else:
            by_resource[key] = {**atom, "verbs": list(atom["verbs"])}
    return rules + list(by_resource.values())


def rule_text(rule: Source) -> str:
    """Return a rule as refusals print it: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`."""
    members = (f"{name}:{go_quoted_list(rule[key])}" for name, key in _SHOWN if rule.get(key))
    return f"{{{', '.join(members)}}}"


class _HeldRule:
    """A rule that may cover atoms."""

    __slots__ = ("_groups", "_names", "_resources", "_urls", "_verbs")

    def __init__(self, rule: Source) -> None:
        self._verbs = frozenset(rule.get("verbs") or ())
        self._groups = frozenset(rule.get("apiGroups") or ())
        self._resources = frozenset(rule.get("resources") or ())
        self._names = frozenset(rule.get("resourceNames") or ())
        self._urls: Sequence[str] = rule.get("nonResourceURLs") or ()

    def covers(self, atom: Atom) -> bool:
        if ALL not in self._verbs and atom["verbs"][0] not in self._verbs:
            return False
        urls = atom.get("nonResourceURLs")
        if urls:
            # A rule with resourceNames does not cover URLs.
            return not self._names and any(_covers_url(each, urls[0]) for each in self._urls)
        return (
            (ALL in self._groups or atom["apiGroups"][0] in self._groups)
            and self._covers_resource(atom["resources"][0])
            and self._covers_names(atom.get("resourceNames") or ())
        )

    def _covers_resource(self, resource: str) -> bool:
        if ALL in self._resources or resource in self._resources:
            return True
        _, slash, subresource = resource.partition("/")
        return bool(slash) and f"*/{subresource}" in self._resources

    def _covers_names(self, names: Sequence[str]) -> bool:
        if not self._names:
            return True
        return bool(names) and names[0] in self._names


def _covers_url(owned: str, url: str) -> bool:
    return owned == url or (owned.endswith(ALL) and url.startswith(owned.rstrip(ALL)))
