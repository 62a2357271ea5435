"""Declared rules of rbac.authorization.k8s.io/v1."""

from typing import Final

from kvstack.apiserver.kinds.declared import Declared, DeclaredRules

_GROUP: Final = "io.k8s.api.rbac.v1"
_NEEDED: Final = Declared(is_required=True)

DECLARED: Final = DeclaredRules(
    {
        f"{_GROUP}.PolicyRule": {"verbs": _NEEDED},
        f"{_GROUP}.RoleRef": {"name": _NEEDED},
        f"{_GROUP}.Subject": {"name": _NEEDED},
    }
)
