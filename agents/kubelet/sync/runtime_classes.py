"""The RuntimeClass of a pod: its handler in the runtime."""

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import RUNTIME_CLASSES
from kvstack.agents.kubelet.runtime.runtime import StartError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError


class RuntimeClasses:
    """Asks the API each time, as few pods have one."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def handler(self, pod: Object) -> str:
        """Return the handler of a pod; empty: the runtime's own. StartError, UnreachableError."""
        name = pod["spec"].get("runtimeClassName")
        if not name:
            return ""
        try:
            found = await self._api.get(RUNTIME_CLASSES, "", name)
        except ApiError as error:
            if not error.is_not_found:
                raise
            text = f"failed to get sandbox runtime: {error.message}"
            raise StartError("FailedCreatePodSandBox", text) from error
        handler: str = found["handler"]
        return handler
