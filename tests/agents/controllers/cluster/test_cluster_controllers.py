"""Namespaces, quotas, tokens, aggregated roles: what each asks of the server."""

import base64
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kvstack.agents.client.built_in import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
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
from kvstack.agents.controllers.cluster.bootstrap_tokens import TokenCleaner, signature
from kvstack.agents.controllers.cluster.namespaces import (
    NamespaceContentError,
    NamespaceController,
)
from kvstack.agents.controllers.cluster.resource_quotas import ResourceQuotaController
from kvstack.agents.controllers.cluster.role_aggregation import RoleAggregation
from kvstack.agents.controllers.cluster.root_ca import RootCaPublisher
from kvstack.agents.reconcile.plan import (
    Action,
    Again,
    Create,
    Delete,
    DeleteCollection,
    Discover,
    Get,
    ListLive,
    Patch,
    Plan,
    Update,
)
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.support.plans import Answer, drive, refusal, view_of

NOW_S = 1_700_000_000.0
DELETED = "2023-11-14T22:13:20Z"  # NOW_S


# Namespaces.


class Emptying:
    """A server with a namespace that goes."""

    def __init__(self) -> None:
        meta = {"name": "n", "uid": "u", "resourceVersion": "1", "deletionTimestamp": DELETED}
        self.namespace: Object = {
            "metadata": meta,
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }
        self.left: dict[ResourceType, list[Object]] = {}
        self.failures: dict[str, str] = {}
        self.asked: list[Action] = []

    def answer(self, action: Action) -> Answer:
        self.asked.append(action)
        if isinstance(action, Get):
            return self.namespace
        if isinstance(action, Discover):
            verbs = frozenset(("delete", "deletecollection"))
            served = [
                ServedResource(CONFIG_MAPS, verbs, True),
                ServedResource(PODS, verbs, True),
                ServedResource(SERVICES, frozenset(("delete",)), True),
            ]
            return {"found": Discovery(served, self.failures)}
        if isinstance(action, ListLive):
            return {"items": self.left.get(action.resource, [])}
        return action.obj if isinstance(action, Update) else {}

    def sync(self, now_s: float = NOW_S) -> Again | None:
        plan: Plan = NamespaceController().reconcile("n", view_of({NAMESPACES: []}), now_s)
        _, again = drive(plan, self.answer)
        assert again is None or isinstance(again, Again)
        return again

    def conditions(self) -> dict[str, tuple[str, str]]:
        """Return what was told last: status and message."""
        told = [
            each.obj["status"]["conditions"]
            for each in self.asked
            if isinstance(each, Update) and "conditions" in (each.obj.get("status") or {})
        ]
        return {each["type"]: (each["status"], each["message"]) for each in told[-1]}

    @property
    def emptied(self) -> list[ResourceType]:
        return [each.resource for each in self.asked if isinstance(each, DeleteCollection)]

    @property
    def is_finalized(self) -> bool:
        return any(
            isinstance(each, Update) and each.subresource == "finalize" for each in self.asked
        )


def test_an_empty_namespace_goes() -> None:
    server = Emptying()
    assert server.sync() is None
    assert server.emptied == [PODS, CONFIG_MAPS]
    assert server.is_finalized
    assert {status for status, _ in server.conditions().values()} == {"False"}


def test_pods_go_first() -> None:
    """Nothing else is touched meanwhile; it is looked again after half of their grace."""
    server = Emptying()
    pod = {"metadata": {"name": "p"}, "spec": {"terminationGracePeriodSeconds": 30}}
    server.left[PODS] = [pod]
    assert server.sync() == Again(16)
    assert server.emptied == [PODS]
    assert not server.is_finalized


