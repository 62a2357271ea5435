"""Events as tests need them, and a sink that keeps them."""

from collections.abc import Sequence
from typing import Any

from kvstack.apimachinery.attributes import Attributes, User
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.audit.audit_context import AuditContext, Facts
from kvstack.apiserver.policy.audit.policy import COMPLETE, METADATA, Recording

USER = User("alice", "u1", ("devs",), {"k": ("v",)})


class KeptEvents:
    """A sink; `takes` says whether events are taken."""

    def __init__(self) -> None:
        self.events: list[Object] = []
        self.batches: list[int] = []
        self.takes = True
        self.is_stopped = False

    def process(self, events: Sequence[Object]) -> bool:
        self.events += events
        self.batches.append(len(events))
        return self.takes

    async def stop(self) -> None:
        self.is_stopped = True


def audit_context(level: int = METADATA, *, omit_managed_fields: bool = False) -> AuditContext:
    """Return the audit_context of a get of the pod a/web."""
    asked = Attributes(
        USER, "get", "", "v1", "pods", "", "a", "web", "/api/v1/namespaces/a/pods/web"
    )
    facts = Facts("id-1", asked.path, asked, ("192.0.2.1",), "kubectl", 1_800_000_000_123_456)
    return AuditContext(Recording(level, frozenset(), omit_managed_fields), facts)


def event(level: int = METADATA, **more: Any) -> Object:
    """Return an event."""
    return {**audit_context(level).event(COMPLETE, 1_800_000_000_223_456), **more}
