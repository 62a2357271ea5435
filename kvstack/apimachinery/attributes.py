"""The user and the attributes of a request, as authorizers and admission see them.

    Attributes(user, "get", group="", version="v1", resource="pods", namespace="a", name="web")
    Attributes.of_path(user, "get", "/healthz")

A value is never changed. Groups are a tuple in the order in which the authenticator gave them.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.fields import FieldSelector
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.labels import Selector
from kvstack.apimachinery.objects.names import check_dns_label, check_dns_subdomain

ANONYMOUS: Final = "system:anonymous"
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
PRIVILEGED: Final = "system:masters"
CLUSTER_ADMINS: Final = "kubeadm:cluster-admins"
"""The group of administrators whose rights a binding of the same name gives, as kubeadm has it."""
"""Members may do everything."""
NODES: Final = "system:nodes"
NODE_PREFIX: Final = "system:node:"
SERVICE_ACCOUNT_PREFIX: Final = "system:serviceaccount:"
SERVICE_ACCOUNTS: Final = "system:serviceaccounts"

NO_EXTRA: Final[Mapping[str, tuple[str, ...]]] = {}


class User(NamedTuple):
    """An identity."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = NO_EXTRA

    def to_object(self) -> dict[str, Any]:
        """Return the user as reviews and webhooks have it; what is empty is left out."""
        info: dict[str, Any] = {}
        if self.name:
            info["username"] = self.name
        if self.uid:
            info["uid"] = self.uid
        if self.groups:
            info["groups"] = list(self.groups)
        if self.extra:
            info["extra"] = {name: list(values) for name, values in sorted(self.extra.items())}
        return info


class Attributes(NamedTuple):
    """A request, as far as it matters for whether it is allowed."""

    user: User
    verb: str
    """get, list, watch, create, update, patch, delete, deletecollection, or whatever is asked;
    of a path the method in lower case."""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    is_resource: bool = True
    """Whether it is a resource request; else it is for `path`."""
    field_selector: FieldSelector | None = None
    """The selector of list, watch and deletecollection; None: none, or it cannot be parsed."""
    label_selector: Selector | None = None

    @property
    def group_resource(self) -> GroupResource:
        """The resource, as errors name it."""
        return GroupResource(self.group, self.resource)

    @classmethod
    def of_path(cls, user: User, verb: str, path: str) -> "Attributes":
        """Return the attributes of a non-resource request."""
        return cls(user, verb, path=path, is_resource=False)


def service_account_name(namespace: str, name: str) -> str:
    """Return the user name of a service account."""
    return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"


def service_account_groups(namespace: str) -> tuple[str, str]:
    """Return the groups of a service account, without those of all authenticated users."""
    return SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}"


def parse_service_account(user_name: str) -> tuple[str, str] | None:
    """Return namespace and name of a service account's user name; None: it is another user's."""
    if not user_name.startswith(SERVICE_ACCOUNT_PREFIX):
        return None
    namespace, _, name = user_name[len(SERVICE_ACCOUNT_PREFIX) :].partition(":")
    if check_dns_label(namespace) or check_dns_subdomain(name):
        return None
    return namespace, name
