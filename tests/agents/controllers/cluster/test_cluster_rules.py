"""Namespaces, quotas, accounts and their tokens: the rules that stories do not come by."""

from typing import Any

import pytest

from kvstack.agents.client.built_in import (
    CLUSTER_ROLES,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from kvstack.agents.client.discovery import Discovery, ServedResource
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.controllers.cluster.account_tokens import AccountTokens
from kvstack.agents.controllers.cluster.namespaces import (
    NamespaceContentError,
    NamespaceController,
)
from kvstack.agents.controllers.cluster.resource_quotas import ResourceQuotaController
from kvstack.agents.controllers.cluster.role_aggregation import RoleAggregation
from kvstack.agents.controllers.cluster.service_accounts import ServiceAccountController
from kvstack.agents.reconcile.plan import (
    Action,
    Create,
    Delete,
    Discover,
    Get,
    Later,
    ListLive,
    Patch,
    Update,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.component.certs.certificates import new_authority
from tests.agents.support.plans import Answer, drive, refusal, view_of

NOW_S = 1_700_000_000.0
NOTHING = view_of({})


# Namespaces.


def terminating(phase: str = "Terminating", **meta: Any) -> Object:
    own = {"name": "n", "uid": "u", "resourceVersion": "1", **meta}
    return {
        "metadata": {**own, "deletionTimestamp": "2023-11-14T22:13:20Z"},
        "spec": {"finalizers": ["kubernetes", "mine"]},
        "status": {"phase": phase},
    }


LIST_ONLY = ResourceType("example.com", "v1", "things", "Thing")


def served(*verbs: str) -> Object:
    return {"found": Discovery([ServedResource(LIST_ONLY, frozenset(verbs), True)])}


def test_a_namespace_is_looked_at_five_seconds_after_its_deletion() -> None:
    [watch] = NamespaceController().watches
    assert list(watch.keys(None, terminating(), NOTHING)) == [Later("n", 5.0)]
    alive = {"metadata": {"name": "n"}}
    assert list(watch.keys(None, alive, NOTHING)) == []


def test_objects_go_one_by_one_where_collections_cannot() -> None:
    listed = [{"metadata": {"name": name}} for name in "ab"]

    def answer(action: Action) -> Answer:
        nonlocal listed
        if isinstance(action, Discover):
            return served("delete", "list")
        if isinstance(action, ListLive):
            found, listed = listed, []
            return {"items": found}
        return terminating() if isinstance(action, Get) else {}

    asked, _ = drive(NamespaceController().reconcile("n", NOTHING, NOW_S), answer)
    assert [each for each in asked if isinstance(each, Delete)] == [
        Delete(LIST_ONLY, "n", name, propagation="Background") for name in "ab"
    ]
    [final] = [
        each for each in asked if isinstance(each, Update) and each.subresource == "finalize"
    ]
    assert final.obj["spec"]["finalizers"] == ["mine"]


def test_what_cannot_be_deleted_is_reported_and_tried_again() -> None:
    def answer(action: Action) -> Answer:
        if isinstance(action, Discover):
            return served("delete", "list")
        if isinstance(action, ListLive):
            return refusal(403, "no")
        if isinstance(action, Get):
            return terminating()
        told.extend([action.obj] if isinstance(action, Update) else [])
        return action.obj if isinstance(action, Update) else {}

    told: list[Object] = []
    with pytest.raises(NamespaceContentError):
        drive(NamespaceController().reconcile("n", NOTHING, NOW_S), answer)
    [status] = [each["status"] for each in told]
    rows = {each["type"]: each for each in status["conditions"]}
    assert rows["NamespaceDeletionContentFailure"]["message"] == (
        "Failed to delete all resource types, 1 remaining: no"
    )


@pytest.mark.parametrize(
    ("fresh", "writes"), [(terminating(), 2), (terminating(uid="other"), 1), (None, 1)]
)
def test_a_write_that_meets_another_is_made_anew_if_it_is_the_same_namespace(
    fresh: Object | None, writes: int
) -> None:
    tried = 0

    def answer(action: Action) -> Answer:
        nonlocal tried
        if isinstance(action, Get):
            if not tried:
                return terminating("Active")
            return fresh if fresh is not None else refusal(404)
        if isinstance(action, Discover):
            return {"found": Discovery([])}
        if isinstance(action, Update) and action.subresource != "finalize":
            tried += 1
            return refusal(409) if tried == 1 else action.obj
        return {}

    drive(NamespaceController().reconcile("n", NOTHING, NOW_S), answer)
    assert tried == writes


# Quotas.


def quota(name: str, *hard: str) -> Object:
    meta = {"name": name, "namespace": "n"}
    return {"metadata": meta, "spec": {"hard": dict.fromkeys(hard, "1")}}


QUOTAS = view_of(
    {
        RESOURCE_QUOTAS: [
            quota("pods", "pods"),
            quota("services", "services.loadbalancers"),
            quota("claims", "requests.storage"),
            quota("quotas", "resourcequotas"),
        ]
    }
)


def thing(phase: str = "Running", **spec: Any) -> Object:
    meta = {"name": "x", "namespace": "n"}
    return {"metadata": meta, "spec": spec, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("resource", "old", "new", "keys"),
    [
        (PODS, None, thing(), []),
        (PODS, thing(), None, ["n/pods"]),
        (PODS, thing(), thing(), []),
        (PODS, thing(), thing("Succeeded"), ["n/pods"]),
        (PODS, thing(), thing(activeDeadlineSeconds=1), ["n/pods"]),
        (SERVICES, thing(type="LoadBalancer"), thing(type="ClusterIP"), ["n/services"]),
        (PERSISTENT_VOLUME_CLAIMS, thing("Pending"), thing("Bound"), ["n/claims"]),
        (RESOURCE_QUOTAS, None, quota("pods", "pods"), ["n/pods"]),
        (RESOURCE_QUOTAS, quota("pods", "pods"), quota("pods", "pods"), []),
        (RESOURCE_QUOTAS, quota("pods"), quota("pods", "pods"), ["n/pods"]),
        (RESOURCE_QUOTAS, quota("gone"), None, ["n/quotas"]),
    ],
)
def test_which_quotas_a_change_concerns(
    resource: ResourceType, old: Object | None, new: Object | None, keys: list[str]
) -> None:
    [watch] = [each for each in ResourceQuotaController(300.0).watches if each.resource == resource]
    assert list(watch.keys(old, new, QUOTAS)) == keys


def test_a_quota_that_is_right_is_not_written() -> None:
    controller = ResourceQuotaController(300.0)
    own = quota("q", "resourcequotas")
    right = {**own, "status": {"hard": {"resourcequotas": "1"}, "used": {"resourcequotas": "1"}}}
    objects: dict[ResourceType, list[Object]] = {each.resource: [] for each in controller.watches}
    view = view_of({**objects, RESOURCE_QUOTAS: [right]})
    assert drive(controller.reconcile("n/q", view, NOW_S))[0] == []


# Accounts and tokens.


def namespace(phase: str = "Active") -> Object:
    return {"metadata": {"name": "n"}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("phase", "accounts", "count"),
    [
        ("Active", [], 1),
        ("Terminating", [], 0),
        ("Active", [{"metadata": {"name": "default", "namespace": "n"}}], 0),
        ("Active", [{"metadata": {"name": "other", "namespace": "n"}}], 1),
    ],
)
def test_every_active_namespace_has_an_account(
    phase: str, accounts: list[Object], count: int
) -> None:
    view = view_of({NAMESPACES: [namespace(phase)], SERVICE_ACCOUNTS: accounts})
    asked, _ = drive(ServiceAccountController().reconcile("n", view, NOW_S))
    assert [type(each) for each in asked] == [Create] * count


def test_an_account_that_goes_comes_again() -> None:
    _, watch = ServiceAccountController().watches
    account = {"metadata": {"name": "default", "namespace": "n"}}
    assert list(watch.keys(account, None, NOTHING)) == ["n"]
    view = view_of({NAMESPACES: [namespace()], SERVICE_ACCOUNTS: []})
    drive(ServiceAccountController().reconcile("n", view, NOW_S), lambda _: refusal(409))
    with pytest.raises(ApiError):
        drive(ServiceAccountController().reconcile("n", view, NOW_S), lambda _: refusal(403))


def tokens() -> AccountTokens:
    return AccountTokens(new_authority("ca", 0.0).key, "pem")


def secret(uid: str = "") -> Object:
    annotations = {"kubernetes.io/service-account.name": "bot"}
    if uid:
        annotations["kubernetes.io/service-account.uid"] = uid
    meta = {"name": "t", "namespace": "n", "uid": "u-t", "resourceVersion": "1"}
    return {
        "metadata": {**meta, "annotations": annotations},
        "type": "kubernetes.io/service-account-token",
    }


def bot(**more: Any) -> Object:
    return {"metadata": {"name": "bot", "namespace": "n", "uid": "u-bot"}, **more}


@pytest.mark.parametrize(
    ("accounts", "uid", "goes"),
    [([], "", True), ([bot()], "", False), ([bot()], "u-bot", False), ([bot()], "older", True)],
)
def test_tokens_go_with_their_account(accounts: list[Object], uid: str, *, goes: bool) -> None:
    controller = tokens()
    view = view_of({SECRETS: [secret(uid)], SERVICE_ACCOUNTS: accounts}, controller.indexes)
    asked, _ = drive(controller.reconcile("account/n/bot", view, NOW_S))
    assert asked == ([Delete(SECRETS, "n", "t", uid="u-t")] if goes else [])


def test_an_account_that_no_watch_has_shown_is_asked_for() -> None:
    controller = tokens()
    view = view_of({SECRETS: [secret()], SERVICE_ACCOUNTS: []}, controller.indexes)

    def answer(action: Action) -> Answer:
        if isinstance(action, Get):
            return bot() if action.resource == SERVICE_ACCOUNTS else secret()
        return {}

    asked, _ = drive(controller.reconcile("secret/n/t", view, NOW_S), answer)
    assert [type(each) for each in asked] == [Get, Get, Update]


def test_a_secret_that_is_gone_is_no_longer_listed() -> None:
    controller = tokens()
    account = bot(secrets=[{"name": "t"}, {"name": "kept"}])
    view = view_of({SECRETS: [], SERVICE_ACCOUNTS: [account]}, controller.indexes)
    [written], _ = drive(controller.reconcile("secret/n/t", view, NOW_S))
    assert isinstance(written, Update)
    assert written.obj["secrets"] == [{"name": "kept"}]


# Aggregated roles.


def test_any_role_has_all_aggregated_ones_looked_at() -> None:
    roles = [
        {"metadata": {"name": "a"}, "aggregationRule": {}},
        {"metadata": {"name": "b"}},
    ]
    [watch] = RoleAggregation().watches
    assert list(watch.keys(None, roles[1], view_of({CLUSTER_ROLES: roles}))) == ["a"]


def test_rules_are_applied_with_force() -> None:
    rule = {"verbs": ["get"]}
    selector = {"matchLabels": {"x": "y"}}
    roles: list[dict[str, Any]] = [
        {"metadata": {"name": "a"}, "aggregationRule": {"clusterRoleSelectors": [selector]}},
        {"metadata": {"name": "b", "labels": {"x": "y"}}, "rules": [rule, rule]},
    ]
    [patch], _ = drive(RoleAggregation().reconcile("a", view_of({CLUSTER_ROLES: roles}), NOW_S))
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    assert patch.body["rules"] == [rule]
    assert patch.force
    assert patch.field_manager == "clusterrole-aggregation-controller"
