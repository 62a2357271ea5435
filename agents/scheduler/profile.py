"""Profiles: which plugins decide about a pod, in which order, with which weight.

    profile_of({"schedulerName": "packed", "plugins": {…}, "pluginConfig": […]})

The plugins of `multiPoint` are those of every point they know; a point's own lists override them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from kvstack.agents.scheduler.cycle import Plugin
from kvstack.agents.scheduler.devices.binding import TIMEOUT_S
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

Object: TypeAlias = dict[str, Any]
Args: TypeAlias = Mapping[str, Any]
TieBreak: TypeAlias = Literal["roundRobin", "heap"]

DEFAULT_NAME: Final = "default-scheduler"
DEFAULT_PREEMPTION: Final = "DefaultPreemption"
FIT: Final = "NodeResourcesFit"

_FACTORIES: Final[dict[str, Callable[[Args], Plugin]]] = {
    "NodeName": lambda _: NodeName(),
    "NodeUnschedulable": lambda _: NodeUnschedulable(),
    "TaintToleration": lambda _: TaintToleration(),
    "NodeAffinity": NodeAffinity,
    "NodePorts": lambda _: NodePorts(),
    FIT: NodeResourcesFit,
    "VolumeRestrictions": lambda _: VolumeRestrictions(),
    "NodeVolumeLimits": lambda _: NodeVolumeLimits(),
    "VolumeBinding": VolumeBinding,
    "VolumeZone": lambda _: VolumeZone(),
    "PodTopologySpread": PodTopologySpread,
    "InterPodAffinity": InterPodAffinity,
    "DynamicResources": DynamicResources,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocation,
    "ImageLocality": lambda _: ImageLocality(),
    "NodeDeclaredFeatures": lambda _: NodeDeclaredFeatures(),
}
"""The plugins that judge nodes; the rest of the default ones is built into the scheduler."""

DEFAULT_PLUGINS: Final = (
    "SchedulingGates",
    "PrioritySort",
    "NodeName",
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    FIT,
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    DEFAULT_PREEMPTION,
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
    "DefaultBinder",
    "NodeDeclaredFeatures",
)


def _usual_weight(name: str) -> int:
    made = _FACTORIES[name]({}) if name in _FACTORIES else None
    return made.default_weight if made is not None and made.scores else 0


DEFAULT_WEIGHTS: Final = {name: _usual_weight(name) for name in DEFAULT_PLUGINS}
"""Of the default plugins; 0: it gives no scores."""


class ConfigurationError(ValueError):
    """A configuration that makes no sense; the message says where."""


@dataclass(frozen=True, slots=True)
class Profile:
    """How pods of one schedulerName are judged."""

    name: str
    filters: tuple[Plugin, ...]
    scorers: tuple[tuple[Plugin, int], ...]
    percentage_of_nodes_to_score: int
    tie_break: TieBreak
    preempts: bool
    """Whether pods may push others away."""
    min_candidates_percentage: int = 10
    min_candidates_absolute: int = 100

    @property
    def binding_timeout_s(self) -> float:
        """How long devices of a pod may take to be ready."""
        found = (each for each in self.filters if isinstance(each, DynamicResources))
        return next((each.binding_timeout_s for each in found), TIMEOUT_S)

    def is_before(self, one: str, other: str) -> bool:
        """Whether a plugin is asked before another; both must filter."""
        names = [plugin.name for plugin in self.filters]
        return one in names and other in names and names.index(one) < names.index(other)


def profile_of(
    config: Object,
    *,
    percentage: int = 0,
    tie_break: TieBreak = "roundRobin",
    ignored_resources: Sequence[str] = (),
) -> Profile:
    """Return the profile of a KubeSchedulerProfile.

    percentage: that of all profiles. ignored_resources: those that extenders look after alone.
    """
    name = config.get("schedulerName") or DEFAULT_NAME
    wanted = config.get("plugins") or {}
    args: dict[str, Args] = {
        each["name"]: each.get("args") or {} for each in config.get("pluginConfig") or ()
    }
    if ignored_resources:
        fit = args.get(FIT, {})
        args[FIT] = {
            **fit,
            "ignoredResources": [*(fit.get("ignoredResources") or ()), *ignored_resources],
        }
    everywhere = plugins_of(wanted.get("multiPoint") or {})
    made: dict[str, Plugin] = {}

    def plugin(each: str) -> Plugin | None:
        if each not in made:
            factory = _FACTORIES.get(each)
            if factory is None:
                return None
            made[each] = factory(args.get(each, {}))
        return made[each]

    filters = _at_point(everywhere, _points(wanted, ("preFilter", "filter")))
    scores = _at_point(everywhere, _points(wanted, ("preScore", "score")))
    post_filters = _at_point(everywhere, wanted.get("postFilter") or {})
    preemption = args.get(DEFAULT_PREEMPTION, {})
    own_percentage = config.get("percentageOfNodesToScore")
    scorers = []
    for each, weight in scores.items():
        found = plugin(each)
        if found is not None and found.scores:
            scorers.append((found, weight or found.default_weight))
    return Profile(
        name,
        tuple(p for each in filters if (p := plugin(each)) is not None and p.filters),
        tuple(scorers),
        percentage if own_percentage is None else own_percentage,
        config.get("tieBreak") or tie_break,
        DEFAULT_PREEMPTION in post_filters,
        preemption.get("minCandidateNodesPercentage", 10),
        preemption.get("minCandidateNodesAbsolute", 100),
    )


def _names(entries: Iterable[Object]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in entries:
        name = each["name"]
        if name not in DEFAULT_PLUGINS:
            raise ConfigurationError(f'plugin "{name}" does not exist')
        if name in found:
            raise ConfigurationError(f"plugin {name} already registered")
        found[name] = each.get("weight") or 0
    return found


def plugins_of(point: Object) -> dict[str, int]:
    """Return the plugins of a `multiPoint` with their weights; 0: the usual one."""
    enabled = _names(point.get("enabled") or ())
    disabled = {each["name"] for each in point.get("disabled") or ()}
    found: dict[str, int] = {}
    for name in DEFAULT_PLUGINS:
        if "*" in disabled or name in disabled:
            continue
        # A weight that is not given is 1 where a default plugin is named again.
        found[name] = (enabled.pop(name) or 1) if name in enabled else 0
    found.update({name: weight or 1 for name, weight in enabled.items()})
    return found


def _points(wanted: Object, names: Sequence[str]) -> Object:
    """Return what is said about any of some points that one plugin serves together."""
    return {
        what: [each for name in names for each in (wanted.get(name) or {}).get(what) or ()]
        for what in ("enabled", "disabled")
    }


def _at_point(everywhere: Mapping[str, int], point: Object) -> dict[str, int]:
    enabled = _names({each["name"]: each for each in point.get("enabled") or ()}.values())
    disabled = {each["name"] for each in point.get("disabled") or ()}
    if "*" in disabled:
        return enabled
    found = {name: weight or 1 for name, weight in enabled.items() if name in everywhere}
    for name, weight in everywhere.items():
        if name not in disabled:
            found.setdefault(name, weight)
    for name, weight in enabled.items():
        found.setdefault(name, weight or 1)
    return found
