"""Rules that an update may break, because the stored pod already does.

Rules that were added after a pod was stored must not block its updates: a fault of the old spec is
tolerated in the new one. `old_faults` detects them; a new pod has no tolerances.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Tolerances:
    """The rules that are not enforced."""

    deletion_cost: bool = False
    """The pod deletion cost annotation."""
    selector_values: bool = False
    """Values in the label selectors of pod affinity."""
    node_affinity_values: bool = False
    """Values in the required terms of node affinity."""
    spread_selectors: bool = False
    """Label selectors of topology spread constraints."""
    spread_label_keys: bool = False
    """Label keys of spread constraints by the current rule; the older one applies then."""
    indivisible_huge_pages: bool = False
    remote_token_path: bool = False
    """Token paths that lead out of their volume."""
    host_sysctls: bool = False
    """Sysctls of namespaces that are shared with the host."""
    user_namespace_devices: bool = False
    user_namespace_host_network: bool = False
    empty_image_reference: bool = False
    sys_admin_without_escalation: bool = False
    restarting_init_resize: bool = False
    """Init containers that restart when they are resized."""
    comparing_tolerations: bool = False
    """Tolerations with numeric comparison operators."""


NO_TOLERANCES: Final = Tolerances()
