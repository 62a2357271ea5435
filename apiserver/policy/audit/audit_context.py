"""The audit context of a request, filled in while the request is processed.

    audit = AuditContext(recording, facts)
    audit.annotate("authorization.k8s.io/decision", "allow")
    audit.event(COMPLETE, stage_us) → the Event of a stage, as JSON has it

An event is immutable.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from kvstack.apimachinery.attributes import Attributes, User
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.audit.policy import LEVELS, REQUEST, REQUEST_RESPONSE, Recording

USER_AGENT_MAX: Final = 1024
_CUT: Final = "...TRUNCATED"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Facts(NamedTuple):
    """The facts of a request on arrival."""

    audit_id: str
    uri: str
    attributes: Attributes
    source_ips: tuple[str, ...]
    user_agent: str
    received_us: int
    """Microseconds since 1970."""
    began_ns: int = 0
    """Time of arrival by the monotonic clock."""


class AuditContext:
    """The audit context of one request."""

    __slots__ = (
        "annotations",
        "constraint",
        "facts",
        "impersonated_user",
        "object_ref",
        "recording",
        "request_object",
        "response_object",
        "status",
    )

    def __init__(self, recording: Recording, facts: Facts) -> None:
        self.recording: Final = recording
        self.facts: Final = facts
        self.annotations: Final[dict[str, str]] = {}
        self.impersonated_user: User | None = None
        self.constraint = ""
        """The verb of constrained impersonation."""
        self.object_ref: Final = _reference(facts.attributes)
        self.request_object: object = None
        self.response_object: object = None
        self.status: Object | None = None
        """Status of the answer."""

    @property
    def wants_request(self) -> bool:
        """Whether the request object is recorded."""
        return self.recording.level >= REQUEST

    @property
    def wants_response(self) -> bool:
        """Whether the response object is recorded."""
        return self.recording.level >= REQUEST_RESPONSE

    def annotate(self, name: str, value: str) -> None:
        """Add an annotation; the first value of a name stays."""
        self.annotations.setdefault(name, value)

    def record_request(self, obj: Object) -> None:
        """Record the request object's identity, and the object itself if the level includes it."""
        reference = self.object_ref
        metadata = obj.get("metadata")
        if reference is not None and isinstance(metadata, dict):
            for name in ("namespace", "name", "uid", "resourceVersion"):
                if not reference.get(name) and metadata.get(name):
                    reference[name] = metadata[name]
        if self.wants_request:
            self.request_object = self._recorded(obj)

    def record_response(self, obj: object) -> None:
        """Record the response object."""
        self.response_object = self._recorded(obj)

    def _recorded(self, obj: object) -> object:
        return _without_managers(obj) if self.recording.omit_managed_fields else obj

    def event(self, stage: str, stage_us: int) -> Object:
        """Return the event of a stage; stage_us: its time since 1970."""
        facts, attributes = self.facts, self.facts.attributes
        event: Object = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": LEVELS[self.recording.level],
            "auditID": facts.audit_id,
            "stage": stage,
            "requestURI": facts.uri,
            "verb": attributes.verb,
            "user": attributes.user.to_object(),
        }
        if self.impersonated_user is not None:
            event["impersonatedUser"] = self.impersonated_user.to_object()
        if self.constraint:
            event["authenticationMetadata"] = {"impersonationConstraint": self.constraint}
        if facts.source_ips:
            event["sourceIPs"] = list(facts.source_ips)
        agent = facts.user_agent
        if agent:
            is_long = len(agent) > USER_AGENT_MAX
            event["userAgent"] = agent[:USER_AGENT_MAX] + _CUT if is_long else agent
        if self.object_ref is not None:
            event["objectRef"] = {name: value for name, value in self.object_ref.items() if value}
        if self.status is not None:
            event["responseStatus"] = self.status
        if self.request_object is not None:
            event["requestObject"] = self.request_object
        if self.response_object is not None:
            event["responseObject"] = self.response_object
        event["requestReceivedTimestamp"] = micro_time(facts.received_us)
        event["stageTimestamp"] = micro_time(stage_us)
        if self.annotations:
            event["annotations"] = dict(sorted(self.annotations.items()))
        return event


def micro_time(us: int) -> str:
    """Return microseconds since 1970 in RFC 3339, with six decimals."""
    return f"{_EPOCH + timedelta(microseconds=us):%Y-%m-%dT%H:%M:%S.%f}Z"


def _reference(attributes: Attributes) -> dict[str, str] | None:
    if not attributes.is_resource:
        return None
    return {
        "resource": attributes.resource,
        "namespace": attributes.namespace,
        "name": attributes.name,
        "uid": "",
        "apiGroup": attributes.group,
        "apiVersion": attributes.version,
        "resourceVersion": "",
        "subresource": attributes.subresource,
    }


def _without_managers(obj: object) -> object:
    if not isinstance(obj, Mapping):
        return obj
    shortened = dict(obj)
    metadata = shortened.get("metadata")
    if isinstance(metadata, Mapping) and "managedFields" in metadata:
        shortened["metadata"] = {n: v for n, v in metadata.items() if n != "managedFields"}
    if isinstance(shortened.get("items"), list):
        shortened["items"] = [_without_managers(each) for each in shortened["items"]]
    return shortened
