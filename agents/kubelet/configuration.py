"""The kubelet's configuration: kubelet.config.k8s.io/v1beta1, kind KubeletConfiguration.

    found = read_configuration(obj)                 defaults, and what the object says
    found = with_flags(found, {"max-pods": "50"})   flags are stronger

/configz shows the `whole` of it. A field that has no meaning here is taken (`without_effect` names
it); one that nobody knows is an error.
"""

from collections.abc import Mapping
from typing import Final

from kvstack.agents.kubelet.eviction.evictions import (
    CONDITIONS,
    HARD_THRESHOLDS,
    LOCAL_STORAGE,
    amount_of,
)
from kvstack.agents.kubelet.pods.restarts import MAX_S
from kvstack.agents.kubelet.runtime.pod_groups import CGROUP_DRIVERS, CGROUPFS
from kvstack.apimachinery.objects.durations import DurationError, parse
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.errors import ConfigError
from kvstack.component.flags.flag_reader import TLS_VERSIONS

API_VERSION: Final = "kubelet.config.k8s.io/v1beta1"
KIND: Final = "KubeletConfiguration"

DEFAULTS: Final[Object] = {
    "address": "0.0.0.0",
    "port": 10250,
    "healthzPort": 10248,
    "healthzBindAddress": "127.0.0.1",
    "staticPodPath": "",
    "staticPodURL": "",
    "fileCheckFrequency": "20s",
    "httpCheckFrequency": "20s",
    "nodeStatusUpdateFrequency": "10s",
    "nodeStatusReportFrequency": "5m0s",
    "maxPods": 110,
    "podsPerCore": 0,
    "podPidsLimit": -1,
    "authentication": {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": True, "cacheTTL": "2m0s"},
        "x509": {"clientCAFile": ""},
    },
    "authorization": {
        "mode": "Webhook",
        "webhook": {"cacheAuthorizedTTL": "5m0s", "cacheUnauthorizedTTL": "30s"},
    },
    "containerRuntimeEndpoint": "",
    "imageServiceEndpoint": "",
    "clusterDNS": [],
    "clusterDomain": "",
    "resolvConf": "/etc/resolv.conf",
    "cgroupRoot": "",
    "cgroupDriver": CGROUPFS,
    "evictionHard": {**HARD_THRESHOLDS, "imagefs.available": "15%", "imagefs.inodesFree": "5%"},
    "evictionSoft": {},
    "evictionSoftGracePeriod": {},
    "evictionMinimumReclaim": {},
    "evictionMaxPodGracePeriod": 0,
    "evictionPressureTransitionPeriod": "5m0s",
    "imageGCHighThresholdPercent": 85,
    "imageGCLowThresholdPercent": 80,
    "imageMinimumGCAge": "2m0s",
    "imageMaximumGCAge": "0s",
    "containerLogMaxSize": "10Mi",
    "containerLogMaxFiles": 5,
    "podLogsDir": "/var/log/pods",
    "systemReserved": {},
    "kubeReserved": {},
    "tlsCertFile": "",
    "tlsPrivateKeyFile": "",
    "serverTLSBootstrap": False,
    "rotateCertificates": False,
    "registerNode": True,
    "registerWithTaints": [],
    "providerID": "",
    "seccompDefault": False,
    "allowedUnsafeSysctls": [],
    "nodeStatusMaxImages": 50,
    "nodeLeaseDurationSeconds": 40,
    "enableDebuggingHandlers": True,
    "tlsMinVersion": "",
    "tlsCipherSuites": [],
    "crashLoopBackOff": {"maxContainerRestartPeriod": "5m0s"},
    "shutdownGracePeriod": "0s",
    "shutdownGracePeriodCriticalPods": "0s",
    "shutdownGracePeriodByPodPriority": [],
}
"""The supported fields, with their defaults."""

