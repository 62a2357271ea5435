"""Resources exempt from webhooks and policies, so that a cluster can always be repaired."""

from typing import Final

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.kinds.admissionregistration.resource_rules import EXCLUDED

GROUP: Final = "admissionregistration.k8s.io"
POLICIES: Final = frozenset(
    GroupResource(GROUP, each)
    for each in (
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    )
)
"""Exempt from policies."""
CONFIGURATIONS: Final = POLICIES | frozenset(
    GroupResource(GROUP, each)
    for each in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
)
"""Exempt from webhooks."""


def is_exempt(
    resource: GroupResource, exempt: frozenset[GroupResource], *, has_static: bool = False
) -> bool:
    """Return whether a resource is exempt.

    exempt: POLICIES or CONFIGURATIONS; has_static: whether there may be manifest files, which
    apply to these, too.
    """
    is_own = resource in exempt and not has_static
    return is_own or (resource.group, resource.resource) in EXCLUDED
