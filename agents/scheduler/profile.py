"""Profiles: the plugins of a scheduler name, with their order and weights.

    profile_of({"schedulerName": "packed", "plugins": {…}, "pluginConfig": […]})

The plugins of `multiPoint` are those of every point they know; a point's own lists override them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from kvstack.agents.scheduler.arguments import ConfigurationError
from kvstack.agents.scheduler.plugin import Plugin
from kvstack.agents.scheduler.plugins.table import PLUGINS
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object

Args: TypeAlias = Mapping[str, Any]
TieBreak: TypeAlias = Literal["roundRobin", "heap"]

DEFAULT_NAME: Final = "default-scheduler"
FIT: Final = "NodeResourcesFit"


def default_weight(name: str) -> int:
    """Return the weight of a plugin's scores; 0: it gives none."""
    plugin = PLUGINS[name]
    return plugin.default_weight if plugin.scores else 0


@dataclass(frozen=True, slots=True)
class Profile:
    """The plugins of one schedulerName."""

    name: str
    gates: tuple[Plugin, ...]
    """Plugins with `pre_enqueue`."""
    filters: tuple[Plugin, ...]
    scorers: tuple[tuple[Plugin, int], ...]
    post_filters: tuple[Plugin, ...]
    """Plugins with `post_filter`, in the order of their calls."""
    reserves: tuple[Plugin, ...]
    pre_binds: tuple[Plugin, ...]
    """Plugins with `pre_bind`."""
    percentage_of_nodes_to_score: int
    tie_break: TieBreak

    def gate_of(self, pod: PodInfo, cluster: Cluster) -> str:
        """Return the name of the plugin that holds a pod back; empty: none does."""
        gates = (each.name for each in self.gates if not each.pre_enqueue(pod, cluster))
        return next(gates, "")


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
    sets = config.get("plugins") or {}
    args: dict[str, Args] = {
        each["name"]: each.get("args") or {} for each in config.get("pluginConfig") or ()
    }
    if ignored_resources:
        fit = args.get(FIT, {})
        args[FIT] = {
            **fit,
            "ignoredResources": [*(fit.get("ignoredResources") or ()), *ignored_resources],
        }
    everywhere = plugins_of(sets.get("multiPoint") or {})
    made: dict[str, Plugin] = {}

    def plugin(each: str) -> Plugin:
        if each not in made:
            made[each] = PLUGINS[each](args.get(each, {}))
        return made[each]

    def at(point: str, method: str) -> tuple[Plugin, ...]:
        """Return the plugins of a point that have the method for it."""
        names = _at_point(everywhere, sets.get(point) or {})
        return tuple(plugin(each) for each in names if PLUGINS[each].has(method))

    filters = _at_point(everywhere, _points(sets, ("preFilter", "filter")))
    scores = _at_point(everywhere, _points(sets, ("preScore", "score")))
    own_percentage = config.get("percentageOfNodesToScore")
    scorers = []
    for each, weight in scores.items():
        found = plugin(each)
        if found.scores:
            scorers.append((found, weight or found.default_weight))
    return Profile(
        name,
        at("preEnqueue", "pre_enqueue"),
        tuple(plugin(each) for each in filters if PLUGINS[each].filters),
        tuple(scorers),
        at("postFilter", "post_filter"),
        at("reserve", "reserve"),
        at("preBind", "pre_bind"),
        percentage if own_percentage is None else own_percentage,
        config.get("tieBreak") or tie_break,
    )


def _names(entries: Iterable[Object]) -> dict[str, int]:
    weights: dict[str, int] = {}
    for each in entries:
        name = each["name"]
        if name not in PLUGINS:
            raise ConfigurationError(f'plugin "{name}" does not exist')
        if name in weights:
            raise ConfigurationError(f"plugin {name} already registered")
        weights[name] = each.get("weight") or 0
    return weights


def plugins_of(point: Object) -> dict[str, int]:
    """Return the plugins of a `multiPoint` with their weights; 0: the usual one."""
    enabled = _names(point.get("enabled") or ())
    disabled = {each["name"] for each in point.get("disabled") or ()}
    weights: dict[str, int] = {}
    for name in PLUGINS:
        if "*" in disabled or name in disabled:
            continue
        # A weight that is not given is 1 where a default plugin is named again.
        weights[name] = (enabled.pop(name) or 1) if name in enabled else 0
    weights.update({name: weight or 1 for name, weight in enabled.items()})
    return weights


def _points(plugin_set: Object, names: Sequence[str]) -> Object:
    """Return what is said about any of some points that one plugin serves together."""
    return {
        what: [each for name in names for each in (plugin_set.get(name) or {}).get(what) or ()]
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
