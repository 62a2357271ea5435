"""The fields of a KubeSchedulerConfiguration by type, and limits of their values.

    check(obj)      ConfigurationError: strict decoding error: unknown field "profiles[0].colour"

What arguments of a plugin may be, the plugin says.
"""

from collections.abc import Mapping
from typing import Any, Final

from kvstack.agents.scheduler.arguments import (
    SHARE_MAX,
    Anything,
    ConfigurationError,
    Duration,
    Shape,
    check_shape,
    invalid,
)
from kvstack.agents.scheduler.plugins.table import PLUGINS
from kvstack.apimachinery.objects.json_object import Object

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


def check(obj: Object) -> None:
    """Check a configuration; raises ConfigurationError."""
    check_shape(obj, _FIELDS, "")
    if obj.get("parallelism") is not None and obj["parallelism"] <= 0:
        raise invalid(
            "parallelism", obj["parallelism"], "should be an integer value greater than zero"
        )
    for number, profile in enumerate(obj.get("profiles") or ()):
        path = f"profiles[{number}]"
        share = profile.get("percentageOfNodesToScore") or 0
        if not 0 <= share <= SHARE_MAX:
            raise invalid(f"{path}.percentageOfNodesToScore", share, "not in valid range [0-100]")
        _check_plugin_config(profile.get("pluginConfig") or (), f"{path}.pluginConfig")


def _check_plugin_config(entries: Any, path: str) -> None:  # noqa: ANN401
    seen: set[str] = set()
    for number, each in enumerate(entries):
        name, at = each.get("name") or "", f"{path}[{number}]"
        if name in seen:
            raise ConfigurationError(f'{at}: Duplicate value: "{name}"')
        seen.add(name)
        plugin = PLUGINS.get(name)
        if plugin is None:
            raise ConfigurationError(f'{at}.name: plugin "{name}" does not exist')
        args = each.get("args")
        if args is None:
            continue
        if plugin.arg_fields is None:
            raise ConfigurationError(f"{at}.args: plugin {name} takes none")
        check_shape(args, {**_TYPED, **plugin.arg_fields}, f"{at}.args")
        plugin.check_args(args, f"{at}.args")
