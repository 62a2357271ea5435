"""The data of ConfigMaps and Secrets that controllers do not read: left out of their informers.

    Informers(…, lighten=LIGHT)

Controllers see every ConfigMap and Secret, but read the data of few. The others are often the
larger part of a cluster: releases of Helm, certificates, dashboards. Their data are replaced by
`LEFT_OUT`, which cannot be read and cannot be written back: a controller that needs more fails at
once, and has to be added here.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kvstack.agents.client.built_in import CONFIG_MAPS, SECRETS
from kvstack.agents.client.informer import Lighten
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.controllers.cluster.bootstrap_tokens import CLUSTER_INFO
from kvstack.agents.controllers.cluster.root_ca import ROOT_CA
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import BOOTSTRAP_TOKEN_TYPE, SERVICE_ACCOUNT_TOKEN_TYPE

_READ_TYPES: Final = frozenset((BOOTSTRAP_TOKEN_TYPE, SERVICE_ACCOUNT_TOKEN_TYPE))
_DATA: Final = ("data", "binaryData")


class LeftOut:
    """Stands for data that were left out. It is not JSON: an object with it cannot be written."""

    __slots__ = ()


LEFT_OUT: Final = LeftOut()


def _lighten_config_map(obj: Object) -> None:
    if obj["metadata"]["name"] != ROOT_CA and key_of(obj) != CLUSTER_INFO:
        _leave_out(obj)


def _lighten_secret(obj: Object) -> None:
    if obj.get("type") not in _READ_TYPES:
        _leave_out(obj)


def _leave_out(obj: Object) -> None:
    for name in _DATA:
        if name in obj:
            obj[name] = LEFT_OUT


LIGHT: Final[Mapping[ResourceType, Lighten]] = MappingProxyType(
    {CONFIG_MAPS: _lighten_config_map, SECRETS: _lighten_secret}
)
