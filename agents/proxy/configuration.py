"""A KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1): defaults, a file, flags, checks.

    whole = read_configuration(obj)                  of a file: strict, with defaults
    with_path(whole, ("mode",), "nftables")          what a flag says over it

Raises ConfigError with the field and what is wrong with it.
"""

from collections.abc import Mapping
from copy import deepcopy
from ipaddress import ip_network
from typing import Any, Final

from kvstack.apimachinery.objects.durations import DurationError, parse
from kvstack.apimachinery.objects.durations import text as duration_text
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.errors import ConfigError

API_VERSION: Final = "kubeproxy.config.k8s.io/v1alpha1"
KIND: Final = "KubeProxyConfiguration"
MODES: Final = ("", "nftables", "iptables", "userspace")
KEYWORDS: Final = ("primary", "localhost", "all")

DEFAULTS: Final[Object] = {
    "bindAddress": "0.0.0.0",
    "bindAddressHardFail": False,
    "clientConnection": {"kubeconfig": ""},
    "clusterCIDR": "",
    "detectLocal": {"bridgeInterface": "", "interfaceNamePrefix": ""},
    "detectLocalMode": "ClusterCIDR",
    "healthzBindAddress": "0.0.0.0:10256",
    "hostnameOverride": "",
    "iptables": {
        "localhostNodePorts": True,
        "masqueradeAll": False,
        "masqueradeBit": 14,
        "minSyncPeriod": "1s",
        "syncPeriod": "30s",
    },
    "metricsBindAddress": "127.0.0.1:10249",
    "mode": "",
    "nftables": {
        "masqueradeAll": False,
        "masqueradeBit": 14,
        "minSyncPeriod": "1s",
        "syncPeriod": "30s",
    },
    "nodePortAddresses": [],
}
"""What has an effect here."""
WITHOUT_EFFECT: Final[Object] = {
    "clientConnection": {"acceptContentTypes": "", "burst": 0, "contentType": "", "qps": 0},
    "configSyncPeriod": "15m0s",
    "conntrack": {
        "maxPerCore": 32768,
        "min": 131072,
        "tcpBeLiberal": False,
        "tcpCloseWaitTimeout": "1h0m0s",
        "tcpEstablishedTimeout": "24h0m0s",
        "udpStreamTimeout": "0s",
        "udpTimeout": "0s",
    },
    "enableProfiling": False,
    "featureGates": {},
    "ipvs": {
        "excludeCIDRs": [],
        "minSyncPeriod": "0s",
        "scheduler": "",
        "strictARP": False,
        "syncPeriod": "30s",
        "tcpFinTimeout": "0s",
        "tcpTimeout": "0s",
        "udpTimeout": "0s",
    },
    "logging": {},
    "oomScoreAdj": -999,
    "portRange": "",
    "showHiddenMetricsForVersion": "",
    "winkernel": {},
    "windowsRunAsService": False,
}
"""Fields that are taken and have no meaning here; the log says which were given."""
SECTIONS: Final = ("nftables", "iptables")
_DURATIONS: Final = ("minSyncPeriod", "syncPeriod")
_UNSET_IF_EMPTY: Final = frozenset(
    (
        *("bindAddress", "detectLocalMode", "healthzBindAddress", "metricsBindAddress"),
        *_DURATIONS,
    )
)
"""Fields that have their default where a file says they are empty: kubeadm writes such files."""
_EMPTY: Final = ("", "0s", 0)
_LOCAL_MODES: Final = ("ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix")
_BIT_MAX: Final = 31


def read_configuration(obj: Object) -> Object:
    """Return defaults and what an object says over them."""
    given = (obj.get("apiVersion", API_VERSION), obj.get("kind", KIND))
    if given != (API_VERSION, KIND):
        raise ConfigError(f'no kind "{given[1]}" is registered for version "{given[0]}"')
    said = {name: each for name, each in obj.items() if name not in ("apiVersion", "kind")}
    found = deepcopy(DEFAULTS)
    _take(said, found, "")
    return checked(found)


