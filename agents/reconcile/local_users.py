"""Users of controllers in the process of the API server."""

from collections.abc import Callable

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.in_process import InProcess
from kvstack.component.http.serving.local_transport import LocalTransport


class LocalUsers:
    """Gives each controller a token of its service account."""

    def __init__(
        self, transport: LocalTransport, token_of: Callable[[str], str], user_agent: str
    ) -> None:
        """token_of: returns a token of a service account of kube-system, empty: of the manager."""
        self._transport = transport
        self._token_of = token_of
        self._user_agent = user_agent

    async def api_of(self, service_account: str) -> Api:
        """Return the API as a service account."""
        agent = f"{self._user_agent}/system:serviceaccount:kube-system:{service_account}"
        transport = InProcess(self._transport, self._token_of(service_account))
        return Api(transport, Options(user_agent=agent))
