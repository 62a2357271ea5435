"""The webhook back end: POSTs an EventList to the server of a kubeconfig, with retries."""

import asyncio
from collections.abc import Sequence
from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import json_text
from kvstack.apiserver.policy.audit.sinks import Errors
from kvstack.apiserver.policy.remote.connection import Connection, RemoteError
from kvstack.apiserver.policy.remote.kubeconfig import Target

TRIES: Final = 5
BACKOFF_FACTOR: Final = 1.5
TIMEOUT_S: Final = 30.0


class Webhook:
    """Sends events; see `Sink`."""

    name = "webhook"

    def __init__(
        self, target: Target, errors: Errors, first_pause_s: float, timeout_s: float = TIMEOUT_S
    ) -> None:
        """first_pause_s: delay before the second attempt."""
        self._connection: Final = Connection(target)
        self._errors: Final = errors
        self._first_pause_s: Final = first_pause_s
        self._timeout_s: Final = timeout_s

    async def process(self, events: Sequence[Object]) -> bool:
        """Send events; return False if all attempts failed."""
        body = json_text.write(
            {
                "kind": "EventList",
                "apiVersion": "audit.k8s.io/v1",
                "metadata": {},
                "items": list(events),
            }
        )
        pause_s, error = self._first_pause_s, ""
        for number in range(TRIES):
            if number:
                await asyncio.sleep(pause_s)
                pause_s *= BACKOFF_FACTOR
            error = await self._send(body)
            if not error:
                return True
        self._errors.add(self.name, error, len(events))
        return False

    async def stop(self) -> None:
        """Close connections."""
        await self._connection.close()

    async def _send(self, body: bytes) -> str:
        """Send once; return the error."""
        try:
            answer = await self._connection.ask("POST", body, timeout_s=self._timeout_s)
        except RemoteError as error:
            return str(error)
        return "" if answer.code < 300 else f"the server answered {answer.code}"
