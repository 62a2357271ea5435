"""ConfigMaps of kube-system that describe this cluster's API servers.

    extension-apiserver-authentication                       CAs and headers for aggregated servers
    kube-apiserver-legacy-service-account-token-tracking     since when legacy tokens are tracked

Several servers merge their authentication settings: certificates and names of all of them.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from kvstack.apiserver.policy.authentication.certificates import Authorities
from kvstack.apiserver.server.loopback import Loopback
from kvstack.component.clock import Clock

PERIOD_S: Final = 60.0
RESOURCE: Final = GroupResource("", "configmaps")
NAMESPACE: Final = "kube-system"
AUTHENTICATION: Final = "extension-apiserver-authentication"
TRACKING: Final = "kube-apiserver-legacy-service-account-token-tracking"

_CLIENT_CA: Final = "client-ca-file"
_PROXY_CA: Final = "requestheader-client-ca-file"
_END: Final = "-----END CERTIFICATE-----"


class AuthenticationInfo:
    """Maintains the authentication settings."""

    def __init__(
        self,
        loopback: Loopback,
        clients: Authorities | None,
        proxies: Authorities | None,
        lists: Mapping[str, Sequence[str]],
    ) -> None:
        """Publish these CA bundles and request-header settings, by ConfigMap key."""
        self._loopback: Final = loopback
        self._clients: Final = clients
        self._proxies: Final = proxies
        self._lists: Final = lists

    async def keep(self) -> None:
        """Add what is missing; raises ApiError."""
        config_map = self._loopback.get(RESOURCE, NAMESPACE, AUTHENTICATION)
        known: dict[str, str] = {} if config_map is None else config_map.get("data") or {}
        merged_data = {**known, **self._data(known)}
        if config_map is None:
            if merged_data:
                metadata = {"name": AUTHENTICATION, "namespace": NAMESPACE}
                await self._loopback.create(RESOURCE, {"metadata": metadata, "data": merged_data})
        elif merged_data != known:
            await self._loopback.update(RESOURCE, {**config_map, "data": merged_data})

    def _data(self, stored: dict[str, str]) -> dict[str, str]:
        data: dict[str, str] = {}
        if self._clients is not None:
            data[_CLIENT_CA] = _join_bundles(stored.get(_CLIENT_CA, ""), self._clients.pem.decode())
        if self._proxies is not None:
            data[_PROXY_CA] = _join_bundles(stored.get(_PROXY_CA, ""), self._proxies.pem.decode())
            for key, values in self._lists.items():
                data[key] = _merge_lists(stored.get(key, ""), values)
        return data


class TokenTracking:
    """Maintains the date since when uses of legacy tokens are tracked."""

    def __init__(self, loopback: Loopback, clock: Clock) -> None:
        """Track from the first start on."""
        self._loopback: Final = loopback
        self._clock: Final = clock

    async def keep(self) -> None:
        """Make the ConfigMap if it is missing; raises ApiError."""
        if self._loopback.get(RESOURCE, NAMESPACE, TRACKING) is not None:
            return
        metadata = {"name": TRACKING, "namespace": NAMESPACE}
        today = format_time(self._clock.unix_ms() // 1000)[:10]
        try:
            await self._loopback.create(RESOURCE, {"metadata": metadata, "data": {"since": today}})
        except ApiError as error:
            if not error.is_conflict:
                raise


def _join_bundles(known: str, own: str) -> str:
    """Return both bundles as one, without duplicate certificates."""
    found = dict.fromkeys([*_certificates(known), *_certificates(own)])
    return "".join(f"{each}\n" for each in found)


def _certificates(pem: str) -> list[str]:
    parts = pem.split(_END)[:-1]
    return [f"-----BEGIN{each.partition('-----BEGIN')[2]}{_END}" for each in parts]


def _merge_lists(known: str, own: Sequence[str]) -> str:
    """Return a JSON list with the members of both, in order."""
    before = orjson.loads(known) if known else []
    return orjson.dumps(list(dict.fromkeys([*before, *own]))).decode()
