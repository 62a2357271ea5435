"""CEL expressions in configuration files: on claims and users, and on authorization requests.

    compile_about("claims.sub + '@example'", "claims", False)   → an expression; ValueError
    RequestConditions(["request.user == 'bob'"]).match(spec)    → True, False; ConditionError

Files belong to the server, not to clients: the newest CEL functions may be used. Numbers in claims
are doubles, as in JSON.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import aggregate
from kvstack.apiserver.policy.authentication.jwt.settings import ExpressionError
from kvstack.apiserver.policy.authorization.webhook import ConditionError
from kvstack.cel.admission import BOOLEANS, compile_in
from kvstack.cel.checker.scope import Scope
from kvstack.cel.checker.types import (
    DYN_KIND,
    STRING,
    Type,
    list_of,
    make,
    map_of,
    parse_type,
    struct,
)
from kvstack.cel.errors import EvaluationError
from kvstack.cel.library.table import WITHOUT_PATCHES

_TEXTS: Final = list_of(STRING)
_EXTRA: Final = map_of(STRING, _TEXTS)
_USER: Final = {"username": STRING, "uid": STRING, "groups": _TEXTS, "extra": _EXTRA}
_ATTRIBUTES: Final = (
    "namespace",
    "verb",
    "group",
    "version",
    "resource",
    "subresource",
    "name",
)
_REQUIREMENTS: Final = parse_type("list(kubernetes.SelectorRequirement)")
_STRUCTS: Final[Mapping[str, Mapping[str, Type]]] = {
    "kubernetes.UserInfo": _USER,
    "kubernetes.SubjectAccessReviewSpec": {
        "resourceAttributes": struct("kubernetes.ResourceAttributes"),
        "nonResourceAttributes": struct("kubernetes.NonResourceAttributes"),
        "user": STRING,
        "groups": _TEXTS,
        "extra": _EXTRA,
        "uid": STRING,
    },
    "kubernetes.ResourceAttributes": {
        **dict.fromkeys(_ATTRIBUTES, STRING),
        "fieldSelector": struct("kubernetes.FieldSelectorAttributes"),
        "labelSelector": struct("kubernetes.LabelSelectorAttributes"),
    },
    "kubernetes.NonResourceAttributes": {"path": STRING, "verb": STRING},
    "kubernetes.FieldSelectorAttributes": {"rawSelector": STRING, "requirements": _REQUIREMENTS},
    "kubernetes.LabelSelectorAttributes": {"rawSelector": STRING, "requirements": _REQUIREMENTS},
    "kubernetes.SelectorRequirement": {"key": STRING, "operator": STRING, "values": _TEXTS},
}
_VARIABLES: Final = {
    "claims": map_of(STRING, make(DYN_KIND, "any")),
    "user": struct("kubernetes.UserInfo"),
    "request": struct("kubernetes.SubjectAccessReviewSpec"),
}
_SCOPES: Final = {
    name: Scope(functions=WITHOUT_PATCHES, variables={name: type_}, structs=_STRUCTS)
    for name, type_ in _VARIABLES.items()
}


class BadExpressionError(ValueError):
    """An expression does not compile, or returns a wrong type; the text is upstream's."""


class ConfiguredExpression:
    """An expression on one variable."""

    def __init__(self, text: str, variable: str, *, is_condition: bool) -> None:
        """Compile it; raises BadExpressionError."""
        compiled = compile_in(_SCOPES[variable], text, BOOLEANS if is_condition else None)
        if compiled.program is None:
            raise BadExpressionError(compiled.problem)
        self.text: Final = text
        self._variable: Final = variable
        self._program: Final = compiled.program

    def evaluate(self, value: Mapping[str, object]) -> object:
        """Return its value; raises ExpressionError."""
        try:
            return self._program.evaluate({self._variable: _as_json(value)}).value
        except EvaluationError as error:
            raise ExpressionError(f"expression '{self.text}' resulted in error: {error}") from None


def compile_about(text: str, variable: str, is_condition: bool) -> ConfiguredExpression:  # noqa: FBT001
    """Return an expression; raises ValueError."""
    return ConfiguredExpression(text, variable, is_condition=is_condition)


class RequestConditions:
    """Conditions on an authorization request."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Compile them; raises BadExpressionError."""
        self._conditions: Final = [
            ConfiguredExpression(each, "request", is_condition=True) for each in texts
        ]

    def match(self, spec: Object) -> bool:
        """Return whether all hold; raises ConditionError if one fails and none is false.

        spec: of a SubjectAccessReview, without empty members.
        """
        request = _completed(spec)
        errors: list[str] = []
        for each in self._conditions:
            try:
                if each.evaluate(request) is not True:
                    return False
            except ExpressionError as error:
                errors.append(f"cel evaluation error: {error}")
        if errors:
            raise ConditionError(aggregate(errors))
        return True


def _completed(spec: Object) -> Object:
    """Return a spec with all string members, also empty ones."""
    request: Object = {
        "user": spec.get("user", ""),
        "uid": spec.get("uid", ""),
        "groups": spec.get("groups") or [],
        "extra": spec.get("extra") or {},
    }
    of_resource, of_path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if of_resource is not None:
        request["resourceAttributes"] = {**dict.fromkeys(_ATTRIBUTES, ""), **of_resource}
    if of_path is not None:
        request["nonResourceAttributes"] = {"path": "", "verb": "", **of_path}
    return request


def _as_json(value: Any) -> Any:  # noqa: ANN401 — any value of JSON
    if isinstance(value, dict):
        return {name: _as_json(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(each) for each in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value
