"""The table of plugins. A new one is a module and a row here.

The order is that in which plugins are asked.
"""

from typing import Final

from kvstack.agents.scheduler.plugin import Plugin
from kvstack.agents.scheduler.plugins.built_in import (
    DefaultBinder,
    PrioritySort,
    SchedulingGates,
)
from kvstack.agents.scheduler.plugins.default_preemption import DefaultPreemption
from kvstack.agents.scheduler.plugins.dynamic_resources import DynamicResources
from kvstack.agents.scheduler.plugins.image_locality import ImageLocality
from kvstack.agents.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from kvstack.agents.scheduler.plugins.node_affinity import NodeAffinity
from kvstack.agents.scheduler.plugins.node_ports import NodePorts
from kvstack.agents.scheduler.plugins.node_rules import (
    NodeDeclaredFeatures,
    NodeName,
    NodeUnschedulable,
    TaintToleration,
)
from kvstack.agents.scheduler.plugins.pod_topology_spread import PodTopologySpread
from kvstack.agents.scheduler.plugins.resources import (
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
)
from kvstack.agents.scheduler.plugins.volume_binding import VolumeBinding
from kvstack.agents.scheduler.plugins.volume_limits import NodeVolumeLimits
from kvstack.agents.scheduler.plugins.volume_restrictions import VolumeRestrictions
from kvstack.agents.scheduler.plugins.volume_zone import VolumeZone

_ROWS: Final[tuple[type[Plugin], ...]] = (
    SchedulingGates,
    PrioritySort,
    NodeName,
    NodeUnschedulable,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    DefaultBinder,
    NodeDeclaredFeatures,
)

PLUGINS: Final[dict[str, type[Plugin]]] = {each.name: each for each in _ROWS}
"""By name."""
