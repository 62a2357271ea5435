"""Whether a proxy keeps up: what its health pages say.

    health.queued(); …; health.synced()        of each family
    health.report(node_is_eligible=True)        the status and the body of /healthz

It is unwell while a change has waited for longer than twice the longest time between two syncs.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from kvstack.agents.proxy.services import FAMILIES, Family


class Health:
    """When changes came, and when they were made true."""

    def __init__(
        self, families: tuple[Family, ...], period_s: float, now_s: Callable[[], float]
    ) -> None:
        """period_s: the longest time between two syncs; now_s: seconds since 1970."""
        self._limit_s: Final = 2 * period_s
        self._now_s = now_s
        self._waits_since: dict[Family, float | None] = dict.fromkeys(families)
        self._synced: dict[Family, float] = {}
        self.queued_s: dict[Family, float] = {}
        self.is_eligible = True
        """Whether balancers are to send to this node."""

    @property
    def synced_s(self) -> dict[Family, float]:
        """Family → when it was last made true, seconds since 1970."""
        return self._synced

    def queued(self) -> None:
        """A change waits."""
        now_s = self._now_s()
        for family, since in self._waits_since.items():
            self.queued_s[family] = now_s
            if since is None:
                self._waits_since[family] = now_s

    def synced(self, family: Family) -> None:
        """All that waited was made true."""
        self._waits_since[family] = None
        self._synced[family] = self._now_s()

    @property
    def is_well(self) -> bool:
        """Whether every family keeps up."""
        return all(self._is_well(each) for each in self._waits_since)

    def report(self, *, asks_eligible: bool) -> tuple[int, bytes]:
        """Return the code and the body of a page; asks_eligible: /healthz, not /livez."""
        now_s = self._now_s()
        is_well = self.is_well
        is_fine = is_well and (self.is_eligible or not asks_eligible)
        body: dict[str, Any] = {
            "lastUpdated": _text(now_s if is_well else min(self._synced.values(), default=0.0)),
            "currentTime": _text(now_s),
        }
        if asks_eligible:
            body["nodeEligible"] = self.is_eligible
        body["healthy"] = is_fine
        body["status"] = {
            FAMILIES[family]: {
                "lastUpdated": _text(
                    now_s if self._is_well(family) else self._synced.get(family, 0.0)
                ),
                "healthy": self._is_well(family),
            }
            for family in self._waits_since
        }
        return (200 if is_fine else 503), orjson.dumps(body)

    def _is_well(self, family: Family) -> bool:
        since = self._waits_since[family]
        return family in self._synced and (since is None or self._now_s() - since <= self._limit_s)


def _text(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
