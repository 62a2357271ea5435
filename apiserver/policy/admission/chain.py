"""The chain of admission plugins.

    every mutating plugin ──► validation by the kind ──► every validating plugin

Which plugins handle a write is computed once for its operation, resource and subresource, so that
others cost nothing. The first refusal ends the chain. If a webhook or policy changed the object,
all mutating plugins are called once more; they are idempotent.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.policy.admission.plugin import Call, Mutating, Plugin, Validating
from kvstack.apiserver.policy.admission.request import AdmissionRequest

_Hook: TypeAlias = Callable[[AdmissionRequest], Awaitable[None] | None]


class _Hooks(NamedTuple):
    mutate: tuple[_Hook, ...]
    validate: tuple[_Hook, ...]


class AdmissionChain:
    """The plugins in order; see `policy.interfaces.Admission`."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self.plugins: Final = tuple(plugins)
        self._hooks: dict[Call, _Hooks] = {}

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Return whether any plugin handles such requests."""
        hooks = self._find((operation, resource, subresource))
        return bool(hooks.mutate or hooks.validate)

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Let plugins change `request.object`; raises ApiError."""
        call = (request.operation, request.resource, request.subresource)
        hooks = self._find(call).mutate
        waiting = _run(hooks, request)
        if waiting is not None or request.wants_second_round:
            return _second_round(waiting, hooks, request)
        return None

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Let plugins refuse the object; raises ApiError."""
        call = (request.operation, request.resource, request.subresource)
        return _run(self._find(call).validate, request)

    def _find(self, call: Call) -> _Hooks:
        hooks = self._hooks.get(call)
        if hooks is None:
            concerned = [each for each in self.plugins if each.handles(*call)]
            hooks = self._hooks[call] = _Hooks(
                tuple(each.mutate for each in concerned if isinstance(each, Mutating)),
                tuple(each.validate for each in concerned if isinstance(each, Validating)),
            )
        return hooks


def _run(hooks: tuple[_Hook, ...], request: AdmissionRequest) -> Awaitable[None] | None:
    for position, hook in enumerate(hooks, 1):
        waiting = hook(request)
        if waiting is not None:
            return _wait(waiting, hooks[position:], request)
    return None


async def _second_round(
    waiting: Awaitable[None] | None, hooks: tuple[_Hook, ...], request: AdmissionRequest
) -> None:
    if waiting is not None:
        await waiting
    if not request.wants_second_round:
        return
    request.is_second_round = True
    again = _run(hooks, request)
    if again is not None:
        await again


async def _wait(
    waiting: Awaitable[None], rest: tuple[_Hook, ...], request: AdmissionRequest
) -> None:
    await waiting
    for hook in rest:
        more = hook(request)
        if more is not None:
            await more
