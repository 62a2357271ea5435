"""ClusterRole aggregation: a role with an aggregationRule has the rules of the roles it selects."""

from collections.abc import Iterable, Sequence
from typing import Final

from kvstack.agents.client.built_in import CLUSTER_ROLES
from kvstack.agents.reconcile.plan import BaseController, Identity, Patch, Plan, View, Watch, do
from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import APPLY_PATCH

_NAME: Final = "clusterrole-aggregation-controller"


class RoleAggregation(BaseController):
    """Keeps the rules of aggregated roles."""

    def __init__(self) -> None:
        """Watch roles."""
        self.identity: Identity = Identity(_NAME, _NAME, _NAME)
        self.watches: Sequence[Watch] = (Watch(CLUSTER_ROLES, _all_aggregated),)

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one role."""
        role = view.get(CLUSTER_ROLES, key)
        if role is None or role.get("aggregationRule") is None:
            return None
        rules = _rules(role, view.list(CLUSTER_ROLES))
        if rules == (role.get("rules") or []):
            return None
        applied: Object = {
            "apiVersion": CLUSTER_ROLES.api_version,
            "kind": CLUSTER_ROLES.kind,
            "metadata": {"name": key},
        }
        if rules:
            applied["rules"] = rules
        yield from do(
            Patch(CLUSTER_ROLES, "", key, applied, APPLY_PATCH, field_manager=_NAME, force=True)
        )
        return None


def _rules(role: Object, roles: Iterable[Object]) -> list[Object]:
    """Return the rules of all selected roles, each once: by selector, then by name."""
    own = role["metadata"]["name"]
    others = sorted(
        (each for each in roles if each["metadata"]["name"] != own),
        key=lambda each: str(each["metadata"]["name"]),
    )
    rules: list[Object] = []
    for selector in role["aggregationRule"].get("clusterRoleSelectors") or ():
        matches = labels.from_object(selector).matches
        for other in others:
            if matches(other["metadata"].get("labels") or {}):
                for each in other.get("rules") or ():
                    if each not in rules:  # one role may have it twice
                        rules.append(each)
    return rules


def _all_aggregated(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    for role in view.list(CLUSTER_ROLES):
        if role.get("aggregationRule") is not None:
            yield role["metadata"]["name"]
