"""Counts of who was authenticated and what was authorized, under upstream's names.

What is known at once is not timed: it takes microseconds, and the shortest time that is told apart
is a millisecond. It counts as done in no time.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from kvstack.apiserver.policy.ports import Decision
from kvstore.histograms import NANOSECOND_S, PROMETHEUS_BOUNDS, Histogram, exponential
from kvstore.server.metrics.exposition import FamilyKind, FamilySamples, labels

_BOUNDS: Final = exponential(0.001, 2, 15)
_TOLD_USERS: Final = frozenset(
    ("admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default")
)
_TYPES: Final = {
    "abac": "ABAC",
    "alwaysallow": "AlwaysAllow",
    "alwaysdeny": "AlwaysDeny",
    "node": "Node",
    "rbac": "RBAC",
}
"""Of authorizers by their names; those with other names are webhooks."""

Decided = tuple[str, bool]
"""The name of an authorizer, and whether it allowed."""


class PolicyMetrics:
    """Counts requests as they are authenticated and authorized."""

    def __init__(self) -> None:
        """Begin with none."""
        self._users: Final[Counter[str]] = Counter()
        self._authentications: Final[dict[str, Histogram]] = {}
        self._authorizations: Final[dict[str, Histogram]] = {}
        self._known_at_once = 0
        """Users who were found in no time, and are not in the histogram yet."""
        self._allowed_at_once = 0

    def authenticated(self, name: str, took_ns: int = 0) -> None:
        """Count a user who was found."""
        if name not in _TOLD_USERS:
            name = "email_id" if "@" in name else "other"
        self._users[name] += 1
        if took_ns:
            _add(self._authentications, "success", took_ns)
        else:
            self._known_at_once += 1

    def refused(self, took_ns: int) -> None:
        """Count credentials that were no good."""
        _add(self._authentications, "error", took_ns)

    def authorized(self, decision: Decision, took_ns: int = 0) -> None:
        """Count a decision."""
        if decision.allowed:
            if not took_ns:
                self._allowed_at_once += 1
                return
            result = "allowed"
        elif decision.error:
            result = "error"
        else:
            result = "denied" if decision.denied else "no-opinion"
        _add(self._authorizations, result, took_ns)

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families."""
        known, self._known_at_once = self._known_at_once, 0
        _add(self._authentications, "success", 0, known)
        allowed, self._allowed_at_once = self._allowed_at_once, 0
        _add(self._authorizations, "allowed", 0, allowed)
        yield (
            "authenticated_user_requests",
            FamilyKind.COUNTER,
            "Counter of authenticated requests broken out by username.",
            {labels(username=name): count for name, count in self._users.items()},
        )
        yield from _families(
            self._authentications,
            "authentication_attempts",
            "Counter of authenticated attempts.",
            "authentication_duration_seconds",
            "Authentication duration in seconds broken out by result.",
        )
        yield from _families(
            self._authorizations,
            "authorization_attempts_total",
            "Counter of authorization attempts broken down by result. It can be either 'allowed',"
            " 'denied', 'no-opinion' or 'error'.",
            "authorization_duration_seconds",
            "Authorization duration in seconds broken out by result.",
        )


class ReloadMetrics:
    """Counts how often a configuration file was taken, or could not be."""

    def __init__(self, subject: str) -> None:
        """Count for `authentication` or `authorization`."""
        self._subject: Final = subject
        self._counts: Final[Counter[str]] = Counter()
        self._last_s: Final[dict[str, float]] = {}

    def add(self, unix_ms: int, *, is_taken: bool) -> None:
        """Count a file that changed."""
        status = "success" if is_taken else "failure"
        self._counts[status] += 1
        self._last_s[status] = unix_ms / 1000

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families."""
        prefix = f"apiserver_{self._subject}_config_controller_automatic_reload"
        what = f"{self._subject} configuration split by status and apiserver identity."
        yield (
            f"{prefix}s_total",
            FamilyKind.COUNTER,
            f"Total number of automatic reloads of {what}",
            {labels(status=status): count for status, count in self._counts.items()},
        )
        yield (
            f"{prefix}_last_timestamp_seconds",
            FamilyKind.GAUGE,
            f"Timestamp of the last automatic reload of {what}",
            {labels(status=status): moment for status, moment in self._last_s.items()},
        )


class AuthorizationWebhookMetrics:
    """Counts questions to webhooks that authorize."""

    def __init__(self) -> None:
        """Begin with none."""
        self._evaluations: Final[dict[str, Histogram]] = {}
        self._failed_open: Final[Counter[str]] = Counter()

    def add(self, name: str, result: str, took_ns: int) -> None:
        """Count a try; result: `success`, `timeout` or `error`."""
        _add(self._evaluations, labels(name=name, result=result), took_ns)

    def count_failed_open(self, name: str, result: str) -> None:
        """Count a question without an answer that is left to other authorizers."""
        self._failed_open[labels(name=name, result=result)] += 1

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families."""
        prefix = "apiserver_authorization_webhook"
        yield (
            f"{prefix}_evaluations_total",
            FamilyKind.COUNTER,
            "Round-trips to authorization webhooks.",
            {series: sum(each.counts) for series, each in self._evaluations.items()},
        )
        yield (
            f"{prefix}_duration_seconds",
            FamilyKind.HISTOGRAM,
            "Request latency in seconds.",
            {series: each.copy() for series, each in self._evaluations.items()},
        )
        yield (
            f"{prefix}_evaluations_fail_open_total",
            FamilyKind.COUNTER,
            "NoOpinion results due to webhook timeout or error.",
            dict(self._failed_open),
        )


