"""The RBAC authorizer.

    namespace ──► (user, groups) ──► (verb, group, resource, subresource) ──► Verdict
    Verdict ──name of the object──► Decision

A verdict holds for all objects of a resource in a namespace, including rules with resourceNames.
Verdicts are cached, up to a limit, until a role or binding of their namespace or of the cluster
changes.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from kvstack.apimachinery.attributes import Attributes, User
from kvstack.apimachinery.objects.text.go_text import aggregate
from kvstack.apiserver.policy.authorization.rbac.grants import Grant, Grants, RoleError
from kvstack.apiserver.policy.authorization.rbac.rules import Rule
from kvstack.apiserver.policy.authorization.user_rules import UserRules
from kvstack.apiserver.policy.interfaces import NO_OPINION, Decision

VERDICTS_MAX: Final = 100_000

_Question = tuple[str, str, str, str]


class Verdict:
    """The result of a user's rules for a kind of request."""

    __slots__ = ("by_name", "otherwise")

    def __init__(self, by_name: Mapping[str, Decision], otherwise: Decision) -> None:
        """by_name: decisions for named objects; otherwise: the one for all others."""
        self.by_name: Final = by_name
        self.otherwise: Final = otherwise


class RbacAuthorizer:
    """Allows what a role bound to the user allows; otherwise it has no opinion."""

    name = "rbac"
    """Prefix of its reasons."""

    def __init__(self, grants: Grants) -> None:
        """grants: the current roles and bindings."""
        self._grants: Final = grants
        self._spaces: dict[str, _Space] = {}
        self._count = 0

    def authorize(self, attributes: Attributes) -> Decision:
        """Return whether a rule allows it, and by which binding."""
        user, namespace = attributes.user, attributes.namespace
        space = self._spaces.get(namespace)
        if space is None or space.generation != self._grants.generation(namespace):
            space = self._new_space(namespace)
        verdicts = space.verdicts.get((user.name, user.groups))
        if verdicts is None:
            verdicts = space.verdicts[user.name, user.groups] = {}
        if attributes.is_resource:
            question = (
                attributes.verb,
                attributes.group,
                attributes.resource,
                attributes.subresource,
            )
            verdict = verdicts.get(question)
            if verdict is None:
                verdict = self._judge_resource(user, namespace, question)
                self._remember(space, verdicts, question, verdict)
            return verdict.by_name.get(attributes.name, verdict.otherwise)
        question = (attributes.verb, "", attributes.path, "\n")
        verdict = verdicts.get(question)
        if verdict is None:
            verdict = self._judge_path(user, attributes.verb, attributes.path)
            self._remember(space, verdicts, question, verdict)
        return verdict.otherwise

    def rules_for(self, user: User, namespace: str) -> tuple[list[Rule], list[str]]:
        """Return all rules of a user in a namespace ("": cluster-wide), and the errors.

        With errors the rules are incomplete.
        """
        errors: list[str] = []
        rules = [rule for _, rule in self._visit(user, namespace, errors)]
        return rules, errors

    def user_rules(self, user: User, namespace: str) -> UserRules:
        """Return the rules of a user, as a review lists them."""
        rules, errors = self.rules_for(user, namespace)
        return UserRules([dict(each.source) for each in rules], errors)

    def _visit(self, user: User, namespace: str, errors: list[str]) -> Iterator[tuple[Grant, Rule]]:
        for grant in self._grants.of(user.name, user.groups, namespace):
            try:
                rules = self._grants.rules(grant.role)
            except RoleError as error:
                errors.append(str(error))
                continue
            for rule in rules:
                yield grant, rule

    def _judge_resource(self, user: User, namespace: str, question: _Question) -> Verdict:
        verb, group, resource, subresource = question
        full = f"{resource}/{subresource}" if subresource else resource
        errors: list[str] = []
        by_name: dict[str, Decision] = {}
        for grant, rule in self._visit(user, namespace, errors):
            if not rule.allows_resource(verb, group, full, subresource):
                continue
            allowed = Decision(True, grant.reason)
            if not rule.names:
                return Verdict(by_name, allowed)
            for name in rule.names:
                by_name.setdefault(name, allowed)
        return Verdict(by_name, _refused(errors))

    def _judge_path(self, user: User, verb: str, path: str) -> Verdict:
        errors: list[str] = []
        for grant, rule in self._visit(user, "", errors):
            if rule.allows_path(verb, path):
                return Verdict({}, Decision(True, grant.reason))
        return Verdict({}, _refused(errors))

    def _remember(
        self,
        space: "_Space",
        verdicts: dict[_Question, Verdict],
        question: _Question,
        verdict: Verdict,
    ) -> None:
        if self._count >= VERDICTS_MAX:
            self._spaces.clear()
            self._count = 0
            return
        self._count += 1
        space.count += 1
        verdicts[question] = verdict

    def _new_space(self, namespace: str) -> "_Space":
        """Return a new cache for the verdicts of a namespace, dropping the old one."""
        old = self._spaces.get(namespace)
        if old is not None:
            self._count -= old.count
        space = self._spaces[namespace] = _Space(self._grants.generation(namespace))
        return space


class _Space:
    """The verdicts of one namespace, or of cluster scope."""

    __slots__ = ("count", "generation", "verdicts")

    def __init__(self, generation: int) -> None:
        self.generation: Final = generation
        self.verdicts: Final[dict[tuple[str, tuple[str, ...]], dict[_Question, Verdict]]] = {}
        self.count = 0


def _refused(errors: list[str]) -> Decision:
    if not errors:
        return NO_OPINION
    return Decision(False, f"RBAC: {aggregate(errors)}")
