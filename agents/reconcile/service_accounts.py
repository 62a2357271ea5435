"""Users of controllers that reach the API server over HTTP: each uses its service account.

The account is created if missing; its tokens are requested, and requested again before they
end.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.built_in import SERVICE_ACCOUNTS
from kvstack.agents.client.kubeconfig import Cluster, connect
from kvstack.agents.client.over_http import Credentials, OverHttp
from kvstack.agents.client.rate_limiter import NO_LIMIT, RateLimiter
from kvstack.agents.client.transport import Response
from kvstack.apimachinery.objects.status import ApiError
from kvstack.component.clock import Clock

_NAMESPACE: Final = "kube-system"
_TOKEN_S: Final = 3600
_RENEWED_AT: Final = 0.8


def _no_limit(_service_account: str) -> RateLimiter:
    return NO_LIMIT


class _Renewed:
    """A transport whose token is renewed in time."""

    def __init__(self, api: Api, cluster: Cluster, account: str, clock: Clock) -> None:
        self._api = api
        self._cluster = cluster
        self._account = account
        self._clock = clock
        self._transport: OverHttp | None = None
        self._until_s = 0.0
        self._lock = asyncio.Lock()

    async def request(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        timeout_s: float,
    ) -> Response:
        transport = self._transport
        if transport is None or self._clock.monotonic_s() >= self._until_s:
            async with self._lock:
                transport = await self._fresh()
        return await transport.request(method, target, headers, body, timeout_s)

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.close()

    async def _fresh(self) -> OverHttp:
        if self._transport is not None and self._clock.monotonic_s() < self._until_s:
            return self._transport
        token = await self._token()
        if self._transport is None:
            cluster = self._cluster
            self._transport = OverHttp(
                cluster.server,
                Credentials(token=token),
                ca=cluster.ca,
                insecure=cluster.insecure,
                server_name=cluster.server_name,
            )
        else:
            self._transport.use_token(token)
        self._until_s = self._clock.monotonic_s() + _TOKEN_S * _RENEWED_AT
        return self._transport

    async def _token(self) -> str:
        try:
            await self._api.get(SERVICE_ACCOUNTS, _NAMESPACE, self._account)
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            await self._make_account()
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _TOKEN_S},
        }
        made = await self._api.create(
            SERVICE_ACCOUNTS, _NAMESPACE, request, name=self._account, subresource="token"
        )
        token: str = made["status"]["token"]
        return token

    async def _make_account(self) -> None:
        meta = {"name": self._account, "namespace": _NAMESPACE}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
        try:
            await self._api.create(SERVICE_ACCOUNTS, _NAMESPACE, account)
        except ApiError as error:
            if not error.is_conflict:
                raise


class ServiceAccountUsers:
    """Gives each controller its service account."""

    def __init__(
        self,
        api: Api,
        cluster: Cluster,
        clock: Clock,
        user_agent: str,
        limiter: Callable[[str], RateLimiter] = _no_limit,
    ) -> None:
        """api: as a user that may make accounts and their tokens; limiter: of an account."""
        self._limiter = limiter
        self._api = api
        self._cluster = cluster
        self._clock = clock
        self._user_agent = user_agent

    async def api_of(self, service_account: str) -> Api:
        """Return the API as a service account, or (empty) as the kubeconfig's own user."""
        if not service_account:
            options = Options(user_agent=self._user_agent, limiter=self._limiter(service_account))
            return Api(connect(self._cluster), options)
        agent = f"{self._user_agent}/system:serviceaccount:kube-system:{service_account}"
        transport = _Renewed(self._api, self._cluster, service_account, self._clock)
        return Api(transport, Options(user_agent=agent, limiter=self._limiter(service_account)))


class OneUser:
    """Gives all controllers the same user: without `--use-service-account-credentials`."""

    def __init__(
        self,
        cluster: Cluster,
        user_agent: str,
        limiter: Callable[[str], RateLimiter] = _no_limit,
    ) -> None:
        """Use the kubeconfig's credentials; limiter: of a controller, by its account."""
        self._limiter = limiter
        self._cluster = cluster
        self._user_agent = user_agent

    async def api_of(self, service_account: str) -> Api:
        """Return the API as the one user."""
        agent = f"{self._user_agent}/{service_account}"
        options = Options(user_agent=agent, limiter=self._limiter(service_account))
        return Api(connect(self._cluster), options)