def decision_readings(counts: Iterable[tuple[Decided, int]]) -> Iterator[FamilySamples]:
    """Yield how often which authorizer decided."""
    yield (
        "apiserver_authorization_decisions_total",
        FamilyKind.COUNTER,
        "Total number of terminal decisions made by an authorizer split by authorizer type, name,"
        " and decision.",
        {
            labels(
                decision="allowed" if is_allowed else "denied",
                name=name,
                type=_TYPES.get(name, "Webhook"),
            ): count
            for (name, is_allowed), count in counts
        },
    )


def certificate_readings(left: Histogram) -> Iterator[FamilySamples]:
    """Yield for how long client certificates of requests were still good, in seconds."""
    yield (
        "apiserver_client_certificate_expiration_seconds",
        FamilyKind.HISTOGRAM,
        "Distribution of the remaining lifetime on the certificate used to authenticate a request.",
        left.copy(),
    )


class TokenMetrics:
    """Counts who had a bearer token, and whether that was remembered."""

    def __init__(self) -> None:
        """Begin with none."""
        self.hits = 0
        """Answered by what was remembered, in no time."""
        self.waiting = 0
        """Those that somebody is asked about now."""
        self._missed: Final = Histogram(PROMETHEUS_BOUNDS)
        self._fetches: Final[Counter[str]] = Counter()

    def missed(self, took_ns: int, *, is_known: bool) -> None:
        """Count a token that authenticators were asked about; is_known: one of them knew it."""
        self._missed.add(took_ns * NANOSECOND_S)
        self._fetches["ok" if is_known else "error"] += 1

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families; upstream has no texts of help for them."""
        prefix = "authentication_token_cache"
        remembered = Histogram(PROMETHEUS_BOUNDS)
        remembered.add(0.0, self.hits)
        durations = {
            labels(status="hit"): remembered,
            labels(status="miss"): self._missed.copy(),
        }
        yield f"{prefix}_request_duration_seconds", FamilyKind.HISTOGRAM, "", durations
        totals = {status: sum(each.counts) for status, each in durations.items()}
        yield f"{prefix}_request_total", FamilyKind.COUNTER, "", totals
        fetches = {labels(status=status): count for status, count in self._fetches.items()}
        yield f"{prefix}_fetch_total", FamilyKind.COUNTER, "", fetches
        waiting = {labels(status="in_flight"): self.waiting}
        yield f"{prefix}_active_fetch_count", FamilyKind.GAUGE, "", waiting


_LEGACY: Final = {
    "auto": ("legacy_auto", "auto-generated legacy"),
    "manual": ("legacy_manual", "manually created legacy"),
    "invalid_auto": ("invalid_legacy_auto", "invalid auto-generated legacy"),
}


def token_readings(uses: Counter[str], legacy_uses: Counter[str]) -> Iterator[FamilySamples]:
    """Yield how often which tokens of service accounts were used."""
    for kind in ("stale", "valid"):
        yield (
            f"serviceaccount_{kind}_tokens_total",
            FamilyKind.COUNTER,
            f"Cumulative {kind} projected service account tokens used",
            {"": uses[kind]},
        )
    for kind, (name, words) in _LEGACY.items():
        yield (
            f"serviceaccount_{name}_token_uses_total",
            FamilyKind.COUNTER,
            f"Cumulative {words} tokens used",
            {"": legacy_uses[kind]},
        )


def _add(series: dict[str, Histogram], key: str, took_ns: int, times: int = 1) -> None:
    if not times:
        return
    found = series.get(key)
    if found is None:
        found = series[key] = Histogram(_BOUNDS)
    if took_ns:
        found.add(took_ns * NANOSECOND_S, times)
    else:
        found.counts[0] += times


def _families(
    series: dict[str, Histogram], attempts: str, counts_help: str, durations: str, times_help: str
) -> Iterator[FamilySamples]:
    yield (
        attempts,
        FamilyKind.COUNTER,
        counts_help,
        {labels(result=result): sum(each.counts) for result, each in series.items()},
    )
    yield (
        durations,
        FamilyKind.HISTOGRAM,
        times_help,
        {labels(result=result): each.copy() for result, each in series.items()},
    )
