"""EventRateLimit: limits the rate of Events of the server, a namespace, a user or a source.

    EventLimit("Namespace", qps=50, burst=100)     a bucket of 100 tokens for each namespace, which
                                                   gets 50 tokens a second

Every limit takes its token, even if another one refuses.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest
from kvstack.component.clock import Clock
from kvstack.component.units import SECOND_NS

CACHE_SIZE: Final = 4096
_SOURCE: Final = (
    ("source", "component"),
    ("source", "host"),
    ("involvedObject", "kind"),
    ("involvedObject", "namespace"),
    ("involvedObject", "name"),
    ("involvedObject", "uid"),
    ("involvedObject", "apiVersion"),
)


class EventLimit(NamedTuple):
    """One limit."""

    type: str
    """One of LIMIT_TYPES."""
    qps: int
    burst: int
    cache_size: int = CACHE_SIZE
    """Limit of cached buckets."""


class TokenBucket:
    """A token bucket."""

    __slots__ = ("_at_ns", "_burst", "_qps", "_tokens")

    def __init__(self, qps: float, burst: int, now_ns: int) -> None:
        self._qps: Final = qps
        self._burst: Final = burst
        self._tokens = float(burst)
        self._at_ns = now_ns

    def take(self, now_ns: int) -> bool:
        """Take a token; return False if there is none."""
        came = (now_ns - self._at_ns) * self._qps / SECOND_NS
        self._tokens = min(self._tokens + came, float(self._burst))
        self._at_ns = now_ns
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def _source_and_object(request: AdmissionRequest) -> str:
    event = request.new
    return "".join((event.get(member) or {}).get(name, "") for member, name in _SOURCE)


_KEYS: Final[Mapping[str, Callable[[AdmissionRequest], str]]] = {
    "Server": lambda _request: "",
    "Namespace": lambda request: request.namespace,
    "User": lambda request: request.user.name,
    "SourceAndObject": _source_and_object,
}
LIMIT_TYPES: Final = frozenset(_KEYS)


class _Limiter:
    def __init__(self, limit: EventLimit, clock: Clock) -> None:
        self._limit: Final = limit
        self._clock: Final = clock
        self._key_of: Final = _KEYS[limit.type]
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def refusal(self, request: AdmissionRequest) -> str:
        """Take a token; return the refusal if there is none, or an empty text."""
        key, limit, now_ns = self._key_of(request), self._limit, self._clock.monotonic_ns()
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= limit.cache_size:
                self._buckets.popitem(last=False)
            bucket = self._buckets[key] = TokenBucket(limit.qps, limit.burst, now_ns)
        self._buckets.move_to_end(key)
        return "" if bucket.take(now_ns) else f"limit reached on type {limit.type} for key {key}"


class EventRateLimit(Listed):
    """Refuses Events above their rates."""

    name = "EventRateLimit"
    calls = calls((CREATE, UPDATE), GroupResource("", "events")) | calls(
        (CREATE, UPDATE), GroupResource("events.k8s.io", "events")
    )

    def __init__(self, limits: Sequence[EventLimit], clock: Clock) -> None:
        self._limiters: Final = [_Limiter(each, clock) for each in limits]

    def validate(self, request: AdmissionRequest) -> None:
        """Take tokens; raises ApiError 429 if one is missing."""
        if request.is_dry_run:
            return
        refusals = [text for each in self._limiters if (text := each.refusal(request))]
        if refusals:
            text = refusals[0] if len(refusals) == 1 else f"[{', '.join(refusals)}]"
            raise status.failure(429, "TooManyRequests", f"Too many requests: {text}")
