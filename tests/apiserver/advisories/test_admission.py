"""What is written: checks that were passed by another way of writing the same.

Each test opens with the advisory, in our own words, or with the attack.
"""

import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.core.group_resources import SERVICES
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apiserver.policy.admission.chain import AdmissionChain
from kvstack.apiserver.policy.admission.plugins.optional.deny_service_external_ips import (
    DenyServiceExternalIPs,
)
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest
from kvstack.apiserver.policy.authorization.rbac.bootstrap import default_objects
from tests.apiserver.advisories.target import BOB, Target

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CERTIFICATES = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
JSON = "application/json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
NODE = [("Impersonate-User", "system:node:n1"), ("Impersonate-Group", "system:nodes")]


def subject(name: str) -> dict[str, str]:
    return {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}


def reference(kind: str, name: str) -> dict[str, str]:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}


def allow(target: Target, name: str, rule: dict[str, Any], namespace: str = "") -> None:
    """Give bob a role, in a namespace or everywhere."""
    target.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    place = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
    bound = {"subjects": [subject("bob")], "roleRef": reference("ClusterRole", name)}
    target.create(f"{RBAC}/{place}", {"metadata": {"name": name}, **bound})


def pod(name: str, **spec: Any) -> dict[str, Any]:
    made = {"containers": [{"name": "c", "image": "i"}], **spec}
    return {"metadata": {"name": name}, "spec": made}


def namespace(target: Target, name: str, **metadata: Any) -> str:
    """Make a namespace with a service account, and return its path."""
    path = f"/api/v1/namespaces/{name}"
    target.create("/api/v1/namespaces", {"metadata": {"name": name, **metadata}})
    account = {"metadata": {"name": "default"}, "automountServiceAccountToken": False}
    target.create(f"{path}/serviceaccounts", account)
    return path


