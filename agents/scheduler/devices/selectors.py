"""CEL selectors of device classes and requests."""

from typing import TYPE_CHECKING

from kvstack.agents.scheduler.devices.requests import DeviceError, Request

if TYPE_CHECKING:
    from kvstack.agents.scheduler.devices.pools import Candidate
    from kvstack.apimachinery.objects.json_object import Object


class Selectors:
    """Runs expressions, each once for a device."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[Object, Object]] = {}
        self._found: dict[tuple[str, int], bool] = {}

    def select(self, request: Request, candidate: "Candidate") -> bool:
        """Whether a request's class and its own selectors select a device; raises DeviceError."""
        name = request.device_class["metadata"]["name"]
        own = f"claim {request.claim}"
        return self._select(
            f"class {name}", request.device_class["spec"].get("selectors") or (), candidate
        ) and self._select(own, request.spec.get("selectors") or (), candidate)

    def _select(
        self, subject: str, selectors: "list[Object] | tuple[()]", candidate: "Candidate"
    ) -> bool:
        for number, selector in enumerate(selectors):
            text = selector["cel"]["expression"]
            key = (text, id(candidate.device))
            found = self._found.get(key)
            if found is None:
                found = self._found[key] = self._run(
                    f"{subject}: selector #{number}", text, candidate
                )
            if not found:
                return False
        return True

    def _run(self, subject: str, text: str, candidate: "Candidate") -> bool:
        # Most clusters have no claims of devices, and loading the language takes a while.
        from kvstack.cel.devices import device_value, selects
        from kvstack.cel.errors import CompileError, EvaluationError

        try:
            known = self._values.get(id(candidate.device))
            if known is None:
                value = device_value(candidate.id.driver, candidate.device)
                # The device is kept, so that its id stays its own.
                known = self._values[id(candidate.device)] = (candidate.device, value)
            return selects(text, known[1])
        except CompileError as error:
            raise DeviceError(f"{subject}: CEL compile error: {error}") from error
        except EvaluationError as error:
            raise DeviceError(
                f"{subject} on device {candidate.id}: CEL runtime error: {error}"
            ) from error
