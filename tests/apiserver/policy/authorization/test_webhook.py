"""An authorizer behind a URL: what it is asked, what is remembered, what a failure decides."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.attributes import Attributes, User
from kvstack.apimachinery.objects import fields, labels
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.authorization.chain import Chain
from kvstack.apiserver.policy.authorization.webhook import (
    ConditionError,
    WebhookAuthorizer,
    WebhookSettings,
    review_spec,
)
from kvstack.apiserver.policy.interfaces import Decision
from kvstack.apiserver.policy.remote.connection import RemoteAnswer, RemoteError
from kvstack.apiserver.policy.remote.webhook import TRIES_MAX, Webhook
from tests.apiserver.policy.clocks import FakeClock
from tests.apiserver.policy.waiting import result

BOB = User("bob", "7", ("devs",), {"scopes": ("a", "b")})
ASKED = Attributes(BOB, "get", version="v1", resource="pods", namespace="a", name="web")


class Reviewer:
    """Answers as a test says, and notes what it was asked."""

    def __init__(self, *answers: Object | RemoteError) -> None:
        self.answers = list(answers)
        self.asked: list[Object] = []

    async def review(self, review: Object) -> Object:
        self.asked.append(review)
        answer = self.answers.pop(0)
        if isinstance(answer, RemoteError):
            raise answer
        return answer


class World:
    def __init__(self, *answers: Object | RemoteError, conditions: Any = None, **more: Any) -> None:
        self.clock = FakeClock()
        self.reviewer = Reviewer(*answers)
        settings = WebhookSettings("outside", **more)
        self.webhook = WebhookAuthorizer(settings, self.reviewer, self.clock, conditions)

    def ask(self, attributes: Attributes = ASKED) -> Decision:
        return result(self.webhook.authorize(attributes))


def test_what_is_asked() -> None:
    selected = ASKED._replace(
        verb="list",
        name="",
        subresource="status",
        group="x.io",
        field_selector=fields.parse("a=b,c!=d"),
        label_selector=labels.parse("e,!f,g in (h),i!=j,k>1"),
    )
    assert review_spec(selected) == {
        "resourceAttributes": {
            "namespace": "a", "verb": "list", "group": "x.io", "version": "v1",
            "resource": "pods", "subresource": "status",
            "fieldSelector": {
                "requirements": [
                    {"key": "a", "operator": "In", "values": ["b"]},
                    {"key": "c", "operator": "NotIn", "values": ["d"]},
                ]
            },
            "labelSelector": {
                "requirements": [
                    {"key": "e", "operator": "Exists"},
                    {"key": "f", "operator": "DoesNotExist"},
                    {"key": "g", "operator": "In", "values": ["h"]},
                    {"key": "i", "operator": "NotIn", "values": ["j"]},
                ]
            },
        },
        "user": "bob", "uid": "7", "groups": ["devs"], "extra": {"scopes": ["a", "b"]},
    }  # fmt: skip
    assert review_spec(Attributes.of_path(User("al"), "get", "/x")) == {
        "nonResourceAttributes": {"path": "/x", "verb": "get"},
        "user": "al",
    }


def test_the_old_version_of_reviews_names_groups_otherwise() -> None:
    world = World({"allowed": True}, version="v1beta1")
    world.ask()
    (review,) = world.reviewer.asked
    assert review["apiVersion"] == "authorization.k8s.io/v1beta1"
    assert review["spec"]["group"] == ["devs"]
    assert "groups" not in review["spec"]


@pytest.mark.parametrize(
    ("status", "decision"),
    [
        ({"allowed": True, "reason": "r"}, Decision(True, "r")),
        ({"allowed": False, "reason": "r"}, Decision(False, "r")),
        ({"denied": True, "reason": "r"}, Decision(False, "r", denied=True)),
        ({}, Decision(False)),
        ({"allowed": "true"}, Decision(False)),
        ({"allowed": 1, "reason": 5}, Decision(False)),
    ],
)
def test_answers(status: Object, decision: Decision) -> None:
    assert World(status).ask() == decision


def test_an_answer_that_allows_and_denies_denies() -> None:
    decision = World({"allowed": True, "denied": True}).ask()
    assert decision.denied
    assert not decision.allowed
    assert decision.error


def test_how_long_answers_are_remembered() -> None:
    world = World({"allowed": True}, {"allowed": True}, {"allowed": False}, {"allowed": False})
    for seconds, count in ((0, 1), (299, 1), (2, 2), (299, 2), (2, 3), (29, 3), (2, 4)):
        world.clock.seconds += seconds
        world.ask()
        assert len(world.reviewer.asked) == count


def test_another_question_is_asked_anew() -> None:
    world = World(*[{"allowed": True}] * 3)
    for asked in (ASKED, ASKED._replace(name="x"), ASKED._replace(user=User("al")), ASKED):
        world.ask(asked)
    assert len(world.reviewer.asked) == 3


def test_what_is_not_remembered() -> None:
    long = ASKED._replace(name="x" * 10_000)
    world = World(*[{"allowed": True}] * 2)
    world.ask(long)
    world.ask(long)
    never = World(*[{"allowed": True}] * 2, allowed_ns=0)
    never.ask()
    never.ask()
    assert len(world.reviewer.asked) == len(never.reviewer.asked) == 2


def test_a_failure_is_no_opinion_or_denies_and_is_not_remembered() -> None:
    world = World(RemoteError("gone"), {"allowed": True})
    assert world.ask() == Decision(False, error="gone")
    assert world.ask().allowed
    assert World(RemoteError("gone"), denies_on_error=True).ask() == Decision(
        False, denied=True, error="gone"
    )


class Conditions:
    def __init__(self, *, found: bool | ConditionError) -> None:
        self.found = found

    def match(self, spec: Object) -> bool:
        if isinstance(self.found, ConditionError):
            raise self.found
        return self.found


def test_conditions() -> None:
    assert World({"allowed": True}, conditions=Conditions(found=True)).ask().allowed
    skipped = World(conditions=Conditions(found=False), denies_on_error=True)
    assert skipped.ask() == Decision(False)
    failed = Conditions(found=ConditionError("no such key"))
    assert World(conditions=failed).ask() == Decision(False, error="no such key")
    assert World(conditions=failed, denies_on_error=True).ask().denied


def test_in_a_chain_others_decide_where_the_webhook_has_no_opinion() -> None:
    class Allows:
        name = "allows"

        def authorize(self, _attributes: Attributes) -> Decision:
            return Decision(True, "ok")

    for answer, is_allowed in (({}, True), (RemoteError("x"), True), ({"denied": True}, False)):
        chain = Chain([World(answer).webhook, Allows()])
        assert result(chain.authorize(ASKED)).allowed is is_allowed
    undecided = result(Chain([World(RemoteError("x")).webhook]).authorize(ASKED))
    assert undecided == Decision(False, error="x")


# The connection.

REVIEW = {"apiVersion": "v1", "kind": "R", "spec": {}}


class Asker:
    """Answers with codes and bodies."""

    def __init__(self, *answers: RemoteAnswer | RemoteError) -> None:
        self.answers = list(answers)
        self.tries = 0

    async def ask(self, method: str, body: bytes = b"", *, timeout_s: float) -> RemoteAnswer:
        assert (method, orjson.loads(body), timeout_s) == ("POST", REVIEW, 3.0)
        self.tries += 1
        answer = self.answers.pop(0)
        if isinstance(answer, RemoteError):
            raise answer
        return answer


def good(**status: Any) -> RemoteAnswer:
    return RemoteAnswer(201, orjson.dumps({**REVIEW, "status": status}))


def sent(asker: Asker) -> tuple[Object, list[float], list[tuple[int, str]]]:
    pauses: list[float] = []
    noted: list[tuple[int, str]] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    webhook = Webhook(
        asker,
        timeout_s=3.0,
        clock=FakeClock(),
        random=lambda: 0.0,
        sleep=sleep,
        noted=lambda code, result, _took: noted.append((code, result)),
    )
    try:
        return result(webhook.review(REVIEW)), pauses, noted
    except RemoteError as error:
        return {"error": str(error)}, pauses, noted


def test_it_is_asked_again_where_that_may_help() -> None:
    reset = RemoteError("reset")
    reset.__cause__ = ConnectionResetError()
    answers: list[RemoteAnswer | RemoteError] = [
        RemoteAnswer(500, b""),
        RemoteAnswer(429, b""),
        RemoteAnswer(503, b"", "1"),
        reset,
    ]
    status, pauses, noted = sent(Asker(*answers, good(allowed=True)))
    assert status == {"allowed": True}
    assert pauses == [0.5, 0.75, 1.125, 1.6875]
    assert [code for code, _ in noted] == [500, 429, 503, 0, 201]
    assert noted[-1] == (201, "success")


def test_it_is_given_up_after_some_tries() -> None:
    asker = Asker(*[RemoteAnswer(500, b"down")] * 9)
    status, _, _ = sent(asker)
    assert asker.tries == TRIES_MAX
    assert status["error"].startswith('an error on the server ("down")')


@pytest.mark.parametrize(
    "answer",
    [
        RemoteAnswer(403, b"{}"),
        RemoteAnswer(302, b""),
        RemoteAnswer(200, b"nonsense"),
        RemoteAnswer(200, b"[]"),
        RemoteAnswer(200, b'{"apiVersion": "v1", "kind": "Other"}'),
        RemoteAnswer(200, b'{"apiVersion": "v1", "kind": "R", "status": "yes"}'),
        RemoteError("slow", is_timeout=True),
    ],
)
def test_what_is_no_answer_is_not_asked_again(answer: RemoteAnswer | RemoteError) -> None:
    asker = Asker(answer)
    status, pauses, noted = sent(asker)
    assert "error" in status
    assert not pauses
    assert noted[0][1] in {"error", "timeout"}


VALUES = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["kind", "apiVersion", "status", "allowed"]), inner)
    ),
)


@given(st.binary(max_size=60) | st.builds(orjson.dumps, VALUES))
def test_no_answer_of_another_form_allows(body: bytes) -> None:
    class Any:
        async def ask(self, method: str, body_: bytes = b"", *, timeout_s: float) -> RemoteAnswer:
            return RemoteAnswer(200, body)

    webhook = Webhook(Any(), timeout_s=3.0, clock=FakeClock(), random=lambda: 0.0)
    authorizer = WebhookAuthorizer(WebhookSettings("w"), webhook, FakeClock())
    decision = result(authorizer.authorize(ASKED))
    assert not decision.allowed
    assert decision.error
