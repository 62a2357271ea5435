"""The Secrets that PersistentVolumes and pods name for drivers, as text."""

from base64 import b64decode
from collections.abc import Mapping

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import SECRETS
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.kubelet.csi.volume import SecretName
from kvstack.apimachinery.objects.status import ApiError


class SecretError(Exception):
    """A secret cannot be given to a driver."""


class Secrets:
    """Reads secrets with the node's API."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def read(self, secret: SecretName) -> Mapping[str, str]:
        """Return what is in a secret; SecretError."""
        namespace, name = secret
        try:
            obj = await self._api.get(SECRETS, namespace, name)
        except (ApiError, UnreachableError) as error:
            raise SecretError(
                f"kubernetes.io/csi: failed to find the secret {name} in the namespace {namespace} "
                f"with error: {error}"
            ) from error
        values = {}
        for key, encoded in (obj.get("data") or {}).items():
            try:
                values[key] = b64decode(encoded).decode()
            except ValueError as error:
                text = f"the value of {key} in secret {namespace}/{name} is not UTF-8 text"
                raise SecretError(text) from error
        return values
