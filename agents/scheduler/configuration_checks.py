"""What a KubeSchedulerConfiguration may hold: its fields by type, and limits of their values.

    check(obj)      ConfigurationError: strict decoding error: unknown field "profiles[0].colour"

A shape is a type; an object's fields with their shapes; or a list with the shape of its items.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from kvstack.agents.scheduler.profile import DEFAULT_PLUGINS, ConfigurationError
from kvstack.apiserver.objects.durations import DurationError
from kvstack.apiserver.objects.durations import parse as parse_duration

Object: TypeAlias = dict[str, Any]
Shape: TypeAlias = "type | Mapping[str, Shape] | list[Shape]"

_SHARE_MAX: Final = 100
_SCORE_MAX: Final = 10


class Duration:
    """The shape of a duration as Go writes it."""


class Anything:
    """The shape of what is not looked into."""


_PLUGIN_SET: Final[Shape] = {
    "enabled": [{"name": str, "weight": int}],
    "disabled": [{"name": str, "weight": int}],
}
_POINTS: Final = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
    "multiPoint",
    "placementGenerate",
    "placementScore",
    "podGroupPostFilter",
)
_POINT: Final[Shape] = {"utilization": int, "score": int}
_RESOURCE: Final[Shape] = {"name": str, "weight": int}
_TYPED: Final[Mapping[str, Shape]] = {"apiVersion": str, "kind": str}
_FIELDS: Final[Shape] = {
    **_TYPED,
    "parallelism": int,
    "percentageOfNodesToScore": int,
    "podInitialBackoffSeconds": int,
    "podMaxBackoffSeconds": int,
    "delayCacheUntilActive": bool,
    "enableProfiling": bool,
    "enableContentionProfiling": bool,
    "clientConnection": {
        "kubeconfig": str,
        "acceptContentTypes": str,
        "contentType": str,
        "qps": float,
        "burst": int,
    },
    "leaderElection": {
        "leaderElect": bool,
        "leaseDuration": Duration,
        "renewDeadline": Duration,
        "retryPeriod": Duration,
        "resourceLock": str,
        "resourceName": str,
        "resourceNamespace": str,
    },
    "profiles": [
        {
            "schedulerName": str,
            "percentageOfNodesToScore": int,
            "tieBreak": str,
            "plugins": dict.fromkeys(_POINTS, _PLUGIN_SET),
            "pluginConfig": [{"name": str, "args": Anything}],
        }
    ],
    "extenders": [
        {
            "urlPrefix": str,
            "filterVerb": str,
            "preemptVerb": str,
            "prioritizeVerb": str,
            "bindVerb": str,
            "weight": int,
            "enableHTTPS": bool,
            "tlsConfig": Anything,
            "httpTimeout": Duration,
            "nodeCacheCapable": bool,
            "managedResources": [{"name": str, "ignoredByScheduler": bool}],
            "ignorable": bool,
        }
    ],
}
_ARGS: Final[Mapping[str, Shape]] = {
    "DefaultPreemption": {"minCandidateNodesPercentage": int, "minCandidateNodesAbsolute": int},
    "DynamicResources": {"filterTimeout": Duration, "bindingTimeout": Duration},
    "InterPodAffinity": {
        "hardPodAffinityWeight": int,
        "ignorePreferredTermsOfExistingPods": bool,
    },
    "NodeAffinity": {"addedAffinity": Anything},
    "NodeResourcesBalancedAllocation": {"resources": [_RESOURCE]},
    "NodeResourcesFit": {
        "ignoredResources": [str],
        "ignoredResourceGroups": [str],
        "scoringStrategy": {
            "type": str,
            "resources": [_RESOURCE],
            "requestedToCapacityRatio": {"shape": [_POINT]},
        },
    },
    "PodTopologySpread": {"defaultConstraints": Anything, "defaultingType": str},
    "VolumeBinding": {"bindTimeoutSeconds": int, "shape": [_POINT]},
}


def check(obj: Object) -> None:
    """Check a configuration; raises ConfigurationError."""
    _check_shape(obj, _FIELDS, "")
    if obj.get("parallelism") is not None and obj["parallelism"] <= 0:
        raise _invalid(
            "parallelism", obj["parallelism"], "should be an integer value greater than zero"
        )
    for place, profile in enumerate(obj.get("profiles") or ()):
        path = f"profiles[{place}]"
        share = profile.get("percentageOfNodesToScore") or 0
        if not 0 <= share <= _SHARE_MAX:
            raise _invalid(f"{path}.percentageOfNodesToScore", share, "not in valid range [0-100]")
        _check_plugin_config(profile.get("pluginConfig") or (), f"{path}.pluginConfig")


def _check_plugin_config(entries: Any, path: str) -> None:  # noqa: ANN401
    seen: set[str] = set()
    for place, each in enumerate(entries):
        name, at = each.get("name") or "", f"{path}[{place}]"
        if name in seen:
            raise ConfigurationError(f'{at}: Duplicate value: "{name}"')
        seen.add(name)
        if name not in DEFAULT_PLUGINS:
            raise ConfigurationError(f'{at}.name: plugin "{name}" does not exist')
        args = each.get("args")
        if args is None:
            continue
        if name not in _ARGS:
            raise ConfigurationError(f"{at}.args: plugin {name} takes none")
        shape = _ARGS[name]
        if isinstance(shape, Mapping):
            _check_shape(args, {**_TYPED, **shape}, f"{at}.args")
        _LIMITS.get(name, _no_limits)(args, f"{at}.args")


def _check_shape(value: object, shape: Shape, path: str) -> None:
    if value is None or shape is Anything:
        return
    if isinstance(shape, Mapping):
        if not isinstance(value, dict):
            raise ConfigurationError(f"{path or 'the configuration'}: must be an object")
        for name, each in value.items():
            at = f"{path}.{name}" if path else name
            if name not in shape:
                raise ConfigurationError(f'strict decoding error: unknown field "{at}"')
            _check_shape(each, shape[name], at)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise ConfigurationError(f"{path}: must be a list")
        for place, each in enumerate(value):
            _check_shape(each, shape[0], f"{path}[{place}]")
    elif shape is Duration:
        _check_duration(value, path)
    elif not _is_of(value, shape):
        raise ConfigurationError(f"{path}: must be of type {shape.__name__}, is {value!r}")


def _is_of(value: object, shape: type) -> bool:
    if isinstance(value, bool) and shape is not bool:
        return False
    return isinstance(value, (int, float) if shape is float else shape)


def _check_duration(value: object, path: str) -> None:
    try:
        parse_duration(str(value))
    except DurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _invalid(path: str, value: object, text: str) -> ConfigurationError:
    return ConfigurationError(f"{path}: Invalid value: {value}: {text}")


# What values of arguments may be.


def _no_limits(_args: Object, _path: str) -> None:
    """All values will do."""


def _check_preemption(args: Object, path: str) -> None:
    share = args.get("minCandidateNodesPercentage", 10)
    least = args.get("minCandidateNodesAbsolute", 100)
    if not 0 <= share <= _SHARE_MAX:
        raise _invalid(f"{path}.minCandidateNodesPercentage", share, "not in valid range [0, 100]")
    if least < 0:
        raise _invalid(f"{path}.minCandidateNodesAbsolute", least, "not in valid range [0, inf)")
    if not share and not least:
        raise ConfigurationError(
            f"{path}: minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be zero"
        )


def _check_devices(args: Object, path: str) -> None:
    for name in ("filterTimeout", "bindingTimeout"):
        text = args.get(name)
        if text is not None and parse_duration(text) <= 0:
            raise _invalid(f"{path}.{name}", text, "must be greater than 0")


def _check_affinity(args: Object, path: str) -> None:
    weight = args.get("hardPodAffinityWeight", 1)
    if not 0 <= weight <= _SHARE_MAX:
        raise _invalid(f"{path}.hardPodAffinityWeight", weight, "not in valid range [0-100]")


def _check_balanced(args: Object, path: str) -> None:
    for place, each in enumerate(args.get("resources") or ()):
        if each.get("weight", 1) != 1:
            raise _invalid(f"{path}.resources[{place}].weight", each["weight"], "must be 1")


def _check_fit(args: Object, path: str) -> None:
    for place, group in enumerate(args.get("ignoredResourceGroups") or ()):
        if "/" in group:
            at = f"{path}.ignoredResourceGroups[{place}]"
            raise _invalid(at, group, "resource group name can't contain '/'")
    strategy = args.get("scoringStrategy") or {}
    kind = strategy.get("type") or "LeastAllocated"
    kinds = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
    if kind not in kinds:
        raise _invalid(f"{path}.scoringStrategy.type", kind, f"must be one of {', '.join(kinds)}")
    for place, each in enumerate(strategy.get("resources") or ()):
        weight = each.get("weight", 1)
        if not 1 <= weight <= _SHARE_MAX:
            at = f"{path}.scoringStrategy.resources[{place}].weight"
            raise _invalid(at, weight, "not in valid range [1-100]")
    if kind == kinds[-1]:
        ratio = strategy.get("requestedToCapacityRatio") or {}
        _check_points(ratio.get("shape"), f"{path}.scoringStrategy.requestedToCapacityRatio.shape")


def _check_spread(args: Object, path: str) -> None:
    kind = args.get("defaultingType") or "System"
    if kind not in ("System", "List"):
        raise _invalid(f"{path}.defaultingType", kind, "must be one of System, List")
    constraints = args.get("defaultConstraints") or ()
    if kind == "System" and constraints:
        raise ConfigurationError(
            f'{path}.defaultConstraints: Invalid value: when .defaultingType is "System",'
            " must be empty"
        )
    for place, each in enumerate(constraints):
        at = f"{path}.defaultConstraints[{place}]"
        if each.get("labelSelector"):
            raise ConfigurationError(
                f"{at}.labelSelector: Forbidden: constraint must not define a selector, as they"
                " deduced for each pod"
            )
        if (each.get("maxSkew") or 0) <= 0:
            raise _invalid(f"{at}.maxSkew", each.get("maxSkew"), "must be greater than zero")
        if not each.get("topologyKey"):
            raise ConfigurationError(f"{at}.topologyKey: Required value: can not be empty")


def _check_volumes(args: Object, path: str) -> None:
    seconds = args.get("bindTimeoutSeconds", 0)
    if seconds < 0:
        raise _invalid(f"{path}.bindTimeoutSeconds", seconds, "invalid BindTimeoutSeconds")
    if "shape" in args:
        _check_points(args["shape"], f"{path}.shape")


def _check_points(points: Any, path: str) -> None:  # noqa: ANN401
    if not points:
        raise ConfigurationError(f"{path}: Required value: at least one point must be specified")
    last = -1
    for place, each in enumerate(points):
        share, score = each.get("utilization") or 0, each.get("score") or 0
        if not 0 <= share <= _SHARE_MAX:
            raise _invalid(f"{path}[{place}].utilization", share, "not in valid range [0-100]")
        if share <= last:
            raise _invalid(
                f"{path}[{place}].utilization", share, "utilization values must be sorted"
            )
        if not 0 <= score <= _SCORE_MAX:
            raise _invalid(f"{path}[{place}].score", score, "not in valid range [0-10]")
        last = share


_LIMITS: Final[Mapping[str, Callable[[Object, str], None]]] = {
    "DefaultPreemption": _check_preemption,
    "DynamicResources": _check_devices,
    "InterPodAffinity": _check_affinity,
    "NodeResourcesBalancedAllocation": _check_balanced,
    "NodeResourcesFit": _check_fit,
    "PodTopologySpread": _check_spread,
    "VolumeBinding": _check_volumes,
}
