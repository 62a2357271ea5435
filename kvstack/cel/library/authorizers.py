"""Questions to the authorizer: `authorizer.group("apps").resource("deployments").check("get")`.

The caller that passes an `Authorizer` to an expression answers each `Question`. If that needs a
request it raises `PendingCheckError`, and evaluates again once it has the answer.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.names import name_is_dns_label, name_is_dns_subdomain
from kvstack.cel.checker.functions import Functions, declared
from kvstack.cel.errors import CelError

_PREFIX: Final = "kubernetes.authorization."

FUNCTIONS: Final[Functions] = declared(
    """
    path: *Authorizer.(string) -> *PathCheck @ authorizer_path
    group: *Authorizer.(string) -> *GroupCheck @ authorizer_group
    serviceAccount: *Authorizer.(string, string) -> *Authorizer @ authorizer_serviceaccount
    resource: *GroupCheck.(string) -> *ResourceCheck @ groupcheck_resource
    subresource: *ResourceCheck.(string) -> *ResourceCheck @ resourcecheck_subresource
    namespace: *ResourceCheck.(string) -> *ResourceCheck @ resourcecheck_namespace
    name: *ResourceCheck.(string) -> *ResourceCheck @ resourcecheck_name
    check: *PathCheck.(string) -> *Decision @ pathcheck_check
    check: *ResourceCheck.(string) -> *Decision @ resourcecheck_check
    errored: *Decision.() -> bool @ decision_errored
    error: *Decision.() -> string @ decision_error
    allowed: *Decision.() -> bool @ decision_allowed
    reason: *Decision.() -> string @ decision_reason
    fieldSelector: *ResourceCheck.(string) -> *ResourceCheck @ authorizer_fieldselector
    labelSelector: *ResourceCheck.(string) -> *ResourceCheck @ authorizer_labelselector
    """.replace("*", _PREFIX)
)


class Question(NamedTuple):
    """The attributes of an authorization check."""

    verb: str = ""
    service_account: tuple[str, str] | None = None
    """Namespace and name of who would do it; None: whose request it is."""
    path: str = ""
    """The path of a non-resource check."""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""


class Answer(NamedTuple):
    """The decision of the authorizer."""

    is_allowed: bool
    reason: str = ""
    error: str = ""

    @property
    def type_name(self) -> str:
        """The name of its type."""
        return f"{_PREFIX}Decision"


class PendingCheckError(Exception):
    """A check that needs a request to the authorizer; no operator absorbs it."""

    def __init__(self, question: Question) -> None:
        """Note the question."""
        super().__init__("the authorizer has to be asked")
        self.question = question


class Check:
    """A question in the making, or whom to ask."""

    __slots__ = ("_ask", "question", "type_name")

    def __init__(self, kind: str, question: Question, ask: Callable[[Question], Answer]) -> None:
        """Make one of a kind: Authorizer, PathCheck, GroupCheck or ResourceCheck."""
        self.type_name = f"{_PREFIX}{kind}"
        self.question = question
        self._ask = ask

    def with_(self, kind: str, **parts: Any) -> "Check":  # noqa: ANN401
        """Return the question with more attributes."""
        return Check(kind, self.question._replace(**parts), self._ask)

    def answer(self, verb: str) -> Answer:
        """Ask."""
        return self._ask(self.question._replace(verb=verb))


def authorizer(ask: Callable[[Question], Answer]) -> Check:
    """Return the value of `authorizer`."""
    return Check("Authorizer", Question(), ask)


def resource_authorizer(ask: Callable[[Question], Answer], question: Question) -> Check:
    """Return the value of `authorizer.requestResource`, about the resource of a question."""
    return Check("ResourceCheck", question, ask)


def _path(check: Check, path: str) -> Check:
    if not path.strip():
        raise CelError("path must not be empty")
    return check.with_("PathCheck", path=path)


def _service_account(check: Check, namespace: str, name: str) -> Check:
    if name_is_dns_subdomain(name, False):
        raise CelError("Invalid service account name")
    if name_is_dns_label(namespace, False):
        raise CelError("Invalid service account namespace")
    return check.with_("Authorizer", service_account=(namespace, name))


def _resource(check: Check, resource: str) -> Check:
    if not resource.strip():
        raise CelError("resource must not be empty")
    return check.with_("ResourceCheck", resource=resource)


def _more(member: str) -> Callable[[Check, str], Check]:
    return lambda check, value: check.with_("ResourceCheck", **{member: value})


IMPLEMENTATIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "authorizer_path": _path,
    "authorizer_group": lambda check, group: check.with_("GroupCheck", group=group),
    "authorizer_serviceaccount": _service_account,
    "groupcheck_resource": _resource,
    "resourcecheck_subresource": _more("subresource"),
    "resourcecheck_namespace": _more("namespace"),
    "resourcecheck_name": _more("name"),
    "pathcheck_check": lambda check, verb: check.answer(verb),
    "resourcecheck_check": lambda check, verb: check.answer(verb),
    "decision_errored": lambda answer: answer.error != "",
    "decision_error": lambda answer: answer.error,
    "decision_allowed": lambda answer: answer.is_allowed,
    "decision_reason": lambda answer: answer.reason,
    "authorizer_fieldselector": _more("field_selector"),
    "authorizer_labelselector": _more("label_selector"),
}
