"""Correlation of Events: which are written, and which are counted into one, as upstream's recorder.

    correlator.correlate(event, now_s)   → Correlated(event, is_patch) or None: too many

In order: ten distinct messages about the same thing within ten minutes become one with `(combined
from similar events): `; an event that was written before is counted (a patch of the same object);
each source may write 25 events about an object at once, and then one each five minutes.

What is remembered is a digest of what makes events the same, not its texts: a pod's names, uids and
messages would be a KiB for each event.
"""

from collections import OrderedDict
from hashlib import blake2b
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from kvstack.apimachinery.objects.json_object import Object

Digest: TypeAlias = bytes

_REMEMBERED_MAX: Final = 4096
_SIMILAR_MAX: Final = 10
_SIMILAR_S: Final = 600.0
_BURST: Final = 25.0
_REFILL_S: Final = 300.0
_DIGEST_BYTES: Final = 15
_COMBINED: Final = "(combined from similar events): "

_Value = TypeVar("_Value")


class Correlated(NamedTuple):
    """An event to write."""

    event: Object
    """Whole; with the name of the first one if it is a patch."""
    is_patch: bool


class _Similar(NamedTuple):
    """Messages about the same thing."""

    messages: tuple[Digest, ...]
    """Distinct ones, _SIMILAR_MAX at most."""
    last_s: float


class _WrittenEvent(NamedTuple):
    """The fields by which a written event is counted; whole events would be some KiB each."""

    name: str
    first_timestamp: str
    times: int


class _Spam(NamedTuple):
    """A bucket."""

    tokens: float
    filled_s: float


class _Recent(Generic[_Value]):
    """The most recently used values."""

    def __init__(self) -> None:
        self._values: OrderedDict[Digest, _Value] = OrderedDict()

    def get(self, key: Digest) -> _Value | None:
        found = self._values.get(key)
        if found is not None:
            self._values.move_to_end(key)
        return found

    def set(self, key: Digest, value: _Value) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > _REMEMBERED_MAX:
            self._values.popitem(last=False)


class EventCorrelator:
    """Remembers what was written."""

    def __init__(self) -> None:
        self._similar: _Recent[_Similar] = _Recent()
        self._written: _Recent[_WrittenEvent] = _Recent()
        self._spam: _Recent[_Spam] = _Recent()

    def correlate(self, event: Object, now_s: float) -> Correlated | None:
        """Return the event to write; None: it is dropped."""
        source = event["source"]
        about = event["involvedObject"]
        sender = (source.get("component"), source.get("host"))
        thing = tuple(
            about.get(name) for name in ("kind", "namespace", "name", "uid", "apiVersion")
        )
        aggregate = _digest(
            *sender,
            *thing,
            event["type"],
            event["reason"],
            event.get("reportingComponent"),
            event.get("reportingInstance"),
        )
        message = event["message"]
        similar = self._similar.get(aggregate)
        if similar is None or now_s - similar.last_s > _SIMILAR_S:
            similar = _Similar((), now_s)
        messages = _with(similar.messages, _digest(message))
        if len(messages) >= _SIMILAR_MAX:
            event = {**event, "message": _COMBINED + message}
            key = aggregate
        else:
            field_path = about.get("fieldPath")
            key = _digest(*sender, *thing, field_path, event["type"], event["reason"], message)
        self._similar.set(aggregate, _Similar(messages, now_s))
        before = self._written.get(key)
        if before is not None:
            event = {
                **event,
                "metadata": {**event["metadata"], "name": before.name},
                "firstTimestamp": before.first_timestamp,
                "count": before.times + 1,
            }
        name = event["metadata"]["name"]
        self._written.set(key, _WrittenEvent(name, event["firstTimestamp"], event["count"]))
        if not self._may_write(_digest(*sender, *thing, event["type"]), now_s):
            return None
        return Correlated(event, is_patch=before is not None)

    def _may_write(self, key: Digest, now_s: float) -> bool:
        bucket = self._spam.get(key) or _Spam(_BURST, now_s)
        tokens = min(_BURST, bucket.tokens + (now_s - bucket.filled_s) / _REFILL_S)
        may = tokens >= 1
        self._spam.set(key, _Spam(tokens - 1 if may else tokens, now_s))
        return may


def _with(messages: tuple[Digest, ...], message: Digest) -> tuple[Digest, ...]:
    """Add a message that is new, as long as there are not enough."""
    if message in messages or len(messages) >= _SIMILAR_MAX:
        return messages
    return (*messages, message)


def _digest(*parts: object) -> Digest:
    return blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
