"""Bootstrap tokens, and tokens that a webhook knows."""

import asyncio
import base64
from typing import Any

import pytest

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.authentication.bootstrap_tokens import BootstrapTokens
from kvstack.apiserver.policy.authentication.results import AuthenticationError, Found, Identified
from kvstack.apiserver.policy.authentication.webhook_tokens import WebhookTokens
from kvstack.apiserver.policy.remote.connection import RemoteError
from tests.apiserver.policy.clocks import FakeClock
from tests.apiserver.policy.views import FakeView
from tests.apiserver.policy.waiting import result

API = ("api", "other")
SECRETS = GroupResource("", "secrets")
TOKEN = "abcdef.0123456789abcdef"
DATA = {
    "token-id": "abcdef",
    "token-secret": "0123456789abcdef",
    "usage-bootstrap-authentication": "true",
}


class Bootstrap:
    def __init__(self) -> None:
        self.view, self.clock = FakeView(), FakeClock()
        self.tokens = BootstrapTokens(self.view, API, self.clock)

    def put(self, type_: str = "bootstrap.kubernetes.io/token", **data: str | None) -> None:
        found = {name.replace("_", "-"): value for name, value in data.items()}
        encoded = {
            name: base64.b64encode(value.encode()).decode()
            for name, value in {**DATA, **found}.items()
            if value is not None
        }
        metadata = {"namespace": "kube-system", "name": "bootstrap-token-abcdef"}
        self.view.put(SECRETS, {"metadata": metadata, "type": type_, "data": encoded})

    def ask(self, token: str = TOKEN, audiences: tuple[str, ...] = API) -> Found:
        return self.tokens.authenticate(token, audiences)


@pytest.fixture
def bootstrap() -> Bootstrap:
    return Bootstrap()


def test_a_bootstrap_token(bootstrap: Bootstrap) -> None:
    assert bootstrap.ask() is None
    bootstrap.put()
    assert bootstrap.ask(audiences=("other", "x")) == Identified(
        User("system:bootstrap:abcdef", groups=("system:bootstrappers",)), ("other",)
    )
    assert bootstrap.ask(audiences=("x",)) is None
    bootstrap.put(auth_extra_groups="system:bootstrappers:b,system:bootstrappers:a")
    found = bootstrap.ask()
    assert found is not None
    assert found.user.groups == (
        "system:bootstrappers",
        "system:bootstrappers:a",
        "system:bootstrappers:b",
    )


@pytest.mark.parametrize(
    "data",
    [
        {"type_": "Opaque"},
        {"token_secret": "0123456789abcdeg"},
        {"token_secret": ""},
        {"token_id": "abcdeg"},
        {"usage_bootstrap_authentication": "True"},
        {"usage_bootstrap_authentication": None},
        {"expiration": "2027-01-15T07:59:59Z"},
        {"expiration": "2027-01-15T08:00:00Z"},
        {"expiration": "tomorrow"},
        {"auth_extra_groups": "system:masters"},
        {"auth_extra_groups": "system:bootstrappers:a,system:masters"},
        {"auth_extra_groups": "system:bootstrappers:a\n"},
        {"auth_extra_groups": "system:bootstrappers:A"},
    ],
)
def test_bootstrap_tokens_that_are_no_good(bootstrap: Bootstrap, data: dict[str, Any]) -> None:
    bootstrap.put(**data)
    assert bootstrap.ask() is None


def test_a_bootstrap_token_until_it_ends(bootstrap: Bootstrap) -> None:
    bootstrap.put(expiration="2027-01-15T08:00:01Z")
    assert bootstrap.ask() is not None
    bootstrap.clock.seconds += 1
    assert bootstrap.ask() is None


@pytest.mark.parametrize(
    "token",
    ["abcdef", "ABCDEF.0123456789abcdef", f"{TOKEN}0", f" {TOKEN}", f"{TOKEN}\n", "abcdef."],
)
def test_texts_that_are_no_bootstrap_tokens(bootstrap: Bootstrap, token: str) -> None:
    bootstrap.put()
    assert bootstrap.ask(token) is None