def test_pods_that_outlive_their_grace() -> None:
    server = Emptying()
    server.left[PODS] = [{"metadata": {"name": "p"}, "spec": {"terminationGracePeriodSeconds": 5}}]
    with pytest.raises(NamespaceContentError):
        server.sync(NOW_S + 6)
    text = "unexpected items still remain in namespace: n for gvr: /v1, Resource=pods"
    assert server.conditions()["NamespaceDeletionContentFailure"][1].endswith(text)


def test_finalizers_hold_it() -> None:
    server = Emptying()
    server.left[CONFIG_MAPS] = [{"metadata": {"name": "c", "finalizers": ["f"]}}]
    assert server.sync() == Again(8)
    told = server.conditions()
    text = "Some resources are remaining: configmaps. has 1 resource instances"
    assert told["NamespaceContentRemaining"] == ("True", text)
    text = "Some content in the namespace has finalizers remaining: f in 1 resource instances"
    assert told["NamespaceFinalizersRemaining"] == ("True", text)


def test_what_cannot_be_seen_holds_it() -> None:
    server = Emptying()
    server.failures = {"metrics.k8s.io/v1": "stale GroupVersion discovery: metrics.k8s.io/v1"}
    with pytest.raises(NamespaceContentError):
        server.sync()
    assert server.conditions()["NamespaceDeletionDiscoveryFailure"][0] == "True"
    assert server.emptied == [PODS, CONFIG_MAPS]  # what can be seen goes all the same
    assert not server.is_finalized


# The root CA.


def test_the_bundle_is_put_right() -> None:
    active = {"metadata": {"name": "n"}, "status": {"phase": "Active"}}
    meta = {"name": "kube-root-ca.crt", "namespace": "n", "annotations": {"a": "b"}}
    wrong = {"metadata": meta, "data": {"ca.crt": "other"}}
    publisher = RootCaPublisher("pem")
    view = view_of({NAMESPACES: [active], CONFIG_MAPS: []})
    [made], _ = drive(publisher.reconcile("n", view, NOW_S))
    assert isinstance(made, Create)
    assert made.obj["data"] == {"ca.crt": "pem"}
    view = view_of({NAMESPACES: [active], CONFIG_MAPS: [wrong]})
    [written], _ = drive(publisher.reconcile("n", view, NOW_S))
    assert isinstance(written, Update)
    assert written.obj["data"] == {"ca.crt": "pem"}
    assert written.obj["metadata"]["annotations"].keys() == {"a", "kubernetes.io/description"}


# Quotas.


