"""Roles and bindings, briefly."""

from kvstack.apimachinery.objects.json_object import Object


def rule(verbs: str, groups: str, resources: str, names: str = "") -> Object:
    """Return a rule from words between blanks; the core group is `core`."""
    made: Object = {
        "verbs": verbs.split(),
        "apiGroups": ["" if each == "core" else each for each in groups.split()],
        "resources": resources.split(),
    }
    if names:
        made["resourceNames"] = names.split()
    return made


def urls(verbs: str, paths: str) -> Object:
    """Return a rule about paths."""
    return {"verbs": verbs.split(), "nonResourceURLs": paths.split()}


def role(name: str, *rules: Object, namespace: str = "") -> Object:
    """Return a Role, or without a namespace a ClusterRole."""
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"metadata": metadata, "rules": list(rules)}


def binding(name: str, kind: str, role_name: str, *subjects: Object, namespace: str = "") -> Object:
    """Return a RoleBinding, or without a namespace a ClusterRoleBinding."""
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role_name}
    return {"metadata": metadata, "roleRef": reference, "subjects": list(subjects)}


def user(name: str) -> Object:
    """Return a subject."""
    return {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}


def group(name: str) -> Object:
    """Return a subject."""
    return {"kind": "Group", "name": name, "apiGroup": "rbac.authorization.k8s.io"}


def account(name: str, namespace: str = "") -> Object:
    """Return a subject."""
    subject = {"kind": "ServiceAccount", "name": name}
    return {**subject, "namespace": namespace} if namespace else subject
