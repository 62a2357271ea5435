"""What metrics tell of authentication and authorization."""

from kvstack.apiserver.policy.interfaces import Decision
from kvstack.apiserver.policy.metrics import (
    AuthorizationWebhookMetrics,
    PolicyMetrics,
    ReloadMetrics,
    TokenMetrics,
    decision_readings,
)
from kvstack.component.metrics.exposition import render


def page(*families: object) -> list[str]:
    text = render(list(families)).decode()  # type: ignore[arg-type]
    return [each for each in text.splitlines() if not each.startswith("#")]


def test_users_are_counted_by_kind() -> None:
    metrics = PolicyMetrics()
    for name in ("admin", "bob", "al", "a@b", "system:serviceaccount:x:y"):
        metrics.authenticated(name)
    metrics.refused(2_000_000)
    found = page(*metrics.readings())
    assert 'authenticated_user_requests{username="admin"} 1' in found
    assert 'authenticated_user_requests{username="email_id"} 1' in found
    assert 'authenticated_user_requests{username="other"} 3' in found
    assert 'authentication_attempts{result="success"} 5' in found
    assert 'authentication_attempts{result="error"} 1' in found
    assert 'authentication_duration_seconds_count{result="success"} 5' in found
    assert 'authentication_duration_seconds_bucket{result="error",le="0.001"} 0' in found
    assert 'authentication_duration_seconds_bucket{result="error",le="0.002"} 1' in found


def test_decisions() -> None:
    metrics = PolicyMetrics()
    for decision in (
        Decision(True),
        Decision(True, error="x"),
        Decision(False),
        Decision(False, denied=True),
        Decision(False, denied=True, error="x"),
    ):
        metrics.authorized(decision)
    found = page(*metrics.readings())
    for result, count in (("allowed", 2), ("no-opinion", 1), ("denied", 1), ("error", 1)):
        assert f'authorization_attempts_total{{result="{result}"}} {count}' in found
    counts = [(("rbac", True), 3), (("outside", False), 2)]
    name = "apiserver_authorization_decisions_total"
    assert page(*decision_readings(counts)) == [
        f'{name}{{decision="allowed",name="rbac",type="RBAC"}} 3',
        f'{name}{{decision="denied",name="outside",type="Webhook"}} 2',
    ]


def test_webhooks_and_reloads() -> None:
    webhooks = AuthorizationWebhookMetrics()
    webhooks.add("w", "success", 3_000_000)
    webhooks.count_failed_open("w", "timeout")
    reloads = ReloadMetrics("authorization")
    reloads.add(5_000, is_taken=True)
    found = page(*webhooks.readings(), *reloads.readings())
    prefix = "apiserver_authorization"
    assert f'{prefix}_webhook_evaluations_total{{name="w",result="success"}} 1' in found
    fail_open = f'{prefix}_webhook_evaluations_fail_open_total{{name="w",result="timeout"}} 1'
    assert fail_open in found
    assert f'{prefix}_config_controller_automatic_reloads_total{{status="success"}} 1' in found


def test_tokens() -> None:
    """What was remembered counts as found in no time."""
    tokens = TokenMetrics()
    tokens.hits = 3
    tokens.missed(30_000_000, is_known=True)
    tokens.missed(1, is_known=False)
    tokens.waiting = 2
    found = page(*tokens.readings())
    prefix = "authentication_token_cache"
    assert f'{prefix}_request_total{{status="hit"}} 3' in found
    assert f'{prefix}_request_total{{status="miss"}} 2' in found
    assert f'{prefix}_request_duration_seconds_bucket{{status="hit",le="0.005"}} 3' in found
    assert f'{prefix}_request_duration_seconds_bucket{{status="miss",le="0.025"}} 1' in found
    assert f'{prefix}_fetch_total{{status="ok"}} 1' in found
    assert f'{prefix}_fetch_total{{status="error"}} 1' in found
    assert f'{prefix}_active_fetch_count{{status="in_flight"}} 2' in found