SECRET_USES: dict[str, dict[str, Any]] = {
    "env": {"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
    "envFrom": {"envFrom": [{"secretRef": {"name": "s"}}]},
}


@pytest.mark.parametrize("use", SECRET_USES)
def test_cve_2023_2728_and_2024_3177_secrets_by_other_containers(target: Target, use: str) -> None:
    """Who was restricted to the Secrets of a service account took others by ephemeral containers,
    or by envFrom."""
    path = namespace(target, f"mountable-{use.lower()}")
    account = {"metadata": {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}}
    name = f"{path}/serviceaccounts/default"
    assert target.ask("PATCH", name, account, content_type=MERGE).code == 200
    target.create(f"{path}/pods", pod("web"))
    container = {"name": "x", "image": "i", **SECRET_USES[use]}
    for member in ("containers", "initContainers"):
        reply = target.ask("POST", f"{path}/pods", pod("other", **{member: [container]}))
        assert reply.code in {403, 422}, reply
        assert b"does not reference that secret" in reply.body or reply.code == 422
    ephemeral = {"spec": {"ephemeralContainers": [{**container, "name": "debug"}]}}
    for kind in (MERGE, "application/strategic-merge-patch+json"):
        place = f"{path}/pods/web/ephemeralcontainers"
        reply = target.ask("PATCH", place, ephemeral, content_type=kind)
        assert reply.code >= 400
        assert b"does not reference that secret" in reply.body
    assert "ephemeralContainers" not in target.ask("GET", f"{path}/pods/web").json["spec"]


def test_cve_2023_1260_privileges_by_ephemeral_containers(target: Target) -> None:
    """Containers that are added to a running pod passed by the checks of the pod."""
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    path = namespace(target, "guarded", labels=labels)
    target.create(f"{path}/pods", pod("web"))
    privileged = {"name": "d", "image": "i", "securityContext": {"privileged": True}}
    reply = target.ask("POST", f"{path}/pods", pod("other", containers=[privileged]))
    assert reply.code == 403
    body = {"spec": {"ephemeralContainers": [privileged]}}
    place = f"{path}/pods/web/ephemeralcontainers"
    for kind in (MERGE, "application/strategic-merge-patch+json"):
        reply = target.ask("PATCH", place, body, content_type=kind)
        assert reply.code == 403, reply
        assert b"violates PodSecurity" in reply.body
    # The pod itself takes none, whatever is sent.
    target.ask("PATCH", f"{path}/pods/web", body, content_type=MERGE)
    assert "ephemeralContainers" not in target.ask("GET", f"{path}/pods/web").json["spec"]


@pytest.fixture(scope="module")
def node(target: Target) -> str:
    """A node, and the right of its kubelet to what kubelets do."""
    target.create("/api/v1/nodes", {"metadata": {"name": "n1"}}, headers=NODE)
    return "/api/v1/nodes/n1"


def test_cve_2025_5187_a_node_that_removes_itself(target: Target, node: str) -> None:
    """A node gave itself an owner that is not there, so that it was collected and came again with
    other labels and taints."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "1"}
    body = {"metadata": {"ownerReferences": [owner]}}
    for place in (node, f"{node}/status"):
        reply = target.ask("PATCH", place, body, headers=NODE, content_type=MERGE)
        assert reply.code == 403, reply
        assert b"not allowed to modify ownerReferences" in reply.body
    assert target.ask("DELETE", node, headers=NODE).code == 403


@pytest.mark.parametrize(
    "body",
    [
        {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
        {"metadata": {"labels": {"node-restriction.kubernetes.io/a": "b"}}},
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
    ],
)
def test_a_node_that_draws_pods(target: Target, node: str, body: dict[str, Any]) -> None:
    """A node must not choose labels and taints by which pods come to it."""
    for place in (node, f"{node}/status"):
        for kind in (MERGE, "application/strategic-merge-patch+json"):
            reply = target.ask("PATCH", place, body, headers=NODE, content_type=kind)
            assert reply.code == 403, reply
    assert target.ask("PATCH", "/api/v1/nodes/n2", body, headers=NODE, content_type=MERGE).code in {
        403,
        404,
    }


def test_cve_2025_4563_a_mirror_pod_with_devices(target: Target, node: str) -> None:
    """A node got devices that others had claimed, by a mirror pod that names the claim."""
    uid = target.ask("GET", node).json["metadata"]["uid"]
    path = namespace(target, "mirrors")
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": True}
    mirror = pod("static", nodeName="n1")
    mirror["metadata"] |= {
        "annotations": {"kubernetes.io/config.mirror": "x"},
        "ownerReferences": [owner],
    }
    claims = [{"name": "d", "resourceClaimName": "of-others"}]
    claimed = {**mirror, "spec": {**mirror["spec"], "resourceClaims": claims}}
    reply = target.ask("POST", f"{path}/pods", claimed, headers=NODE)
    assert reply.code == 403
    assert b"can not create pods that reference resourceclaims" in reply.body
    target.create(f"{path}/pods", mirror, headers=NODE)
    # Nor does a mirror pod give the node what it names.
    claim = f"/apis/resource.k8s.io/v1/namespaces/mirrors/resourceclaims/{claims[0]['name']}"
    assert target.ask("GET", claim, headers=NODE).code == 403


def test_cve_2021_25735_what_validation_saw_of_a_node(
    target: Target, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Validating admission was shown fields of the new node as if they had been the old one's, so
    that changes were not seen."""
    seen: list[Any] = []
    plugin = next(
        each
        for each in target.server.env.admission.plugins  # type: ignore[attr-defined]
        if each.name == "NodeRestriction"
    )
    check = plugin.mutate

    def spy(request: Any) -> Any:
        seen.append(request)
        return check(request)

    monkeypatch.setattr(type(plugin), "mutate", lambda _self, request: spy(request))
    target.server.env.admission._hooks.clear()  # type: ignore[attr-defined]
    stored = target.ask("GET", node).json
    changed = {**stored, "spec": {"unschedulable": True, "podCIDR": "10.1.0.0/24"}}
    changed["metadata"] = {**stored["metadata"], "labels": {"a": "b"}}
    assert target.ask("PUT", node, changed).code == 200
    (request,) = seen
    assert request.old["spec"] == stored["spec"]
    assert request.old["metadata"] == stored["metadata"]
    assert request.object["spec"]["unschedulable"] is True


def test_cve_2021_25740_endpoints_are_not_everybodys() -> None:
    """Who may edit a namespace led traffic elsewhere by writing endpoints."""
    writes = {"create", "update", "patch", "delete", "*"}
    resources = {"endpoints", "endpointslices", "*"}
    for _, obj in default_objects():
        name = obj["metadata"]["name"]
        if obj["kind"] != "ClusterRole" or not name.startswith("system:aggregate-to-"):
            continue
        for rule in obj["rules"] or ():
            named = resources & set(rule.get("resources", ()))
            assert not (named and writes & set(rule["verbs"])), (name, rule)


# Nobody grants more than they have.


@pytest.fixture(scope="module")
def grants(target: Target) -> str:
    """The path of a namespace whose roles and bindings bob keeps, and has a role `own`."""
    path = namespace(target, "grants")
    group, verbs = "rbac.authorization.k8s.io", ["get", "list", "create", "update", "patch"]
    less = {"apiGroups": [group], "resources": ["roles", "rolebindings"]}
    allow(target, "keeper", {**less, "verbs": [*verbs, "delete"]}, "grants")
    empty: dict[str, Any] = {"metadata": {"name": "own"}, "rules": []}
    target.create(f"{RBAC}/namespaces/grants/roles", empty, token=BOB)
    return path


def test_roles_that_grant_more(target: Target, grants: str) -> None:
    """By create, update, patch, apply and as a dry run."""
    rule = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["*"]}
    roles = f"{RBAC}/namespaces/grants/roles"
    wide = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    empty: dict[str, Any] = {"metadata": {"name": "own"}, "rules": []}
    for granted in (wide, rule):
        full = {**empty, "rules": [granted]}
        typed = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", **full}
        for method, place, body, kind in (
            ("POST", roles, {**full, "metadata": {"name": "new"}}, "application/json"),
            ("POST", f"{roles}?dryRun=All", {**full, "metadata": {"name": "new"}}, JSON),
            ("PUT", f"{roles}/own", full, "application/json"),
            ("PATCH", f"{roles}/own", full, MERGE),
            ("PATCH", f"{roles}/own", full, "application/strategic-merge-patch+json"),
            (
                "PATCH",
                f"{roles}/own",
                [{"op": "add", "path": "/rules", "value": [granted]}],
                "application/json-patch+json",
            ),
            ("PATCH", f"{roles}/own?fieldManager=m&force=true", typed, APPLY),
            ("PATCH", f"{roles}/new?fieldManager=m", {**typed, "metadata": {"name": "new"}}, APPLY),
        ):
            reply = target.ask(method, place, body, token=BOB, content_type=kind)
            assert reply.code == 403, (method, place, reply)
            assert b"attempting to grant RBAC permissions not currently held" in reply.body
    assert target.ask("GET", f"{grants}/secrets", token=BOB).code == 403


