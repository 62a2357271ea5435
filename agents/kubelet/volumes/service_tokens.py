"""Projected tokens of service accounts, each for one pod.

A token is renewed after 80 % of its life, or a day.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import orjson

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import SERVICE_ACCOUNTS
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import parse_time
from kvstack.component.clock import Clock

_DAY_S: Final = 86_400.0
_USED: Final = 0.8


class _Token(NamedTuple):
    text: str
    expires: str
    """The expiry, in the format of the answer."""
    until_s: float
    """When it is to be renewed."""


class ServiceTokens:
    """The tokens of one node's pods."""

    def __init__(self, api: Api, clock: Clock, random: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._random = random
        self._tokens: dict[tuple[str, str, str], _Token] = {}

    async def token(self, pod: Object, volume: str, source: Object) -> bytes:
        """Return the token of a source of a volume, which is kept or a fresh one; ApiError."""
        found = await self._token(pod, (pod["metadata"]["uid"], volume, source["path"]), source)
        return found.text.encode()

    async def for_driver(self, pod: Object, driver: str, requests: Sequence[Object]) -> str:
        """Return the tokens of a pod for the driver of a volume, as JSON; ApiError."""
        tokens_by_audience = {}
        for each in requests:
            audience = each.get("audience") or ""
            key = (pod["metadata"]["uid"], f"csi/{driver}", audience)
            token = await self._token(pod, key, each)
            tokens_by_audience[audience] = {
                "token": token.text,
                "expirationTimestamp": token.expires,
            }
        return orjson.dumps(tokens_by_audience).decode()

    async def _token(self, pod: Object, key: tuple[str, str, str], source: Object) -> _Token:
        now_s = self._clock.now_s()
        known = self._tokens.get(key)
        if known is None or known.until_s <= now_s:
            known = self._tokens[key] = await self._ask(pod, source, now_s)
        return known

    def forget(self, uid: str) -> None:
        """Keep the tokens of a pod no longer."""
        for key in [key for key in self._tokens if key[0] == uid]:
            del self._tokens[key]

    async def _ask(self, pod: Object, asked: Object, now_s: float) -> _Token:
        meta = pod["metadata"]
        owner = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        spec: Object = {"boundObjectRef": owner}
        spec["expirationSeconds"] = asked.get("expirationSeconds") or 3600
        spec["audiences"] = [asked["audience"]] if asked.get("audience") else []
        answer = await self._api.create(
            SERVICE_ACCOUNTS,
            meta["namespace"],
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
            name=pod["spec"].get("serviceAccountName") or "default",
            subresource="token",
        )
        status = answer["status"]
        ends_s = parse_time(status["expirationTimestamp"]).seconds
        life_s = min((ends_s - now_s) * _USED, _DAY_S)
        until_s = now_s + life_s - 10 * self._random()
        return _Token(status["token"], status["expirationTimestamp"], until_s)