def test_usage_is_counted() -> None:
    """Ended pods use nothing but their place in the store; names without objects are zero."""
    hard = {"pods": "5", "count/pods": "5", "requests.cpu": "2", "services": "1"}
    quota = {"metadata": {"name": "q", "namespace": "n"}, "spec": {"hard": hard}}
    pods = []
    for name, phase in (("a", "Running"), ("b", "Succeeded")):
        container = {"name": "c", "resources": {"requests": {"cpu": "500m"}}}
        meta = {"name": name, "namespace": "n"}
        pods.append(
            {"metadata": meta, "spec": {"containers": [container]}, "status": {"phase": phase}}
        )
    claims = ResourceType("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
    view = view_of(
        {
            RESOURCE_QUOTAS: [quota],
            PODS: pods,
            SERVICES: [],
            PERSISTENT_VOLUME_CLAIMS: [],
            claims: [],
            CUSTOM_RESOURCE_DEFINITIONS: [],
        }
    )
    [written], again = drive(ResourceQuotaController(300.0).reconcile("n/q", view, NOW_S))
    assert isinstance(written, Update)
    assert written.obj["status"] == {
        "hard": hard,
        "used": {"pods": "1", "count/pods": "2", "requests.cpu": "500m", "services": "0"},
    }
    assert again == Again(300.0, is_routine=True)


# Tokens.


def key_pem() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def token_secret(**meta: Any) -> Object:
    annotations = {"kubernetes.io/service-account.name": "bot"}
    found = {"name": "t", "namespace": "n", "uid": "u-t", "resourceVersion": "1", **meta}
    return {
        "metadata": {"annotations": annotations, **found},
        "type": "kubernetes.io/service-account-token",
    }


def test_a_token_is_filled_in() -> None:
    account = {"metadata": {"name": "bot", "namespace": "n", "uid": "u-bot"}}
    controller = AccountTokens(key_pem(), "pem")
    secret = token_secret()
    view = view_of({SECRETS: [secret], SERVICE_ACCOUNTS: [account]}, controller.indexes)
    asked, _ = drive(controller.reconcile("secret/n/t", view, NOW_S), lambda _action: secret)
    written = asked[-1]
    assert isinstance(written, Update)
    data = {name: base64.b64decode(text) for name, text in written.obj["data"].items()}
    assert (data["ca.crt"], data["namespace"]) == (b"pem", b"n")
    claims = jwt.decode(data["token"], options={"verify_signature": False})
    assert claims == {
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:n:bot",
        "kubernetes.io/serviceaccount/namespace": "n",
        "kubernetes.io/serviceaccount/secret.name": "t",
        "kubernetes.io/serviceaccount/service-account.name": "bot",
        "kubernetes.io/serviceaccount/service-account.uid": "u-bot",
    }


def test_a_token_without_its_account_goes() -> None:
    controller = AccountTokens(key_pem(), "pem")
    view = view_of({SECRETS: [token_secret()], SERVICE_ACCOUNTS: []}, controller.indexes)
    asked, _ = drive(controller.reconcile("secret/n/t", view, NOW_S), lambda action: refusal(404))
    assert asked[-1] == Delete(SECRETS, "n", "t", uid="u-t")


def test_a_signature_is_a_detached_jws() -> None:
    """The value is one that upstream's signer wrote."""
    content = "apiVersion: v1\nkind: Config\n"
    assert signature(content, "abcdef", "0123456789abcdef") == (
        "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..vH_kT4yiol-nrAWgjfCYqvum5wsKETXe0S7OOp1VgnE"
    )


def test_tokens_end() -> None:
    def secret(until: str) -> Object:
        meta = {"name": "bootstrap-token-abcdef", "namespace": "kube-system", "uid": "u"}
        data = {"expiration": base64.b64encode(until.encode()).decode()}
        return {"metadata": meta, "type": "bootstrap.kubernetes.io/token", "data": data}

    key = "kube-system/bootstrap-token-abcdef"
    view = view_of({SECRETS: [secret("2023-11-14T22:13:30Z")]})
    assert drive(TokenCleaner().reconcile(key, view, NOW_S)) == ([], Again(10.0))
    [deleted], _ = drive(TokenCleaner().reconcile(key, view, NOW_S + 10))
    assert isinstance(deleted, Delete)
    unreadable = view_of({SECRETS: [secret("tomorrow")]})
    [deleted], _ = drive(TokenCleaner().reconcile(key, unreadable, NOW_S))
    assert isinstance(deleted, Delete)


# Roles.


def test_rules_are_gathered() -> None:
    def role(name: str, label: str, verb: str) -> Object:
        rule = {"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}
        return {"metadata": {"name": name, "labels": {label: "true"}}, "rules": [rule]}

    selectors = [{"matchLabels": {"b": "true"}}, {"matchLabels": {"a": "true"}}]
    total = {
        "metadata": {"name": "sum", "labels": {"a": "true"}},
        "aggregationRule": {"clusterRoleSelectors": selectors},
    }
    roles = [role("z", "a", "get"), role("x", "a", "list"), role("y", "b", "get"), total]
    view = view_of({CLUSTER_ROLES: roles})
    [patch], _ = drive(RoleAggregation().reconcile("sum", view, NOW_S))
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    assert [each["verbs"] for each in patch.body["rules"]] == [["get"], ["list"]]
    assert (patch.field_manager, patch.force) == ("clusterrole-aggregation-controller", True)