WITHOUT_EFFECT: Final[Object] = {
    "cgroupsPerQOS": True,
    "configMapAndSecretChangeDetectionStrategy": "Watch",
    "containerLogMaxWorkers": 1,
    "containerLogMonitorInterval": "10s",
    "contentType": "application/json",
    "cpuCFSQuota": True,
    "cpuCFSQuotaPeriod": "100ms",
    "cpuManagerPolicy": "none",
    "cpuManagerPolicyOptions": {},
    "cpuManagerReconcilePeriod": "10s",
    "enableContentionProfiling": False,
    "enableControllerAttachDetach": True,
    "enableDebugFlagsHandler": False,
    "enableProfilingHandler": False,
    "enableServer": True,
    "enableSystemLogHandler": True,
    "enableSystemLogQuery": False,
    "enforceNodeAllocatable": ["pods"],
    "eventBurst": 0,
    "eventRecordQPS": 0,
    "failCgroupV1": False,
    "failSwapOn": False,
    "featureGates": {},
    "hairpinMode": "hairpin-veth",
    "imagePullCredentialsVerificationPolicy": "NeverVerify",
    "iptablesDropBit": 15,
    "iptablesMasqueradeBit": 14,
    "kernelMemcgNotification": False,
    "kubeAPIBurst": 0,
    "kubeAPIQPS": 0,
    "kubeReservedCgroup": "",
    "kubeletCgroups": "",
    "localStorageCapacityIsolation": True,
    "logging": {"format": "json"},
    "makeIPTablesUtilChains": False,
    "maxOpenFiles": 0,
    "maxParallelImagePulls": None,
    "memoryManagerPolicy": "None",
    "memoryReservationPolicy": "None",
    "memorySwap": {},
    "memoryThrottlingFactor": None,
    "mergeDefaultEvictionSettings": False,
    "oomScoreAdj": 0,
    "podCIDR": "",
    "preloadedImagesVerificationAllowlist": [],
    "protectKernelDefaults": False,
    "qosReserved": {},
    "readOnlyPort": 0,
    "registryBurst": 0,
    "registryPullQPS": 0,
    "reservedMemory": [],
    "reservedSystemCPUs": "",
    "runtimeRequestTimeout": "2m0s",
    "serializeImagePulls": True,
    "showHiddenMetricsForVersion": "",
    "singleProcessOOMKill": None,
    "staticPodURLHeader": {},
    "streamingConnectionIdleTimeout": "4h0m0s",
    "syncFrequency": "1m0s",
    "systemCgroups": "",
    "systemReservedCgroup": "",
    "tlsCurvePreferences": [],
    "topologyManagerPolicy": "none",
    "topologyManagerPolicyOptions": {},
    "topologyManagerScope": "container",
    "tracing": None,
    "userNamespaces": None,
    "volumePluginDir": "",
    "volumeStatsAggPeriod": "1m0s",
}
"""Fields that are taken and have no meaning here; the log says so. The values are kubelet's
defaults, or, where this node differs, what it does: what is not limited is 0."""
FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "address": ("address",),
    "port": ("port",),
    "healthz-port": ("healthzPort",),
    "healthz-bind-address": ("healthzBindAddress",),
    "pod-manifest-path": ("staticPodPath",),
    "manifest-url": ("staticPodURL",),
    "file-check-frequency": ("fileCheckFrequency",),
    "http-check-frequency": ("httpCheckFrequency",),
    "node-status-update-frequency": ("nodeStatusUpdateFrequency",),
    "max-pods": ("maxPods",),
    "pods-per-core": ("podsPerCore",),
    "pod-max-pids": ("podPidsLimit",),
    "anonymous-auth": ("authentication", "anonymous", "enabled"),
    "authentication-token-webhook": ("authentication", "webhook", "enabled"),
    "client-ca-file": ("authentication", "x509", "clientCAFile"),
    "authorization-mode": ("authorization", "mode"),
    "container-runtime-endpoint": ("containerRuntimeEndpoint",),
    "image-service-endpoint": ("imageServiceEndpoint",),
    "cluster-dns": ("clusterDNS",),
    "cluster-domain": ("clusterDomain",),
    "resolv-conf": ("resolvConf",),
    "cgroup-root": ("cgroupRoot",),
    "cgroup-driver": ("cgroupDriver",),
    "eviction-hard": ("evictionHard",),
    "eviction-soft": ("evictionSoft",),
    "eviction-soft-grace-period": ("evictionSoftGracePeriod",),
    "eviction-minimum-reclaim": ("evictionMinimumReclaim",),
    "eviction-max-pod-grace-period": ("evictionMaxPodGracePeriod",),
    "eviction-pressure-transition-period": ("evictionPressureTransitionPeriod",),
    "image-gc-high-threshold": ("imageGCHighThresholdPercent",),
    "image-gc-low-threshold": ("imageGCLowThresholdPercent",),
    "minimum-image-ttl-duration": ("imageMinimumGCAge",),
    "container-log-max-size": ("containerLogMaxSize",),
    "container-log-max-files": ("containerLogMaxFiles",),
    "pod-logs-dir": ("podLogsDir",),
    "system-reserved": ("systemReserved",),
    "kube-reserved": ("kubeReserved",),
    "tls-cert-file": ("tlsCertFile",),
    "tls-private-key-file": ("tlsPrivateKeyFile",),
    "rotate-certificates": ("rotateCertificates",),
    "rotate-server-certificates": ("serverTLSBootstrap",),
    "tls-min-version": ("tlsMinVersion",),
    "tls-cipher-suites": ("tlsCipherSuites",),
    "register-node": ("registerNode",),
    "register-with-taints": ("registerWithTaints",),
    "provider-id": ("providerID",),
    "seccomp-default": ("seccompDefault",),
    "allowed-unsafe-sysctls": ("allowedUnsafeSysctls",),
    "node-status-max-images": ("nodeStatusMaxImages",),
    "enable-debugging-handlers": ("enableDebuggingHandlers",),
}
"""Flags of kubelet that stand for a field."""
_DURATIONS: Final = frozenset(
    name
    for name, value in DEFAULTS.items()
    if isinstance(value, str) and value[:1].isdigit() and value.endswith(("s", "m"))
)


