"""The rules of custom metrics: the file of `kvstack metrics --custom`.

    pages:                              pages in Prometheus' text format, other than pods'
      ingress: http://10.0.0.7:10254/metrics
    metrics:
    - name: http_requests_per_second    as custom.metrics.k8s.io serves it: of pods
      sample: http_requests_total       as pods expose it
      type: rate                        how fast it grows a second; value (the default): as it is
      labels: {code: "200"}             of the samples that count; all of them are added up
    - name: requests_per_second         of Services or Ingresses, as a page exposes it
      sample: ingress_requests_total
      type: rate
      of: ingresses.networking.k8s.io
      page: ingress
      namespaceLabel: namespace         labels that say of which object a sample is; the defaults
      nameLabel: ingress
    external:                           as external.metrics.k8s.io serves it
    - name: queue_messages
      sample: queue_messages_ready
      page: queue
      namespaceLabel: team              whose value is the namespace that sees it; default: all do
    allowLoopback: false                whether pods at addresses of loopback are read

Pods are read that ask for it, as Prometheus' examples have it: by the annotations
prometheus.io/scrape "true", prometheus.io/port and prometheus.io/path.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import yaml

from kvstack.agents.client.built_in import SERVICES
from kvstack.agents.client.resource_type import ResourceType
from kvstack.component.errors import ConfigError

Given: TypeAlias = Mapping[Any, Any]

METRICS_MAX: Final = 100
"""The maximum of each list."""
PAGES_MAX: Final = 20
_BYTES_MAX: Final = 1 << 20
_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,252}")
_SAMPLE: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,252}")
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,252}")
_TYPES: Final = ("value", "rate")
_MEMBERS: Final = frozenset(("metrics", "external", "pages", "allowLoopback"))
_OF_ALL: Final = frozenset(("name", "sample", "type", "labels"))
_OF_METRIC: Final = _OF_ALL | {"of", "page", "namespaceLabel", "nameLabel"}
_OF_OBJECT_ALONE: Final = ("page", "namespaceLabel", "nameLabel")
_OF_EXTERNAL: Final = _OF_ALL | {"page", "namespaceLabel"}
_TARGET: Final = re.compile(r"/[A-Za-z0-9_.~%!$&'()*+,;=:@/?-]{0,1023}")
_PORTS: Final = {"http": 80, "https": 443}


class ObjectKind(NamedTuple):
    """A kind of objects that have metrics."""

    resource: ResourceType
    label: str
    """The default label with the name of the object."""


_INGRESSES: Final = ResourceType("networking.k8s.io", "v1", "ingresses", "Ingress")
OBJECTS: Final[Mapping[str, ObjectKind]] = {
    "services": ObjectKind(SERVICES, "service"),
    "ingresses.networking.k8s.io": ObjectKind(_INGRESSES, "ingress"),
}
"""By resource, as in paths of custom.metrics.k8s.io, without pods."""


class Page(NamedTuple):
    """The URL of a page in Prometheus' format."""

    host: str
    port: int
    target: str
    is_tls: bool


class Rule(NamedTuple):
    """One metric."""

    name: str
    sample: str
    is_rate: bool = False
    labels: Mapping[str, str] = {}
    page: str = ""
    """Empty: pods expose it."""
    namespace_label: str = ""
    name_label: str = ""


class Rules(NamedTuple):
    """All of them."""

    metrics: Mapping[str, Rule]
    """Rules of pods, by name."""
    allows_loopback: bool = False
    objects: Mapping[tuple[str, str], Rule] = {}
    """Rules of other objects, by resource and name."""
    external: Mapping[str, Rule] = {}
    pages: Mapping[str, Page] = {}


