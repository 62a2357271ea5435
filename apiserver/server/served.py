"""Which groups and versions are served (`--runtime-config`).

    (nothing)                                       all versions but alpha and beta
    api/beta=true                                   all beta versions as well
    coordination.k8s.io/v1beta1=true                this version as well
    batch/v1=false                                  without this version
    api/all=false,api/v1=true                       nothing but core

A key that names one version overrides api/ga, api/beta and api/alpha, and these override api/all.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_bool
from kvstack.apimachinery.schema.resource import Resource
from kvstack.apiserver.policy.admission.plugins.optional.owner_references_permission_enforcement import (  # noqa: E501
    MappedResource,
)
from kvstack.apiserver.verbs.endpoint import Endpoints
from kvstack.component.errors import ConfigError

ALL: Final = "api/all"
_LEVELS: Final = {
    "api/ga": re.compile(r"v[0-9]+"),
    "api/beta": re.compile(r"v[0-9]+beta[0-9]+"),
    "api/alpha": re.compile(r"v[0-9]+alpha[0-9]+"),
}
ALWAYS: Final = frozenset(("v1",))
"""The server itself needs these."""


def served_rows(table: Iterable[Resource], config: Mapping[str, str]) -> list[Resource]:
    """Return the rows that are served, in order; raises ConfigError."""
    rows = list(table)
    wanted = _parse(config, {(each.group, each.version) for each in rows})
    return [each for each in rows if _is_on(each, wanted)]


def _parse(config: Mapping[str, str], known_versions: set[tuple[str, str]]) -> dict[str, bool]:
    enabled: dict[str, bool] = {}
    unknown = []
    for name, text in config.items():
        key = _plain(name)
        try:
            enabled[key] = parse_bool(text) if text else True
        except NumberError:
            message = f"invalid value of runtime-config {name}={text}"
            raise ConfigError(message) from None
        if key == ALL or key in _LEVELS or key in ALWAYS:
            continue
        group, _, rest = key.partition("/")
        if (group, rest.partition("/")[0]) not in known_versions:
            unknown.append(name)
    if unknown:
        raise ConfigError(f"unknown api groups {','.join(sorted(unknown))}")
    if not enabled.get("v1", enabled.get(ALL, True)):
        raise ConfigError("the core group v1 cannot be disabled")
    return enabled


def _plain(name: str) -> str:
    return "v1" if name in ("api/v1", "v1") else name


def _is_on(row: Resource, config: Mapping[str, bool]) -> bool:
    resource = config.get(f"{row.group_version}/{row.name}")
    if resource is not None:
        return resource
    version = config.get(row.group_version)
    if version is not None:
        return version
    for level, pattern in _LEVELS.items():
        if pattern.fullmatch(row.version):
            return config.get(level, config.get(ALL, level == "api/ga"))
    return config.get(ALL, True)


def served_as(endpoints: Endpoints, group: str, version: str, kind: str) -> list[MappedResource]:
    """Return the resources of a kind that are currently served."""
    return [
        MappedResource(GroupResource(each.group, each.name), each.version, each.is_namespaced)
        for each in endpoints.rows
        if (each.group, each.version, each.kind.kind) == (group, version, kind)
    ]
