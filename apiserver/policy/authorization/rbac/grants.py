"""Bindings by subject, updated as roles and bindings change.

    subject ──► {(namespace, binding): Grant} ──role──► rules

A subject is a user name or a group; a service account is a user. Only the entries of a changed
object are updated, so that the cost of a write does not depend on the number of bindings.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.attributes import service_account_name
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.policy.authorization.rbac.rules import Rule, compile_rules
from kvstack.apiserver.policy.interfaces import Change, ObjectView

Obj = Mapping[str, Any]

GROUP: Final = "rbac.authorization.k8s.io"
CLUSTER_ROLES: Final = GroupResource(GROUP, "clusterroles")
CLUSTER_ROLE_BINDINGS: Final = GroupResource(GROUP, "clusterrolebindings")
ROLES: Final = GroupResource(GROUP, "roles")
ROLE_BINDINGS: Final = GroupResource(GROUP, "rolebindings")

_NOBODY: Final[Mapping[tuple[str, str], "Grant"]] = {}


class Subject(NamedTuple):
    """A user or a group."""

    is_group: bool
    name: str


class RoleReference(NamedTuple):
    """The role of a binding."""

    kind: str
    namespace: str
    """Empty: a ClusterRole."""
    name: str


class Grant(NamedTuple):
    """A role granted to a subject by a binding."""

    namespace: str
    """The namespace where it applies; empty: everywhere."""
    binding: str
    role: RoleReference
    position: int
    """Index of the subject in the binding."""
    subject: str
    """The subject as in reasons: `User "bob"`."""

    @property
    def reason(self) -> str:
        """The reason of a decision."""
        kind, name = "ClusterRoleBinding", self.binding
        if self.namespace:
            kind, name = "RoleBinding", f"{self.binding}/{self.namespace}"
        role = f"{self.role.kind} {quote(self.role.name)}"
        return f"RBAC: allowed by {kind} {quote(name)} of {role} to {self.subject}"


class RoleError(Exception):
    """A binding refers to a missing role; the text is upstream's."""


class Grants:
    """All roles and bindings of the cluster."""

    def __init__(self) -> None:
        self._changes = 0
        self._generation = 0
        self._generations: dict[str, int] = {}
        """Generations of namespaces that changed after the cluster scope."""
        self._rules: dict[RoleReference, tuple[Rule, ...]] = {}
        self._grants: dict[tuple[str, Subject], dict[tuple[str, str], Grant]] = {}

    def follow(self, view: ObjectView) -> None:
        """Take the objects of a view, and follow their changes."""
        view.subscribe(CLUSTER_ROLES, self._change_roles)
        view.subscribe(ROLES, self._change_roles)
        view.subscribe(CLUSTER_ROLE_BINDINGS, self._change_bindings)
        view.subscribe(ROLE_BINDINGS, self._change_bindings)

    def generation(self, namespace: str) -> int:
        """Return a number that differs after a change that applies in a namespace ("": in none)."""
        return self._generations.get(namespace, self._generation)

    def of(self, name: str, groups: Iterable[str], namespace: str) -> list[Grant]:
        """Return the grants of a user: those of the cluster, then of the namespace, by name.

        If several subjects of a binding match the user, the first one counts.
        """
        subjects = (Subject(is_group=False, name=name), *(Subject(True, each) for each in groups))
        found = self._granted("", subjects)
        return found + self._granted(namespace, subjects) if namespace else found

    def rules(self, role: RoleReference) -> tuple[Rule, ...]:
        """Return the rules of a role; raises RoleError."""
        rules = self._rules.get(role)
        if rules is not None:
            return rules
        if role.kind not in {"Role", "ClusterRole"}:
            raise RoleError(f"unsupported role reference kind: {quote(role.kind)}")
        raise RoleError(f"{role.kind.lower()}.{GROUP} {quote(role.name)} not found")

    def _granted(self, namespace: str, subjects: Iterable[Subject]) -> list[Grant]:
        grants_by_binding: dict[tuple[str, str], Grant] = {}
        for subject in subjects:
            for key, grant in self._grants.get((namespace, subject), _NOBODY).items():
                known = grants_by_binding.get(key)
                if known is None or grant.position < known.position:
                    grants_by_binding[key] = grant
        return [grants_by_binding[key] for key in sorted(grants_by_binding)]

    def _change_roles(self, changes: Sequence[Change]) -> None:
        for new, old in changes:
            if new is not None:
                self._rules[_reference_to(new)] = compile_rules(new)
            elif old is not None:
                self._rules.pop(_reference_to(old), None)
        self._note(changes)

    def _change_bindings(self, changes: Sequence[Change]) -> None:
        for new, old in changes:
            if old is not None:
                self._remove(old)
            if new is not None:
                self._add(new)
        self._note(changes)

    def _note(self, changes: Sequence[Change]) -> None:
        for new, old in changes:
            changed = new or old
            if changed is None:
                continue
            self._changes += 1
            namespace = changed["metadata"].get("namespace", "")
            if namespace:
                self._generations[namespace] = self._changes
            else:
                self._generation = self._changes
                self._generations.clear()

    def _add(self, binding: Obj) -> None:
        namespace, name = _namespaced_name(binding)
        for subject, grant in _grants_of(binding):
            of_subject = self._grants.setdefault((namespace, subject), {})
            of_subject.setdefault((namespace, name), grant)

    def _remove(self, binding: Obj) -> None:
        namespace, name = _namespaced_name(binding)
        for subject, _ in _grants_of(binding):
            of_subject = self._grants.get((namespace, subject))
            if of_subject is not None:
                of_subject.pop((namespace, name), None)
                if not of_subject:
                    del self._grants[namespace, subject]


def referenced_role(binding: Obj, namespace: str) -> RoleReference:
    """Return the role of a binding in a namespace ("": of the cluster)."""
    reference = binding.get("roleRef") or {}
    kind = reference.get("kind", "")
    return RoleReference(kind, namespace if kind == "Role" else "", reference.get("name", ""))


def _grants_of(binding: Obj) -> Iterable[tuple[Subject, Grant]]:
    namespace, name = _namespaced_name(binding)
    role = referenced_role(binding, namespace)
    for position, given in enumerate(binding.get("subjects") or ()):
        kind, subject_name = given.get("kind", ""), given.get("name", "")
        subject_text = f"{kind} {quote(subject_name)}"
        if kind == "ServiceAccount":
            # In a ClusterRoleBinding a service account without a namespace matches no user.
            subject_namespace = given.get("namespace") or namespace
            if not subject_namespace:
                continue
            subject_text = f"{kind} {quote(f'{subject_name}/{subject_namespace}')}"
            subject = Subject(
                is_group=False, name=service_account_name(subject_namespace, subject_name)
            )
        elif kind in {"User", "Group"}:
            subject = Subject(kind == "Group", subject_name)
        else:
            continue
        yield subject, Grant(namespace, name, role, position, subject_text)


def _reference_to(role: Obj) -> RoleReference:
    namespace, name = _namespaced_name(role)
    return RoleReference("Role" if namespace else "ClusterRole", namespace, name)


def _namespaced_name(obj: Obj) -> tuple[str, str]:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
