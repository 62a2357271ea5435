"""The rules that need not hold for an update, because the stored pod broke them already.

Rules that came after a pod was stored must not stop its updates: whatever breaks such a rule in the
old spec is taken in the new one too. `old_faults` finds that out; a new pod has no tolerances.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Tolerances:
    """The rules that need not hold."""

    deletion_cost: bool = False
    """The annotation that says how costly the deletion of the pod is."""
    selector_values: bool = False
    """Values in the label selectors of pod affinity."""
    node_affinity_values: bool = False
    """Values in the required terms of node affinity."""
    spread_selectors: bool = False
    """Label selectors of spread constraints."""
    spread_label_keys: bool = False
    """Label keys of spread constraints by today's rule; the older one counts then."""
    indivisible_huge_pages: bool = False
    remote_token_path: bool = False
    """Paths of tokens that lead out of their volume."""
    host_sysctls: bool = False
    """Sysctls of namespaces that are shared with the node."""
    user_namespace_devices: bool = False
    user_namespace_host_network: bool = False
    empty_image_reference: bool = False
    sys_admin_without_escalation: bool = False
    restarting_init_resize: bool = False
    """Init containers that restart when they are resized."""
    comparing_tolerations: bool = False
    """Tolerations that compare numbers."""


NO_TOLERANCES: Final = Tolerances()