def _take(said: Mapping[str, Any], found: Object, path: str) -> None:
    """Put what is said over defaults; path: the field that these are members of, with a dot."""
    ignored = WITHOUT_EFFECT.get(path[:-1], {}) if path else WITHOUT_EFFECT
    for name, value in said.items():
        if value is None or (name in _UNSET_IF_EMPTY and value in _EMPTY):
            continue
        known = found.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            _take(value, known, f"{name}.")
        elif name in found:
            if type(value) is not type(known):
                raise ConfigError(f"{path}{name}: {value!r}: its kind is {type(known).__name__}")
            found[name] = value
        elif name not in ignored:
            raise ConfigError(f'strict decoding error: unknown field "{path}{name}"')


def without_effect(obj: Object) -> list[str]:
    """Return the fields of an object that have no meaning here, unless they say the default."""
    found = []
    for name, value in obj.items():
        if name not in WITHOUT_EFFECT:
            continue
        usual = WITHOUT_EFFECT[name]
        if isinstance(value, dict) and isinstance(usual, dict):
            said = (k for k in usual if value.get(k) not in (None, 0, "", usual[k]))
            found += [f"{name}.{each}" for each in said]
        elif value not in (None, usual):
            found.append(name)
    return sorted(found)


def with_path(found: Object, path: tuple[str, ...], value: object) -> None:
    """Set one field; durations may be nanoseconds, lists tuples."""
    section = found
    for name in path[:-1]:
        section = section[name]
    if path[-1] in _DURATIONS and isinstance(value, int):
        value = duration_text(value)
    section[path[-1]] = list(value) if isinstance(value, tuple) else value


def checked(found: Object) -> Object:
    """Return a configuration that can be meant."""
    mode = found["mode"]
    if mode == "ipvs":
        text = (
            "kube-proxy deprecates it, too: nftables or iptables take its place; or leave it empty"
        )
        raise ConfigError(f'mode: "{mode}": {text}')
    if mode not in MODES:
        raise ConfigError(f'mode: "{mode}": must be nftables, iptables, userspace or blank')
    for section in SECTIONS:
        _check_section(section, found[section])
    if found["detectLocalMode"] not in _LOCAL_MODES:
        told = ", ".join(_LOCAL_MODES)
        raise ConfigError(f'detectLocalMode: "{found["detectLocalMode"]}": one of {told}')
    _check_ranges("clusterCIDR", filter(None, found["clusterCIDR"].split(",")), ())
    _check_ranges("nodePortAddresses", found["nodePortAddresses"], KEYWORDS)
    return found


def _check_section(section: str, found: Object) -> None:
    """Check the settings of rules of one mode."""
    for name in _DURATIONS:
        try:
            period_ns = parse(str(found[name]))
        except DurationError as error:
            raise ConfigError(f"{section}.{name}: {error}") from error
        if period_ns < 0 or (name == "syncPeriod" and not period_ns):
            raise ConfigError(f"{section}.{name}: must be greater than 0")
    if seconds(found, "minSyncPeriod") > seconds(found, "syncPeriod"):
        raise ConfigError(f"{section}.minSyncPeriod: must not be longer than syncPeriod")
    if not 0 <= found["masqueradeBit"] <= _BIT_MAX:
        raise ConfigError(f"{section}.masqueradeBit: from 0 to {_BIT_MAX}")


def _check_ranges(field: str, texts: Any, keywords: tuple[str, ...]) -> None:  # noqa: ANN401
    for text in texts:
        if text in keywords:
            continue
        try:
            ip_network(text, strict=False)
        except ValueError as error:
            more = " or one of the keywords 'primary', 'localhost', 'all'" if keywords else ""
            raise ConfigError(f'{field}: "{text}": must be a valid CIDR{more}') from error


def section_of(found: Object, mode: str) -> Object:
    """Return the settings of rules of a mode; what writes none syncs as nftables does."""
    section: Object = found["iptables" if mode == "iptables" else "nftables"]
    return section


def seconds(section: Object, name: str) -> float:
    """Return one of the periods of a section."""
    return parse(str(section[name])) / 1e9
