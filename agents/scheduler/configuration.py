"""The configuration: kubescheduler.config.k8s.io/v1, kind KubeSchedulerConfiguration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kvstack.agents.scheduler.arguments import ConfigurationError
from kvstack.agents.scheduler.configuration_checks import check
from kvstack.agents.scheduler.extenders import Extender
from kvstack.agents.scheduler.profile import (
    DEFAULT_NAME,
    Profile,
    TieBreak,
    profile_of,
)
from kvstack.apimachinery.objects import durations
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_label_key

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"

_EXTENDER_TIMEOUT_S: Final = 5.0
_NATIVE_DOMAIN: Final = "kubernetes.io/"
_QUOTA_PREFIX: Final = "requests."


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of a scheduler."""

    profiles: Mapping[str, Profile]
    """By schedulerName."""
    initial_back_off_s: float = 1.0
    max_back_off_s: float = 10.0
    max_unschedulable_s: float = 300.0
    """The time after which an unschedulable pod is tried again without an event."""
    extenders: tuple[Extender, ...] = ()
    """In the order of their calls: those whose failures count come first."""


def read_configuration(obj: Object, *, tie_break: TieBreak = "roundRobin") -> Configuration:
    """Return the configuration of an object; raises ConfigurationError."""
    given = (obj.get("apiVersion", API_VERSION), obj.get("kind", KIND))
    if given != (API_VERSION, KIND):
        raise ConfigurationError(f'no kind "{given[1]}" is registered for version "{given[0]}"')
    check(obj)
    percentage = obj.get("percentageOfNodesToScore") or 0
    if not 0 <= percentage <= 100:
        raise ConfigurationError(
            f"percentageOfNodesToScore: Invalid value: {percentage}: not in valid range [0-100]"
        )
    initial_s = float(obj.get("podInitialBackoffSeconds", 1))
    max_s = float(obj.get("podMaxBackoffSeconds", 10))
    if initial_s <= 0:
        raise ConfigurationError("podInitialBackoffSeconds: must be greater than 0")
    if max_s < initial_s:
        raise ConfigurationError(
            "podMaxBackoffSeconds: must be greater than or equal to PodInitialBackoffSeconds"
        )
    extenders, ignored = _read_extenders(obj.get("extenders") or ())
    profile_documents = obj.get("profiles") or [{}]
    profiles: dict[str, Profile] = {}
    for number, each in enumerate(profile_documents):
        name = each.get("schedulerName") or (DEFAULT_NAME if len(profile_documents) == 1 else "")
        if not name:
            raise ConfigurationError(f"profiles[{number}].schedulerName: Required value")
        if name in profiles:
            raise ConfigurationError(f'profiles[{number}].schedulerName: Duplicate value: "{name}"')
        profiles[name] = profile_of(
            each, percentage=percentage, tie_break=tie_break, ignored_resources=ignored
        )
    return Configuration(
        profiles,
        initial_s,
        max_s,
        extenders=extenders,
    )


def _read_extenders(documents: Sequence[Object]) -> tuple[tuple[Extender, ...], list[str]]:
    """Return extenders, and the resources that the scheduler leaves to them."""
    resources_seen: set[str] = set()
    extenders: list[Extender] = []
    ignored: list[str] = []
    for index, each in enumerate(documents):
        path = f"extenders[{index}]"
        if not each.get("urlPrefix"):
            raise ConfigurationError(f"{path}.urlPrefix: Required value")
        weight = each.get("weight") or 0
        if each.get("prioritizeVerb") and weight <= 0:
            raise ConfigurationError(
                f"{path}.weight: Invalid value: {weight}: must have a positive weight applied to it"
            )
        resources = each.get("managedResources") or ()
        for number, resource in enumerate(resources):
            _check_resource(
                f"{path}.managedResources[{number}].name", resource["name"], resources_seen
            )
        ignored += [one["name"] for one in resources if one.get("ignoredByScheduler")]
        extenders.append(_extender(path, each))
    if (binders := sum(1 for each in extenders if each.bind_verb)) > 1:
        raise ConfigurationError(
            f'extenders: Invalid value: "found {binders} extenders implementing bind":'
            " only one extender can implement bind"
        )
    return tuple(sorted(extenders, key=lambda each: each.is_ignorable)), ignored


def _check_resource(path: str, name: str, resources_seen: set[str]) -> None:
    problems = check_label_key(name)
    if not problems and (
        "/" not in name or _NATIVE_DOMAIN in name or name.startswith(_QUOTA_PREFIX)
    ):
        problems = ["is an invalid extended resource name"]
    if not problems and name in resources_seen:
        problems = ["duplicate extender managed resource name"]
    if problems:
        raise ConfigurationError(f'{path}: Invalid value: "{name}": {problems[0]}')
    resources_seen.add(name)


def _extender(path: str, document: Object) -> Extender:
    try:
        timeout_s = durations.parse(document.get("httpTimeout") or "0") / 1e9
    except durations.DurationError as error:
        raise ConfigurationError(f"{path}.httpTimeout: {error}") from error
    return Extender(
        document["urlPrefix"],
        document.get("filterVerb") or "",
        document.get("prioritizeVerb") or "",
        document.get("preemptVerb") or "",
        document.get("bindVerb") or "",
        document.get("weight") or 0,
        timeout_s or _EXTENDER_TIMEOUT_S,
        bool(document.get("nodeCacheCapable")),
        frozenset(each["name"] for each in document.get("managedResources") or ()),
        bool(document.get("ignorable")),
        bool(document.get("enableHTTPS")),
        document.get("tlsConfig") or {},
    )


DEFAULT: Final = read_configuration({})