class ConfigurationFileError(ConfigError):
    """A configuration that cannot be meant."""


def read_configuration(obj: Object) -> Object:
    """Return defaults and what an object says over them; raises ConfigurationFileError."""
    given = (obj.get("apiVersion", API_VERSION), obj.get("kind", KIND))
    if given != (API_VERSION, KIND):
        raise ConfigurationFileError(f'no kind "{given[1]}" is registered for version "{given[0]}"')
    given_fields: Object = {}
    for name, value in obj.items():
        if name in ("apiVersion", "kind") or value is None:
            continue
        if name not in DEFAULTS and name not in WITHOUT_EFFECT:
            raise ConfigurationFileError(f'strict decoding error: unknown field "{name}"')
        given_fields[name] = value
    configuration = _over(merged(DEFAULTS, {}), given_fields)
    _check(configuration)
    return configuration


def whole(configuration: Object) -> Object:
    """Return what /configz shows: every field, with its default if a configuration lacks it."""
    every = _over(merged({**WITHOUT_EFFECT, **DEFAULTS}, {}), configuration)
    return {name: value for name, value in sorted(every.items()) if value is not None}


def _over(defaults: Object, given: Object) -> Object:
    """Return defaults, and fields over them; only what is nested is merged by its members."""
    result = dict(defaults)
    for name, value in given.items():
        result[name] = merged(result[name], value) if _is_nested(name) else value
    return result


def _is_nested(name: str) -> bool:
    return name in ("authentication", "authorization", "crashLoopBackOff")


def merged(one: Object, other: Object) -> Object:
    """Return an object over another, member by member."""
    result = {
        key: merged(value, {}) if isinstance(value, dict) else value for key, value in one.items()
    }
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def without_effect(obj: Object) -> list[str]:
    """Return the fields of an object that have no meaning here."""
    return sorted(name for name in obj if name in WITHOUT_EFFECT)


def with_flags(configuration: Object, flags: Mapping[str, str]) -> Object:
    """Return a configuration, and flags over it; raises ConfigurationFileError."""
    result = merged(configuration, {})
    for flag, text in flags.items():
        *path, last = FLAGS[flag]
        place = result
        for name in path:
            place = place[name]
        place[last] = _value(flag, text, place.get(last))
    _check(result)
    return result


def _value(flag: str, text: str, default: object) -> object:
    """Return what a flag says, of the kind that its field has."""
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise ConfigurationFileError(f"--{flag} {text}: true or false")
        return text == "true"
    if isinstance(default, int):
        if not text.removeprefix("-").isdecimal():
            raise ConfigurationFileError(f"--{flag} {text}: a number")
        return int(text)
    parts = [each for each in text.split(",") if each]
    if flag == "register-with-taints":
        return [_taint(each) for each in parts]
    if isinstance(default, list):
        return parts
    if isinstance(default, dict):
        separator = "<" if flag in ("eviction-hard", "eviction-soft") else "="
        return dict(_pair(flag, each, separator) for each in parts)
    return text


def _pair(flag: str, text: str, separator: str) -> tuple[str, str]:
    name, found, value = text.partition(separator)
    if not found:
        raise ConfigurationFileError(f"--{flag} {text}: NAME{separator}VALUE")
    return name, value


