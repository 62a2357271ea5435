"""ServiceAccount: every namespace has the account `default`."""

from collections.abc import Iterable, Sequence
from typing import Final

from kvstack.agents.client.built_in import NAMESPACES, SERVICE_ACCOUNTS
from kvstack.agents.client.object_store import key_of
from kvstack.agents.reconcile.plan import BaseController, Create, Identity, Plan, View, Watch
from kvstack.apimachinery.objects.json_object import Object

_NAME: Final = "default"


class ServiceAccountController(BaseController):
    """Makes default accounts."""

    workers = 1

    def __init__(self) -> None:
        """Watch namespaces and accounts."""
        self.identity: Identity = Identity(
            "serviceaccount-controller", "service-account-controller", "service-account-controller"
        )
        self.watches: Sequence[Watch] = (
            Watch(NAMESPACES, _keys_of_namespace),
            Watch(SERVICE_ACCOUNTS, _keys_of_account),
        )

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one namespace."""
        namespace = view.get(NAMESPACES, key)
        if namespace is None or (namespace.get("status") or {}).get("phase") != "Active":
            return None
        if view.get(SERVICE_ACCOUNTS, f"{key}/{_NAME}") is not None:
            return None
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": _NAME}}
        [outcome] = yield [Create(SERVICE_ACCOUNTS, key, account)]
        ignored = outcome.is_conflict or outcome.is_namespace_terminating
        if outcome.error is not None and not ignored:
            raise outcome.error
        return None


def _keys_of_namespace(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if new is not None:
        yield key_of(new)


def _keys_of_account(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if new is None and old is not None and old["metadata"]["name"] == _NAME:
        yield old["metadata"]["namespace"]