def load(path: str) -> Rules:
    """Return what a file says; raises ConfigError."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"--custom {path}: {error.strerror}") from error
    if len(data) > _BYTES_MAX:
        raise ConfigError(f"--custom {path}: more than {_BYTES_MAX} bytes")
    try:
        found = yaml.safe_load(data)
    except yaml.YAMLError as error:
        raise ConfigError(f"--custom {path}: {error}") from error
    try:
        return parse(found)
    except ValueError as error:
        raise ConfigError(f"--custom {path}: {error}") from error


def parse(document: Any) -> Rules:  # noqa: ANN401 - of a file
    """Return what is said; ValueError names what is wrong."""
    if not isinstance(document, dict):
        raise ValueError("an object with metrics is wanted")  # noqa: TRY004
    _check_members(document, _MEMBERS, "")
    loopback = document.get("allowLoopback", False)
    if not isinstance(loopback, bool):
        raise ValueError(f"allowLoopback: {loopback!r}: true or false")  # noqa: TRY004
    pages = _pages(document.get("pages", {}))
    pods: dict[str, Rule] = {}
    objects: dict[tuple[str, str], Rule] = {}
    external: dict[str, Rule] = {}
    for field, each in _items(document, "metrics"):
        rule, resource = _metric(each, field, pages)
        if resource:
            _add(objects, (resource, rule.name), rule, field)
        else:
            _add(pods, rule.name, rule, field)
    for field, each in _items(document, "external"):
        rule = _external(each, field, pages)
        _add(external, rule.name, rule, field)
    if not pods and not objects and not external:
        raise ValueError("metrics, external: at least one in one of the lists")
    return Rules(pods, loopback, objects, external, pages)


def _items(given: Given, name: str) -> Sequence[tuple[str, Given]]:
    """Return the objects of a list, with their places."""
    entries = given.get(name)
    if entries is None:
        return ()
    if not isinstance(entries, list):
        raise ValueError(f"{name}: a list of at least one")  # noqa: TRY004
    if len(entries) > METRICS_MAX:
        raise ValueError(f"{name}: {len(entries)} of them, more than {METRICS_MAX}")
    for number, each in enumerate(entries):
        if not isinstance(each, dict):
            raise ValueError(f"{name}[{number}]: an object is wanted")  # noqa: TRY004
    return [(f"{name}[{number}]", each) for number, each in enumerate(entries)]


def _add(rules: dict[Any, Rule], key: object, rule: Rule, field: str) -> None:
    if key in rules:
        raise ValueError(f"{field}.name: {rule.name} is there twice")
    rules[key] = rule


def _metric(item: Given, field: str, pages: Mapping[str, Page]) -> tuple[Rule, str]:
    """Return a rule, and of which resource it is; empty: of pods."""
    _check_members(item, _OF_METRIC, f"{field}.")
    rule = _rule(item, field)
    resource = item.get("of", "pods")
    if resource == "pods":
        for each in _OF_OBJECT_ALONE:
            if each in item:
                raise ValueError(f"{field}.{each}: pods expose their metrics themselves")
        return rule, ""
    if not isinstance(resource, str) or resource not in OBJECTS:
        raise ValueError(f"{field}.of: {resource!r}: one of pods, {', '.join(OBJECTS)}")
    found = rule._replace(
        page=_page_of(item, field, pages),
        namespace_label=_label(item, field, "namespaceLabel", "namespace"),
        name_label=_label(item, field, "nameLabel", OBJECTS[resource].label),
    )
    return found, resource


def _external(given: Given, field: str, pages: Mapping[str, Page]) -> Rule:
    _check_members(given, _OF_EXTERNAL, f"{field}.")
    label = _label(given, field, "namespaceLabel", "") if "namespaceLabel" in given else ""
    rule = _rule(given, field)
    return rule._replace(page=_page_of(given, field, pages), namespace_label=label)


def _rule(item: Given, field: str) -> Rule:
    name, sample = item.get("name"), item.get("sample")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{field}.name: invalid metric name {name!r}")
    if not isinstance(sample, str) or not _SAMPLE.fullmatch(sample):
        raise ValueError(f"{field}.sample: invalid sample name {sample!r}")
    type_ = item.get("type", "value")
    if type_ not in _TYPES:
        raise ValueError(f"{field}.type: {type_!r}: one of {', '.join(_TYPES)}")
    labels = item.get("labels") or {}
    if not isinstance(labels, dict) or not all(
        isinstance(each, str) for pair in labels.items() for each in pair
    ):
        raise ValueError(f"{field}.labels: {labels!r}: texts by names")
    return Rule(name, sample, type_ == "rate", labels)


def _page_of(given: Given, field: str, pages: Mapping[str, Page]) -> str:
    page = given.get("page")
    if not isinstance(page, str) or page not in pages:
        raise ValueError(f"{field}.page: {page!r} is not one of pages ({', '.join(pages)})")
    return page


def _label(given: Given, field: str, name: str, default: str) -> str:
    label = given.get(name, default)
    if not isinstance(label, str) or not _LABEL.fullmatch(label):
        raise ValueError(f"{field}.{name}: invalid label name {label!r}")
    return label


def _pages(given: Any) -> dict[str, Page]:  # noqa: ANN401 - of a file
    if not isinstance(given, dict) or len(given) > PAGES_MAX:
        raise ValueError(f"pages: addresses by names, at most {PAGES_MAX}")
    return {str(name): _page(url, f"pages.{name}") for name, url in given.items()}


def _page(url: Any, field: str) -> Page:  # noqa: ANN401 - of a file
    wrong = ValueError(f"{field}: {url!r} is not of the form http[s]://HOST[:PORT]/PATH")
    if not isinstance(url, str):
        raise wrong
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise wrong from None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if parts.scheme not in _PORTS or not host or "@" in parts.netloc or parts.fragment:
        raise wrong
    if port == 0 or not _TARGET.fullmatch(target) or not host.isascii() or not host.isprintable():
        raise wrong
    return Page(host, port or _PORTS[parts.scheme], target, parts.scheme == "https")


def _check_members(given: Mapping[Any, Any], known: frozenset[str], field: str) -> None:
    for each in given:
        if each not in known:
            raise ValueError(f"{field}{each}: one of {', '.join(sorted(known))}")
