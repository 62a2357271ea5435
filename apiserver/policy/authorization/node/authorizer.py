"""The Node authorizer.

    secrets, configmaps     read by name, if a pod on the node needs them
    claims, volumes, …      get, if they are of a pod on the node
    leases, csinodes        those with the node's own name
    nodes, pods             its own; NodeRestriction checks the contents of writes
    anything else           what the role `system:node` allows

It never denies: another authorizer may allow what it does not, and its reason is reported if none
does.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias

from kvstack.apimachinery.attributes import Attributes, User
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.policy.authorization.chain import ALLOWED
from kvstack.apiserver.policy.authorization.node.graph import NodeGraph
from kvstack.apiserver.policy.authorization.node.identity import node_of
from kvstack.apiserver.policy.authorization.rbac.rules import Rule
from kvstack.apiserver.policy.authorization.user_rules import UserRules
from kvstack.apiserver.policy.interfaces import NO_OPINION, Decision

LEASES_NAMESPACE: Final = "kube-node-lease"

_OWN: Final = frozenset(("get", "create", "update", "patch", "delete"))
_READS: Final = frozenset(("get", "list", "watch"))
_LISTS: Final = frozenset(("list", "watch"))
_UPDATES: Final = frozenset(("update", "patch"))
_NODE_NAME: Final = "spec.nodeName"

_Judge: TypeAlias = Callable[["NodeAuthorizer", str, Attributes], Decision]


class NodeAuthorizer:
    """Allows nodes what they need; it has no opinion on other users."""

    name = "node"
    """Prefix of its reasons."""

    def __init__(self, graph: NodeGraph, rules: Iterable[Rule]) -> None:
        """graph: the objects related to nodes; rules: of all nodes, for the rest."""
        self._graph: Final = graph
        self._rules: Final = tuple(rules)

    def authorize(self, attributes: Attributes) -> Decision:
        """Return whether the node may do it."""
        node = node_of(attributes.user)
        if node is None:
            return NO_OPINION
        if not node:
            return _refused(f"unknown node for user {quote(attributes.user.name)}")
        if attributes.is_resource:
            judge = _JUDGES.get(GroupResource(attributes.group, attributes.resource))
            if judge is not None:
                return judge(self, node, attributes)
        return ALLOWED if self._rules_allow(attributes) else NO_OPINION

    def user_rules(self, user: User, _namespace: str) -> UserRules:
        """Return that its rules are incomplete."""
        if node_of(user) is None:
            return UserRules()
        return UserRules((), ("node authorizer does not support user rule resolution",), True)

    def relation(self, node: str, attributes: Attributes) -> Decision:
        """Return whether a named object is related to a node."""
        if not attributes.name:
            return _refused("No Object name found")
        key = attributes.resource, attributes.namespace, attributes.name
        if self._graph.relates(node, key):
            return ALLOWED
        return _refused(f"no relationship found between node '{node}' and this object")

    def _rules_allow(self, attributes: Attributes) -> bool:
        verb, subresource = attributes.verb, attributes.subresource
        if not attributes.is_resource:
            return any(each.allows_path(verb, attributes.path) for each in self._rules)
        full = f"{attributes.resource}/{subresource}" if subresource else attributes.resource
        return any(
            each.allows_resource(verb, attributes.group, full, subresource)
            and (not each.names or attributes.name in each.names)
            for each in self._rules
        )


def _read_by_name(authorizer: NodeAuthorizer, node: str, attributes: Attributes) -> Decision:
    if attributes.verb not in _READS:
        return _refused("can only read resources of this type")
    if attributes.subresource:
        return _refused("cannot read subresource")
    if not attributes.namespace:
        return _refused("can only read namespaced object of this type")
    return authorizer.relation(node, attributes)


def _get(authorizer: NodeAuthorizer, node: str, attributes: Attributes) -> Decision:
    if attributes.verb != "get":
        return _refused("can only get individual resources of this type")
    if attributes.subresource:
        return _refused("cannot get subresource")
    return authorizer.relation(node, attributes)


def _claims(authorizer: NodeAuthorizer, node: str, attributes: Attributes) -> Decision:
    if attributes.subresource != "status":
        return _get(authorizer, node, attributes)
    if attributes.verb not in _UPDATES:
        return _refused("can only get/update/patch this type")
    return authorizer.relation(node, attributes)


def _service_accounts(authorizer: NodeAuthorizer, node: str, attributes: Attributes) -> Decision:
    if attributes.verb == "get" and not attributes.subresource:
        return _read_by_name(authorizer, node, attributes)
    if attributes.verb != "create" or not attributes.name:
        return _refused("can only create tokens for individual service accounts")
    if attributes.subresource != "token":
        return _refused("can only create token subresource of serviceaccount")
    return authorizer.relation(node, attributes)


def _leases(_authorizer: NodeAuthorizer, node: str, attributes: Attributes) -> Decision:
    if attributes.verb not in _OWN:
        return _refused("can only get, create, update, patch, or delete a node lease")
    if attributes.namespace != LEASES_NAMESPACE:
        return _refused(f"can only access leases in the {quote(LEASES_NAMESPACE)} system namespace")
    # A create has no name yet; NodeRestriction checks it.
    if attributes.verb != "create" and attributes.name != node:
        return _refused("can only access node lease with the same name as the requesting node")
    return ALLOWED


def _csi_nodes(_authorizer: NodeAuthorizer, node: str, attributes: Attributes) -> Decision:
    if attributes.subresource == "status":
        return _refused("CSINode status access requires CSIVolumeHealth feature")
    if attributes.subresource:
        return _refused("cannot authorize CSINode subresources")
    if attributes.verb not in _OWN:
        return _refused("can only get, create, update, patch, or delete a CSINode")
    if attributes.verb != "create" and attributes.name != node:
        return _refused("can only access CSINode with the same name as the requesting node")
    return ALLOWED


def _slices(authorizer: NodeAuthorizer, node: str, attributes: Attributes) -> Decision:
    verb = attributes.verb
    if attributes.subresource:
        return _refused("cannot authorize ResourceSlice subresources")
    if verb == "create":
        return ALLOWED
    if verb in {"get", "update", "patch", "delete"}:
        return authorizer.relation(node, attributes)
    if verb in {"watch", "list", "deletecollection"}:
        if _selects_node(attributes, node):
            return ALLOWED
        return _refused(
            "can only list/watch/deletecollection resourceslices with nodeName field selector"
        )
    return _refused(
        "only the following verbs are allowed for a ResourceSlice: get, watch, list, create,"
        " update, patch, delete, deletecollection"
    )


def _nodes(_authorizer: NodeAuthorizer, node: str, attributes: Attributes) -> Decision:
    verb, name = attributes.verb, attributes.name
    if attributes.subresource:
        return _allow_if(attributes.subresource == "status" and verb in _UPDATES)
    if verb not in _READS:
        return _allow_if(verb == "create" or verb in _UPDATES)
    if name == node:
        return ALLOWED
    what = f"'{name}'" if name else "all nodes"
    return _refused(f"node '{node}' cannot read {what}, only its own Node object")


def _pods(authorizer: NodeAuthorizer, node: str, attributes: Attributes) -> Decision:
    verb = attributes.verb
    if attributes.subresource:
        return _allow_if(verb in _WRITES_OF_PODS.get(attributes.subresource, ()))
    if verb == "get":
        return _get(authorizer, node, attributes)
    if verb in _LISTS:
        if _selects_node(attributes, node):
            return ALLOWED
        if attributes.name:
            return authorizer.relation(node, attributes)
        return _refused("can only list/watch pods with spec.nodeName field selector")
    return _allow_if(verb in {"create", "delete"})


def _pod_certificates(authorizer: NodeAuthorizer, node: str, attributes: Attributes) -> Decision:
    verb = attributes.verb
    if attributes.subresource:
        return _refused("nodes may not access the status subresource of PodCertificateRequests")
    if verb == "create":
        return ALLOWED
    if verb == "get":
        return authorizer.relation(node, attributes)
    if verb in _LISTS:
        if _selects_node(attributes, node):
            return ALLOWED
        return _refused("can only list/watch podcertificaterequests with nodeName field selector")
    return _refused(f"nodes may not {verb} podcertificaterequests")


_WRITES_OF_PODS: Final[Mapping[str, Collection[str]]] = {
    "status": _UPDATES,
    "eviction": ("create",),
}
_JUDGES: Final[Mapping[GroupResource, _Judge]] = {
    GroupResource("", "secrets"): _read_by_name,
    GroupResource("", "configmaps"): _read_by_name,
    GroupResource("", "persistentvolumeclaims"): _claims,
    GroupResource("", "persistentvolumes"): _get,
    GroupResource("", "serviceaccounts"): _service_accounts,
    GroupResource("", "nodes"): _nodes,
    GroupResource("", "pods"): _pods,
    GroupResource("resource.k8s.io", "resourceclaims"): _get,
    GroupResource("resource.k8s.io", "resourceslices"): _slices,
    GroupResource("storage.k8s.io", "volumeattachments"): _get,
    GroupResource("storage.k8s.io", "csinodes"): _csi_nodes,
    GroupResource("coordination.k8s.io", "leases"): _leases,
    GroupResource("certificates.k8s.io", "podcertificaterequests"): _pod_certificates,
}


def _selects_node(attributes: Attributes, node: str) -> bool:
    selector = attributes.field_selector
    return selector is not None and any(
        each.field == _NODE_NAME and each.is_equal and each.value == node
        for each in selector.requirements
    )


def _allow_if(is_allowed: bool) -> Decision:  # noqa: FBT001 — the only thing that it is about
    return ALLOWED if is_allowed else NO_OPINION


def _refused(reason: str) -> Decision:
    return Decision(allowed=False, reason=reason)