def test_a_secret_that_is_being_deleted(bootstrap: Bootstrap) -> None:
    bootstrap.put()
    secret = bootstrap.view.get(SECRETS, "kube-system", "bootstrap-token-abcdef")
    assert secret is not None
    metadata = {**secret["metadata"], "deletionTimestamp": "2027-01-15T07:59:59Z"}
    bootstrap.view.put(SECRETS, {**secret, "metadata": metadata})
    assert bootstrap.ask() is None


# Webhooks.


class Hook:
    def __init__(self, *answers: Object | RemoteError, version: str = "v1") -> None:
        self.answers = list(answers)
        self.asked: list[Object] = []
        self.clock = FakeClock()
        self.tokens = WebhookTokens(self, API, self.clock, version=version, lasts_ns=120 * 10**9)

    async def review(self, review: Object) -> Object:
        self.asked.append(review)
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if isinstance(answer, RemoteError):
            raise answer
        return answer

    def ask(self, token: str = "t", audiences: tuple[str, ...] = API) -> Found:
        return result(self.tokens.authenticate(token, audiences))


BOB = {"authenticated": True, "user": {"username": "bob"}}


def test_whom_a_webhook_knows() -> None:
    user = {"username": "bob", "uid": "7", "groups": ["g"], "extra": {"k": ["v"]}, "more": 1}
    hook = Hook({"authenticated": True, "user": user, "audiences": ["other", "x"]})
    assert hook.ask() == Identified(User("bob", "7", ("g",), {"k": ("v",)}), ("other",))
    (review,) = hook.asked
    assert review["apiVersion"] == "authentication.k8s.io/v1"
    assert review["spec"] == {"token": "t", "audiences": ["api", "other"]}


def test_audiences() -> None:
    assert Hook(BOB).ask() == Identified(User("bob"), API)
    assert Hook({**BOB, "audiences": ["x"]}).ask() is None
    assert Hook(BOB).ask(audiences=("x",)) is None


@pytest.mark.parametrize(
    "status", [{}, {"authenticated": False}, {"authenticated": "true"}, {"authenticated": 1}]
)
def test_whom_it_does_not_know(status: Object) -> None:
    assert Hook({**status, "user": {"username": "bob"}}).ask() is None


@pytest.mark.parametrize(
    "answer",
    [
        RemoteError("down"),
        {"error": "no"},
        {"authenticated": True},
        {"authenticated": True, "user": {"username": ""}},
        {"authenticated": True, "user": {"username": 5}},
        {"authenticated": True, "user": {"username": "b", "groups": "g"}},
        {"authenticated": True, "user": {"username": "b", "groups": [5]}},
        {"authenticated": True, "user": {"username": "b", "extra": {"k": "v"}}},
        {**BOB, "audiences": "api"},
    ],
)
def test_answers_that_cannot_be_used(answer: Object | RemoteError) -> None:
    hook = Hook(answer, BOB)
    with pytest.raises(AuthenticationError):
        hook.ask()
    assert hook.ask() is not None  # a failure is not remembered


def test_what_is_remembered() -> None:
    hook = Hook(BOB, {}, BOB, BOB)
    for token, seconds, count in (("a", 0, 1), ("a", 119, 1), ("b", 0, 2), ("b", 119, 2)):
        hook.clock.seconds += seconds
        hook.ask(token)
        assert len(hook.asked) == count
    hook.ask("a", ("api",))
    assert len(hook.asked) == 3
    hook.clock.seconds += 120
    hook.ask("a")
    assert len(hook.asked) == 4


def test_a_token_of_many_requests_is_asked_about_once() -> None:
    hook = Hook(BOB)

    async def main() -> None:
        waiting = [hook.tokens.authenticate("t", API) for _ in range(10)]
        first = asyncio.ensure_future(waiting[0])  # type: ignore[arg-type]
        await asyncio.sleep(0)
        rest = [asyncio.ensure_future(each) for each in waiting[1:]]  # type: ignore[arg-type]
        first.cancel()  # its client went away
        found = await asyncio.gather(*rest)
        assert all(each is not None for each in found)

    asyncio.run(main())
    assert len(hook.asked) == 1