def _taint(text: str) -> Object:
    head, _, effect = text.rpartition(":")
    key, _, value = head.partition("=")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def seconds(configuration: Object, name: str) -> float:
    """Return a duration of a configuration, in seconds."""
    return parse(str(configuration[name])) / 1e9


def _check_evictions(values: Object) -> None:
    """Check thresholds: signals, amounts, and that soft ones have a time; raises."""
    for name in ("evictionHard", "evictionSoft", "evictionMinimumReclaim"):
        for signal, text in values[name].items():
            if signal not in CONDITIONS or signal == LOCAL_STORAGE:
                raise ConfigurationFileError(f'{name}: unsupported eviction signal "{signal}"')
            try:
                amount = amount_of(str(text), 100)
            except ValueError as error:
                raise ConfigurationFileError(f"{name}: {signal}: {text}: {error}") from error
            if amount < 0:
                raise ConfigurationFileError(f"{name}: {signal}: {text} must not be negative")
    for signal in values["evictionSoft"]:
        if signal not in values["evictionSoftGracePeriod"]:
            text = f"grace period must be specified for the soft eviction threshold {signal}"
            raise ConfigurationFileError(text)
    for signal, text in values["evictionSoftGracePeriod"].items():
        try:
            parse(str(text))
        except DurationError as error:
            raise ConfigurationFileError(f"evictionSoftGracePeriod: {signal}: {error}") from error


def _check_back_off(found: Object) -> None:
    text = str(found["crashLoopBackOff"].get("maxContainerRestartPeriod"))
    try:
        period_s = parse(text) / 1e9
    except DurationError as error:
        raise ConfigurationFileError(f"crashLoopBackOff: {error}") from error
    if not 1 <= period_s <= MAX_S:
        raise ConfigurationFileError(
            f"crashLoopBackOff.maxContainerRestartPeriod: {text}: from 1s to {MAX_S:g}s"
        )


def _check_shutdown(configuration: Object) -> None:
    """Check how long pods have to end with their node; raises."""
    names = ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods")
    whole_s, critical_s = (seconds(configuration, each) for each in names)
    for name, period_s in zip(names, (whole_s, critical_s), strict=True):
        if 0 < period_s < 1 or period_s < 0:
            text = f"{name} {configuration[name]} must be either zero or otherwise >= 1 sec"
            raise ConfigurationFileError(text)
    if critical_s > whole_s:
        values = [f"{each} {configuration[each]}" for each in names]
        raise ConfigurationFileError(f"{values[1]} must be <= {values[0]}")
    name = "shutdownGracePeriodByPodPriority"
    given = configuration[name]
    if given and whole_s:
        text = f"cannot specify both {name} and {names[0]} at the same time"
        raise ConfigurationFileError(text)
    if not isinstance(given, list):
        raise ConfigurationFileError(f"{name}: {given!r}: a list")
    for number, each in enumerate(given):
        members = each if isinstance(each, dict) else {}
        if set(members) != {"priority", "shutdownGracePeriodSeconds"} or not all(
            type(value) is int for value in members.values()
        ):
            text = f"{name}[{number}]: {each!r}: priority and shutdownGracePeriodSeconds, numbers"
            raise ConfigurationFileError(text)
        if members["shutdownGracePeriodSeconds"] < 0:
            raise ConfigurationFileError(f"{name}[{number}]: {each!r}: no time below 0")


def _check(values: Object) -> None:
    _check_back_off(values)
    _check_evictions(values)
    version = values["tlsMinVersion"]
    if version not in TLS_VERSIONS:
        choices = ", ".join(filter(None, TLS_VERSIONS))
        raise ConfigurationFileError(f"tlsMinVersion: {version}: one of {choices}")
    for name in sorted(_DURATIONS):
        try:
            parse(str(values[name]))
        except DurationError as error:
            raise ConfigurationFileError(f"{name}: {error}") from error
    _check_shutdown(values)
    if values["cgroupDriver"] not in CGROUP_DRIVERS:
        choices = ", ".join(CGROUP_DRIVERS)
        raise ConfigurationFileError(f"cgroupDriver: {values['cgroupDriver']}: one of {choices}")
    if values["authorization"]["mode"] not in ("Webhook", "AlwaysAllow"):
        mode = values["authorization"]["mode"]
        raise ConfigurationFileError(f'authorization.mode: invalid value "{mode}"')