@pytest.mark.usefixtures("grants")
def test_bindings_to_more(target: Target) -> None:
    """Nor by binding a role that others made, or one that does not exist yet."""
    bindings = f"{RBAC}/namespaces/grants/rolebindings"
    for kind, name in (
        ("ClusterRole", "cluster-admin"),
        ("ClusterRole", "system:aggregate-to-view"),
    ):
        bound = {"subjects": [subject("bob")], "roleRef": reference(kind, name)}
        made = {"metadata": {"name": name}, **bound}
        assert target.ask("POST", bindings, made, token=BOB).code == 403
    later = {"subjects": [subject("bob")], "roleRef": reference("Role", "later")}
    reply = target.ask("POST", bindings, {"metadata": {"name": "later"}, **later}, token=BOB)
    assert reply.code == 404
    # A binding cannot be made to lead to another role.
    role = {"metadata": {"name": "own"}, **later, "roleRef": reference("Role", "own")}
    target.create(bindings, role, token=BOB)
    moved = {"roleRef": reference("ClusterRole", "cluster-admin")}
    reply = target.ask("PATCH", f"{bindings}/own", moved, token=BOB, content_type=MERGE)
    assert reply.code in {403, 422}


def signing_request(name: str, groups: list[str], signer: str) -> dict[str, Any]:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
    parts.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(parts))
    key = ec.generate_private_key(ec.SECP256R1())
    made = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    spec = {"request": base64.b64encode(made).decode(), "signerName": signer}
    return {"metadata": {"name": "mine"}, "spec": {**spec, "usages": ["client auth"]}}


