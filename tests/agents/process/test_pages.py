"""Pages of a process: who may read which, and what they tell."""

import asyncio
import re
from typing import Any

import pytest

from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.process.access import Access
from kvstack.agents.process.pages import Pages
from kvstack.agents.process.settings import PageSettings
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.certs.certificates import Profile, issue, new_authority
from kvstack.component.clock import SystemClock
from kvstack.component.metrics.exposition import FamilyKind, FamilySamples

NUMBERS: list[FamilySamples] = [("numbers", FamilyKind.GAUGE, "", 7)]


class Reviewer:
    """Answers reviews of tokens and access as told, and counts them."""

    def __init__(self, *, allowed: bool = True, is_there: bool = True) -> None:
        self._allowed = allowed
        self._is_there = is_there
        self.asked: list[Object] = []

    async def create(self, resource: Any, _namespace: str, obj: Object) -> Object:
        if not self._is_there:
            raise UnreachableError("nobody answers")
        self.asked.append(obj["spec"])
        if resource.kind == "TokenReview":
            known = obj["spec"]["token"] == "right"
            return {"status": {"authenticated": known, "user": {"username": "prometheus"}}}
        return {"status": {"allowed": self._allowed}}


class Connection:
    def __init__(self, certificates: tuple[bytes, ...] = ()) -> None:
        self.certificates = certificates
        self.verified_by = ("clients",) if certificates else ()


class Request:
    method = "GET"

    def __init__(self, target: str, token: str = "", certificates: tuple[bytes, ...] = ()) -> None:
        self.target = target
        self.connection = Connection(certificates)
        self._token = token

    def header(self, name: str, default: str = "") -> str:
        return f"Bearer {self._token}" if name == "authorization" and self._token else default


class Answer:
    def send(self, status: int, _headers: Any = (), body: bytes = b"") -> None:
        self.status = status
        self.body = body


def ask(pages: Pages, request: Any) -> tuple[int, bytes]:
    answer: Any = Answer()
    asyncio.run(pages.handle(request, answer))
    return answer.status, answer.body


def pages_of(reviewer: Any, *, well: bool = True) -> Pages:
    checks = {"leaderElection": lambda: well, "other": lambda: True}
    access = Access(reviewer, reviewer, SystemClock(), PageSettings())
    health = dict.fromkeys(("/healthz", "/livez", "/readyz"), checks)
    return Pages(access, health, lambda: NUMBERS, {"componentconfig": {"parallelism": 16}})


@pytest.mark.parametrize(
    ("target", "is_well", "code", "body"),
    [
        ("/healthz", 1, 200, b"ok"),
        (
            "/readyz",
            0,
            500,
            b"[-]leaderElection failed: reason withheld\n[+]other ok\nreadyz check failed\n",
        ),
        ("/livez?verbose", 1, 200, b"[+]leaderElection ok\n[+]other ok\nlivez check passed\n"),
        ("/healthz?exclude=leaderElection", 0, 200, b"ok"),
    ],
)
def test_health_is_for_everybody(target: str, is_well: int, code: int, body: bytes) -> None:
    pages = pages_of(Reviewer(allowed=False), well=bool(is_well))
    assert ask(pages, Request(target)) == (code, body)


def test_one_check_can_be_asked_for() -> None:
    pages = pages_of(Reviewer(), well=False)
    assert ask(pages, Request("/healthz/leaderElection", "right"))[0] == 500
    assert ask(pages, Request("/healthz/other", "right")) == (200, b"ok")
    assert ask(pages, Request("/healthz/else", "right"))[0] == 404


def test_metrics_are_for_who_may_read_them() -> None:
    code, page = ask(pages_of(Reviewer()), Request("/metrics", "right"))
    assert (code, b"numbers 7\n" in page) == (200, True)
    # Every agent has these.
    assert re.search(rb'\nkubernetes_build_info{build_date=.*git_version="v1\.37\.1".*} 1\n', page)
    assert b"\nprocess_cpu_seconds_total " in page
    assert ask(pages_of(Reviewer()), Request("/metrics", "wrong"))[0] == 401
    assert ask(pages_of(Reviewer(is_there=False)), Request("/metrics", "right"))[0] == 503
    reviewer = Reviewer(allowed=False)
    code, body = ask(pages_of(reviewer), Request("/metrics"))
    assert code == 403
    assert b'forbidden: User \\"system:anonymous\\" cannot get path \\"/metrics\\"' in body
    assert reviewer.asked == [
        {
            "user": "system:anonymous",
            "groups": ["system:unauthenticated"],
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        }
    ]


def test_a_token_without_letters_is_none() -> None:
    reviewer = Reviewer(allowed=False)
    code, body = ask(pages_of(reviewer), Request("/metrics", " "))
    assert code == 403
    assert b"system:anonymous" in body


def test_how_it_is_set_up_is_for_who_may_read_it() -> None:
    shown = b'{"componentconfig":{"parallelism":16}}'
    assert ask(pages_of(Reviewer()), Request("/configz", "right")) == (200, shown)
    assert ask(pages_of(Reviewer(allowed=False)), Request("/configz"))[0] == 403
    access = Access(Reviewer(), Reviewer(), SystemClock(), PageSettings())  # type: ignore[arg-type]
    without = Pages(access, {}, tuple)
    assert ask(without, Request("/configz", "right"))[0] == 404


def test_checks_may_be_added_while_it_serves() -> None:
    checks = {"leaderElection": lambda: True}
    access = Access(Reviewer(), Reviewer(), SystemClock(), PageSettings())  # type: ignore[arg-type]
    pages = Pages(access, {"/healthz": checks}, tuple)
    checks["job-controller"] = lambda: True
    body = b"[+]leaderElection ok\n[+]job-controller ok\nhealthz check passed\n"
    assert ask(pages, Request("/healthz?verbose")) == (200, body)
    assert ask(pages, Request("/healthz/job-controller", "right")) == (200, b"ok")


def test_a_client_certificate_names_a_user() -> None:
    now_s = SystemClock().now_s()
    authority = new_authority("ca", now_s)
    reviewer = Reviewer(allowed=False)

    def certificate(name: str, *groups: str) -> tuple[bytes, ...]:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding

        made = issue(authority, Profile(name, groups=groups), now_s)
        found = x509.load_pem_x509_certificate(made.cert)
        return (found.public_bytes(Encoding.DER),)

    one = Request("/metrics", certificates=certificate("prometheus", "viewers"))
    assert ask(pages_of(reviewer), one)[0] == 403
    assert reviewer.asked[0]["user"] == "prometheus"
    assert reviewer.asked[0]["groups"] == ["viewers", "system:authenticated"]
    root = Request("/metrics", certificates=certificate("root", "system:masters"))
    assert ask(pages_of(reviewer), root)[0] == 200
    assert len(reviewer.asked) == 1


def test_answers_are_believed_for_a_while() -> None:
    reviewer = Reviewer()
    pages = pages_of(reviewer)
    for _ in range(3):
        assert ask(pages, Request("/metrics", "right"))[0] == 200
    assert len(reviewer.asked) == 2
