"""Counts of authentications and authorizations, under upstream's names.

Answers without IO are not timed: they take microseconds, and the smallest bucket is a millisecond.
Their duration counts as zero.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from kvstack.apiserver.policy.interfaces import Decision
from kvstack.component.metrics.exposition import FamilyKind, FamilySamples, labels
from kvstack.component.metrics.histograms import (
    NANOSECOND_S,
    PROMETHEUS_BOUNDS,
    Histogram,
    exponential,
)
from kvstack.component.metrics.labelled import (
    LabelledCounter,
    LabelledGauge,
    LabelledHistogram,
    by_labels,
)

_BOUNDS: Final = exponential(0.001, 2, 15)
_NAMED_USERS: Final = frozenset(
    ("admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default")
)
_TYPES: Final = {
    "abac": "ABAC",
    "alwaysallow": "AlwaysAllow",
    "alwaysdeny": "AlwaysDeny",
    "node": "Node",
    "rbac": "RBAC",
}
"""Types of authorizers by name; those with other names are webhooks."""

Decided = tuple[str, bool]
"""The name of an authorizer, and whether it allowed."""


class PolicyMetrics:
    """Counts authentications and authorizations of requests."""

    def __init__(self) -> None:
        self._users: Final[Counter[str]] = Counter()  # updated by every request
        self._authentications: Final = LabelledHistogram(
            "authentication_duration_seconds",
            "Authentication duration in seconds broken out by result.",
            _BOUNDS,
            "result",
        )
        self._authorizations: Final = LabelledHistogram(
            "authorization_duration_seconds",
            "Authorization duration in seconds broken out by result.",
            _BOUNDS,
            "result",
        )
        self._known_at_once = 0
        """Authentications without IO that are not in the histogram yet."""
        self._allowed_at_once = 0

    def authenticated(self, name: str, took_ns: int = 0) -> None:
        """Count an authenticated user."""
        if name not in _NAMED_USERS:
            name = "email_id" if "@" in name else "other"
        self._users[name] += 1
        if took_ns:
            self._authentications.add(took_ns * NANOSECOND_S, "success")
        else:
            self._known_at_once += 1

    def refused(self, took_ns: int) -> None:
        """Count invalid credentials."""
        self._authentications.add(took_ns * NANOSECOND_S, "error")

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
        self._authorizations.add(took_ns * NANOSECOND_S, result)

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families."""
        known, self._known_at_once = self._known_at_once, 0
        if known:
            self._authentications.add(0.0, "success", times=known)
        allowed, self._allowed_at_once = self._allowed_at_once, 0
        if allowed:
            self._authorizations.add(0.0, "allowed", times=allowed)
        yield (
            "authenticated_user_requests",
            FamilyKind.COUNTER,
            "Counter of authenticated requests broken out by username.",
            by_labels(("username",), {(name,): count for name, count in self._users.items()}),
        )
        yield self._authentications.counted(
            "authentication_attempts", "Counter of authenticated attempts."
        )
        yield self._authentications.samples()
        yield self._authorizations.counted(
            "authorization_attempts_total",
            "Counter of authorization attempts broken down by result. It can be either 'allowed',"
            " 'denied', 'no-opinion' or 'error'.",
        )
        yield self._authorizations.samples()


class ReloadMetrics:
    """Counts reloads of a configuration file, and failures."""

    def __init__(self, subject: str) -> None:
        """subject: `authentication` or `authorization`."""
        prefix = f"apiserver_{subject}_config_controller_automatic_reload"
        what = f"{subject} configuration split by status and apiserver identity."
        self._counts: Final = LabelledCounter(
            f"{prefix}s_total", f"Total number of automatic reloads of {what}", "status"
        )
        self._last_s: Final = LabelledGauge(
            f"{prefix}_last_timestamp_seconds",
            f"Timestamp of the last automatic reload of {what}",
            "status",
        )

    def add(self, unix_ms: int, *, is_taken: bool) -> None:
        """Count a changed file."""
        status = "success" if is_taken else "failure"
        self._counts.add(status)
        self._last_s.set(unix_ms / 1000, status)

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families."""
        yield self._counts.samples()
        yield self._last_s.samples()


class AuthorizationWebhookMetrics:
    """Counts calls of authorization webhooks."""

    def __init__(self) -> None:
        prefix = "apiserver_authorization_webhook"
        self._evaluations: Final = LabelledHistogram(
            f"{prefix}_duration_seconds",
            "Request latency in seconds.",
            _BOUNDS,
            *("name", "result"),
        )
        self._failed_open: Final = LabelledCounter(
            f"{prefix}_evaluations_fail_open_total",
            "NoOpinion results due to webhook timeout or error.",
            *("name", "result"),
        )

    def add(self, name: str, result: str, took_ns: int) -> None:
        """Count an attempt; result: `success`, `timeout` or `error`."""
        self._evaluations.add(took_ns * NANOSECOND_S, name, result)

    def count_failed_open(self, name: str, result: str) -> None:
        """Count a failed call that is left to other authorizers."""
        self._failed_open.add(name, result)

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families."""
        yield self._evaluations.counted(
            "apiserver_authorization_webhook_evaluations_total",
            "Round-trips to authorization webhooks.",
        )
        yield self._evaluations.samples()
        yield self._failed_open.samples()


def decision_readings(counts: Iterable[tuple[Decided, int]]) -> Iterator[FamilySamples]:
    """Yield the numbers of decisions by authorizer."""
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


def certificate_readings(lifetimes: Histogram) -> Iterator[FamilySamples]:
    """Yield the remaining validity of client certificates, in seconds."""
    yield (
        "apiserver_client_certificate_expiration_seconds",
        FamilyKind.HISTOGRAM,
        "Distribution of the remaining lifetime on the certificate used to authenticate a request.",
        lifetimes.copy(),
    )


class TokenMetrics:
    """Counts token authentications and cache hits."""

    def __init__(self) -> None:
        self.hits = 0
        """Answers from the cache, without delay."""
        self.waiting = 0
        """Requests that wait for an answer."""
        self._missed: Final = Histogram(PROMETHEUS_BOUNDS)
        self._fetches: Final = LabelledCounter(
            "authentication_token_cache_fetch_total", "", "status"
        )

    def missed(self, took_ns: int, *, is_known: bool) -> None:
        """Count a token that was not cached; is_known: an authenticator knew it."""
        self._missed.add(took_ns * NANOSECOND_S)
        self._fetches.add("ok" if is_known else "error")

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families; upstream has no help texts for them."""
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
        yield self._fetches.samples()
        waiting = {labels(status="in_flight"): self.waiting}
        yield f"{prefix}_active_fetch_count", FamilyKind.GAUGE, "", waiting


_LEGACY: Final = {
    "auto": ("legacy_auto", "auto-generated legacy"),
    "manual": ("legacy_manual", "manually created legacy"),
    "invalid_auto": ("invalid_legacy_auto", "invalid auto-generated legacy"),
}


def token_readings(uses: Counter[str], legacy_uses: Counter[str]) -> Iterator[FamilySamples]:
    """Yield the uses of service account tokens."""
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
