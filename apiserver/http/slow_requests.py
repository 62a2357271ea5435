"""Slow requests, and the time they spent in each stage.

    slow = SlowRequests(clock, logger)
    slow.ended(context, took_ns)          kept and logged from SLOW_NS on
    slow.kept                             the last KEPT_MAX of them, oldest first

Long-running requests (watches, logs, exec) do not count. Paths, users and times are kept, but no
bodies. At most one line is logged per second; it counts those left out.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.verbs.stages import split
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger
from kvstack.component.units import MILLISECOND_NS, SECOND_NS

SLOW_NS: Final = 500 * MILLISECOND_NS
KEPT_MAX: Final = 100
PATH_CHARACTERS_MAX: Final = 300
_NAME_CHARACTERS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """One request."""

    at_ms: int
    """When it completed, Unix time."""
    method: str
    path: str
    user: str
    user_agent: str
    code: int
    took_ms: float
    stages_ms: dict[str, float]
    """The longest stage first."""

    def to_json(self) -> dict[str, Any]:
        """Return it as the page shows it."""
        return {
            "time": self.at_ms,
            "method": self.method,
            "path": self.path,
            "user": self.user,
            "userAgent": self.user_agent,
            "code": self.code,
            "tookMs": self.took_ms,
            "stagesMs": self.stages_ms,
        }


class SlowRequests:
    """Keeps and logs slow requests; see `RequestObserver`."""

    def __init__(self, clock: Clock, logger: Logger) -> None:
        self._clock = clock
        self._logger = logger
        self._logged_ns = -SECOND_NS
        self._omitted = 0
        self.kept: Final[deque[SlowRequest]] = deque(maxlen=KEPT_MAX)
        self.count = 0
        """Number of slow requests since the start."""

    def ended(self, context: RequestContext, took_ns: int) -> None:
        """Record a request if it was slow."""
        if took_ns < SLOW_NS or context.route.is_long:
            return
        request = context.request
        stages = split(took_ns, context.spent)
        slow = SlowRequest(
            at_ms=self._clock.unix_ms(),
            method=request.method,
            path=request.target[:PATH_CHARACTERS_MAX],
            user=context.user.name[:_NAME_CHARACTERS_MAX],
            user_agent=request.header("user-agent")[:_NAME_CHARACTERS_MAX],
            code=context.reply.code,
            took_ms=_ms(took_ns),
            stages_ms={stage: _ms(spent) for stage, spent in stages.items()},
        )
        self.count += 1
        self.kept.append(slow)
        self._log(slow)

    def _log(self, slow: SlowRequest) -> None:
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._logged_ns < SECOND_NS:
            self._omitted += 1
            return
        self._logged_ns = now_ns
        omitted, self._omitted = self._omitted, 0
        self._logger.warning(
            "a request was slow",
            method=slow.method,
            path=slow.path,
            user=slow.user,
            code=slow.code,
            took_ms=slow.took_ms,
            stages_ms=slow.stages_ms,
            omitted=omitted,
        )


def _ms(spent_ns: int) -> float:
    return round(spent_ns / MILLISECOND_NS, 1)
