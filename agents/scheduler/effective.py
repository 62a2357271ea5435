"""The effective configuration: the file, with upstream's defaults.

    effective({"podMaxBackoffSeconds": 20}, "/etc/scheduler.conf")
        → {"apiVersion": …, "parallelism": 16, "podMaxBackoffSeconds": 20, "profiles": [{…}], …}

It is what /configz shows and `--write-config-to` writes. A scheduler that reads it is set up the
same. What is given has been checked already.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kvstack.agents.scheduler.configuration import API_VERSION, KIND
from kvstack.agents.scheduler.plugins.table import PLUGINS
from kvstack.agents.scheduler.profile import DEFAULT_NAME, default_weight, plugins_of
from kvstack.apimachinery.objects.json_object import Object

_POINTS: Final = (
    "bind",
    "filter",
    "permit",
    "postBind",
    "postFilter",
    "preBind",
    "preEnqueue",
    "preFilter",
    "preScore",
    "queueSort",
    "reserve",
    "score",
)
_DEFAULTS: Final = {
    "parallelism": 16,
    "percentageOfNodesToScore": 0,
    "podInitialBackoffSeconds": 1,
    "podMaxBackoffSeconds": 10,
    "delayCacheUntilActive": False,
    "enableProfiling": True,
    "enableContentionProfiling": True,
}
_CONNECTION: Final = {
    "acceptContentTypes": "",
    "burst": 100,
    "contentType": "application/vnd.kubernetes.protobuf",
    "qps": 50,
}


def effective(configuration: Object, kubeconfig: str, election: Object) -> Object:
    """Return the whole configuration.

    kubeconfig: the path that is used if none is given; election: `leaderElection` as it has effect.
    """
    connection = configuration.get("clientConnection") or {}
    profiles: list[Object] = configuration.get("profiles") or [{}]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "clientConnection": _filled(connection, {**_CONNECTION, "kubeconfig": kubeconfig}),
        "leaderElection": election,
        **{name: _or(configuration.get(name), usual) for name, usual in _DEFAULTS.items()},
        "profiles": [_profile(each) for each in profiles],
        **({"extenders": configuration["extenders"]} if configuration.get("extenders") else {}),
    }


def _or(value: object, usual: object) -> object:
    return usual if value is None else value


def _filled(given: Mapping[str, Any], usual: Mapping[str, Any]) -> Object:
    """Return what is given, with what is usual where nothing is."""
    known = {name: value for name, value in given.items() if value not in (None, "")}
    return {**usual, **known}


def _profile(profile: Object) -> Object:
    plugins = profile.get("plugins") or {}
    rest = {
        name: value for name, value in profile.items() if name not in ("plugins", "pluginConfig")
    }
    return {
        **rest,
        "schedulerName": profile.get("schedulerName") or DEFAULT_NAME,
        "plugins": {
            **{point: plugins.get(point) or {} for point in _POINTS},
            **{point: value for point, value in plugins.items() if value},
            "multiPoint": _everywhere(plugins.get("multiPoint") or {}),
        },
        "pluginConfig": _arguments(profile.get("pluginConfig") or ()),
    }


def _everywhere(given: Object) -> Object:
    """Return the plugins that work at all their points: the default ones, and those enabled."""
    rows = [
        {"name": name, "weight": weight or default_weight(name)}
        for name, weight in plugins_of(given).items()
    ]
    return {"enabled": rows, **({"disabled": given["disabled"]} if given.get("disabled") else {})}


def _arguments(given: Iterable[Object]) -> list[Object]:
    """Return the arguments of all plugins that take some, in the order of their names."""
    arguments = {each["name"]: each.get("args") or {} for each in given}
    return [
        {
            "name": name,
            "args": {
                "apiVersion": API_VERSION,
                "kind": f"{name}Args",
                **_filled(arguments.get(name, {}), plugin.arg_defaults),
            },
        }
        for name, plugin in sorted(PLUGINS.items())
        if plugin.arg_fields is not None
    ]