def test_certificates_for_more(target: Target) -> None:
    """Nobody gets a certificate of the privileged group, and only who may approves and signs."""
    verbs = ["create", "get", "update", "patch"]
    resources = [f"certificatesigningrequests{each}" for each in ("", "/approval", "/status")]
    group = "certificates.k8s.io"
    allow(target, "asker", {"apiGroups": [group], "resources": resources, "verbs": verbs})
    signer = "kubernetes.io/kube-apiserver-client"
    reply = target.ask("POST", CERTIFICATES, signing_request("x", ["system:masters"], signer))
    assert reply.code == 403
    asked = target.create(CERTIFICATES, signing_request("x", [], signer), token=BOB)
    assert asked["spec"]["username"] == "bob"
    condition = {"type": "Approved", "status": "True", "reason": "me"}
    for place, status in (
        ("approval", {"conditions": [condition]}),
        ("status", {"certificate": base64.b64encode(b"x").decode()}),
        ("status", {"conditions": [{**condition, "type": "Failed"}]}),
    ):
        body = {**asked, "status": status}
        for method, kind in (("PUT", "application/json"), ("PATCH", MERGE)):
            where = f"{CERTIFICATES}/mine/{place}"
            reply = target.ask(method, where, body, token=BOB, content_type=kind)
            assert reply.code in {403, 422}, (place, method, reply)
    forged = signing_request("x", [], signer)
    forged["metadata"]["name"] = "forged"
    forged["spec"] |= {"username": "admin", "groups": ["system:masters"], "uid": "0"}
    made = target.create(CERTIFICATES, forged, token=BOB)
    assert made["spec"]["username"] == "bob"
    assert "system:masters" not in made["spec"]["groups"]


def test_reviews_for_others(target: Target) -> None:
    """Who may not ask about others is told only about themselves."""
    reviews = "/apis/authorization.k8s.io/v1"
    attributes = {"verb": "get", "resource": "secrets"}
    spec = {"user": "admin", "groups": ["system:masters"], "resourceAttributes": attributes}
    asked = target.ask("POST", f"{reviews}/subjectaccessreviews", {"spec": spec}, token=BOB)
    assert asked.code == 403
    own = target.create(f"{reviews}/selfsubjectaccessreviews", {"spec": spec}, token=BOB)
    assert own["status"] == {"allowed": False}
    body = {"spec": {"token": "admin-token"}}
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    assert target.ask("POST", path, body, token=BOB).code == 403


def test_cve_2020_8554_addresses_of_others() -> None:
    """A Service takes the traffic to any address that it names. It is so by design; the plugin
    DenyServiceExternalIPs takes the right away, also by update and by apply."""
    chain = AdmissionChain([DenyServiceExternalIPs()])
    old = {"metadata": {"name": "s"}, "spec": {"externalIPs": ["192.0.2.1"]}}
    more = {"metadata": {"name": "s"}, "spec": {"externalIPs": ["192.0.2.1", "192.0.2.2"]}}
    for operation, new, before, is_refused in (
        (CREATE, old, None, True),
        (UPDATE, more, old, True),
        (UPDATE, old, old, False),
        (UPDATE, old, more, False),
    ):
        request = AdmissionRequest(
            operation, User("bob"), SERVICES, Kind("", "v1", "Service"), object=new, old=before
        )
        assert chain.handles(operation, SERVICES, "")
        if is_refused:
            with pytest.raises(ApiError):
                chain.validate(request)
        else:
            chain.validate(request)
