"""The tests of NetworkPolicies that a release of Kubernetes has, and ours for each of them.

They are those of `[sig-network] Netpol` of 1.37: 49 of the feature and two of the API. `OURS` has
for each the cases of `test_cases` and the functions of tests that fail if the rule is lost. The
tests themselves are run by

    make conformance E2E=… IMAGES=… ARGS="--focus 'sig-network. Netpol'"
"""

from typing import Final

GROUP: Final = "[sig-network] Netpol"
FEATURE: Final = " [Feature:NetworkPolicy]"
PLAIN: Final = "NetworkPolicy between server and client "
UDP: Final = "[LinuxOnly] NetworkPolicy between server and client using UDP "
SCTP: Final = (
    "[Feature:SCTPConnectivity] [LinuxOnly] NetworkPolicy between server and client using SCTP "
)
API: Final = "API should support creating NetworkPolicy API "

_OURS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    PLAIN: {
        "should support a 'default-deny-ingress' policy": (
            "default deny of ingress",
            "default deny by a missing list",
            "test_what_leaves_one_pod_must_be_let_into_the_other",
        ),
        "should support a 'default-deny-all' policy": (
            "default deny of ingress",
            "default deny of egress",
            "test_policies_of_pods",
        ),
        "should support allow-all policy": ("an empty rule allows all",),
        "should enforce policy to allow traffic from pods within server namespace based on "
        "PodSelector": ("pods of the namespace", "pods by label", "test_what_comes_in"),
        "should enforce policy based on any PodSelectors": ("two rules", "by expressions"),
        "should enforce policy based on PodSelector with MatchExpressions": ("by expressions",),
        "should enforce policy based on NamespaceSelector with MatchExpressions": (
            "namespaces but one",
            "a namespace",
        ),
        "should enforce policy based on NamespaceSelector with MatchExpressions using default ns "
        "label": ("a namespace",),
        "should enforce policy to allow traffic based on NamespaceSelector with MatchLabels using "
        "default ns label": ("a namespace", "a namespace by its own label"),
        "should enforce policy to allow traffic only from a different namespace, based on "
        "NamespaceSelector": ("a namespace by its own label", "test_what_goes_out"),
        "should enforce policy to allow ingress traffic from pods in all namespaces": (
            "all pods, but nobody outside",
            "test_what_leaves_one_pod_must_be_let_into_the_other",
        ),
        "should deny ingress from pods on other namespaces": ("pods of the namespace",),
        "should enforce policy based on PodSelector or NamespaceSelector": (
            "a pod or a namespace",
        ),
        "should enforce policy based on PodSelector and NamespaceSelector": (
            "a pod of a namespace",
            "test_a_service_is_judged_by_its_endpoint",
        ),
        "should enforce policy based on Multiple PodSelectors and NamespaceSelectors": (
            "pods or namespaces by several selectors",
        ),
        "should enforce policy to allow traffic only from a pod in a different namespace based on "
        "PodSelector and NamespaceSelector": ("a pod of a namespace",),
        "should enforce policy to allow ingress traffic for a target": (
            "of this pod",
            "of other pods",
            "test_what_comes_in",
        ),
        "should enforce policy based on Ports": (
            "a port",
            "another port",
            "a port of some peers",
            "test_what_comes_in",
        ),
        "should allow ingress access on one named port": (
            "a port by name",
            "a name of another number",
            "test_what_comes_in",
        ),
        "should allow ingress access from namespace on one named port": (
            "a port by name",
            "a port of some peers",
        ),
        "should allow egress access on one named port": ("egress to a port by name",),
        "should not allow all ports if it cannot limit to the requested port": (
            "a name that no port has",
        ),
        "should enforce ingress policy allowing any port traffic to a server on a specific "
        "protocol": ("all ports of a protocol", "all ports of the other protocol"),
        "should not allow access by TCP when a policy specifies only UDP": (
            "a port of another protocol",
            "all ports of the other protocol",
        ),
        "should not mistakenly treat 'protocol: SCTP' as 'protocol: TCP', even if the plugin "
        "doesn't support SCTP": ("SCTP is not TCP",),
        "should properly isolate pods that are selected by a policy allowing SCTP, even if the "
        "plugin doesn't support SCTP": ("SCTP is not TCP",),
        "should enforce multiple, stacked policies with overlapping podSelectors": (
            "several policies are a union",
            "deny is no more than allow nothing",
        ),
        "should enforce multiple ingress policies with ingress allow-all policy taking "
        "precedence": ("deny is no more than allow nothing",),
        "should enforce multiple egress policies with egress allow-all policy taking precedence": (
            "egress, several policies are a union",
        ),
        "should support denying of egress traffic on the client side (even if the server "
        "explicitly allows this traffic)": (
            "default deny of egress",
            "egress and ingress",
            "test_what_goes_out",
        ),
        "should deny egress from pods based on PodSelector": (
            "default deny of egress",
            "ingress alone does not isolate egress",
        ),
        "should deny egress from all pods in a namespace": (
            "default deny of egress",
            "test_policies_of_pods",
        ),
        "should enforce policies to check ingress and egress policies can be controlled "
        "independently based on PodSelector": (
            "ingress alone does not isolate egress",
            "types by default, empty egress",
            "egress without what the other side lets in",
        ),
        "should work with Ingress, Egress specified together": (
            "both directions, as a client",
            "both directions, as a server",
        ),
        "should enforce egress policy allowing traffic to a server in a different namespace based "
        "on PodSelector and NamespaceSelector": ("egress to a pod of a namespace",),
        "should allow egress access to server in CIDR block": (
            "a block",
            "a block of pods",
            "test_what_goes_out",
        ),
        "should enforce except clause while egress access to server in CIDR block": (
            "a block with an exception",
        ),
        "should ensure an IP overlapping both IPBlock.CIDR and IPBlock.Except is allowed": (
            "an exception that another block allows",
            "an exception that another policy allows",
        ),
        "should enforce updated policy": ("test_a_policy_that_changes_or_goes_takes_effect",),
        "should stop enforcing policies after they are deleted": (
            "test_a_policy_that_changes_or_goes_takes_effect",
            "test_policies_of_pods",
        ),
        "should allow ingress access from updated namespace": (
            "test_labels_of_pods_and_namespaces_take_effect_without_the_policy",
        ),
        "should allow ingress access from updated pod": (
            "test_labels_of_pods_and_namespaces_take_effect_without_the_policy",
            "test_one_pods_change_writes_that_pod_alone",
        ),
        "should deny ingress access to updated pod": (
            "test_labels_of_pods_and_namespaces_take_effect_without_the_policy",
        ),
    },
    UDP: {
        "should support a 'default-deny-ingress' policy": ("default deny of UDP",),
        "should enforce policy based on Ports": (
            "a port of UDP",
            "another port of UDP",
            "test_what_comes_in",
        ),
        "should enforce policy to allow traffic only from a pod in a different namespace based on "
        "PodSelector and NamespaceSelector": ("a pod of a namespace, by UDP",),
    },
    SCTP: {
        "should support a 'default-deny-ingress' policy": ("default deny of SCTP",),
        "should enforce policy based on Ports": (
            "a port of SCTP",
            "another port of SCTP",
            "test_the_kernel_takes_what_every_kind_of_rule_writes",
        ),
        "should enforce policy to allow traffic only from a pod in a different namespace based on "
        "PodSelector and NamespaceSelector": ("a pod of a namespace, by SCTP",),
    },
    API: {
        "operations": ("test_what_is_done_to_policies",),
        "with endport field": ("test_ends_of_ranges",),
    },
}


def ours() -> dict[str, tuple[str, ...]]:
    """Return the names of the release's tests, each with ours."""
    return {
        f"{GROUP} {start}{text}{'' if start is API else FEATURE}": tests
        for start, texts in _OURS.items()
        for text, tests in texts.items()
    }
