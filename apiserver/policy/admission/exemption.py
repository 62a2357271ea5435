"""What webhooks and policies never look at, so that a cluster can always be repaired."""

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
"""What policies do not look at."""
CONFIGURATIONS: Final = POLICIES | frozenset(
    GroupResource(GROUP, each)
    for each in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
)
"""What webhooks are not asked about."""


def is_exempt(
    resource: GroupResource, own: frozenset[GroupResource], *, has_static: bool = False
) -> bool:
    """Tell whether no webhook or policy looks at a resource.

    own: POLICIES or CONFIGURATIONS; has_static: whether some may come from files, which look at
    these, too.
    """
    is_own = resource in own and not has_static
    return is_own or (resource.group, resource.resource) in EXCLUDED
