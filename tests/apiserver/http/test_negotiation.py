"""Accept headers, routes, warnings."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apiserver.http.answers import warning_headers
from kvstack.apiserver.http.negotiation import (
    LISTS,
    OBJECTS,
    STREAM,
    NotAcceptableError,
    Representation,
    negotiate,
)
from tests.apiserver.support.sites import Api, site
from tests.apiserver.support.virtual_time import run

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
TABLE = f"{JSON};as=Table;g=meta.k8s.io;v=v1"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", Representation(JSON)),
        ("*/*", Representation(JSON)),
        (f"{YAML},{JSON}", Representation(YAML)),
        (f"{YAML};q=0.5,{PROTOBUF}", Representation(PROTOBUF)),
        (f"{TABLE},{JSON}", Representation(JSON, "Table")),
        (f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1,{JSON}", Representation(JSON)),
        (f"{JSON};as=Bogus;g=meta.k8s.io;v=v1,{YAML}", Representation(YAML)),
        (f"{JSON};pretty=1", Representation(JSON, pretty=True)),
    ],
)
def test_what_is_accepted(accept: str, expected: Representation) -> None:
    """The first that can be had."""
    assert negotiate(accept, OBJECTS) == expected


@pytest.mark.parametrize(
    ("accept", "text"),
    [
        ("application/*", "406: Not Acceptable"),  # as upstream's router has it
        ("text/html", "406: Not Acceptable\n\nAvailable representations: application/json,"),
        (f"{JSON};as=Bogus;g=x;v=v1", "only the following media types are accepted: "),
    ],
)
def test_what_is_not(accept: str, text: str) -> None:
    """In the router's words, or the handler's."""
    with pytest.raises(NotAcceptableError) as caught:
        negotiate(accept, OBJECTS)
    assert caught.value.text.startswith(text)


@pytest.mark.parametrize("accept", [YAML, f"{YAML},{JSON}", f"{JSON};q=0.5,{YAML}", f"{YAML},*/*"])
def test_who_prefers_what_cannot_be_streamed_is_refused(accept: str) -> None:
    """YAML is negotiated like the others, but a watch cannot be written in it."""
    with pytest.raises(NotAcceptableError) as caught:
        negotiate(accept, STREAM)
    assert caught.value.text == (
        "only the following media types are accepted: application/json;stream=watch,"
        " application/vnd.kubernetes.protobuf;stream=watch"
    )
    assert negotiate(f"{JSON},{YAML}", STREAM).media_type == JSON
    assert negotiate("*/*", STREAM).media_type == JSON


@given(st.text(max_size=60))
def test_any_header(accept: str) -> None:
    """It is answered or refused."""
    for offer in (OBJECTS, LISTS, STREAM):
        with suppress(NotAcceptableError):
            negotiate(accept, offer)


def test_warnings_are_reported_once_and_cut_if_they_are_many() -> None:
    """All of them to 256 characters where they would be more than 4096."""
    assert warning_headers(['say "a"', 'say "a"', "b\nc"]) == [("Warning", '299 - "say \\"a\\""')]
    many = warning_headers([f"{number:03}{'x' * 500}" for number in range(20)])
    assert {len(text) for _, text in many} == {len('299 - ""') + 256}
    assert len(many) == 16


@pytest.mark.parametrize(
    ("method", "target", "verb", "code"),
    [
        ("GET", "/api/v1/pods", "list", 0),
        ("GET", "/api/v1/pods?watch", "watch", 0),
        ("GET", "/api/v1/pods?watch=false", "list", 0),
        ("GET", "/api/v1/watch/pods", "watch", 0),
        ("GET", "/api/v1/namespaces/a/pods/x?watch=1", "get", 0),
        ("GET", "/api/v1/namespaces/a", "get", 0),
        ("PUT", "/api/v1/namespaces/a/finalize", "update", 0),
        ("PATCH", "/api/v1/namespaces/a/pods/x/status", "patch", 0),
        ("GET", "/api/v1/namespaces/a/pods/x/log", "connect", 0),
        ("POST", "/api/v1/namespaces/a/pods/x/eviction", "create", 0),
        ("POST", "/api/v1/pods", "", 405),
        ("HEAD", "/api/v1/pods", "", 405),
        ("DELETE", "/api/v1/namespaces/a/pods/x/status", "", 405),
        ("GET", "/api/v1/bogus", "", 404),
        ("GET", "/api/v1/namespaces/a/nodes", "", 404),
        ("GET", "/api/v1/nodes/x/bogus", "", 404),
        ("GET", "/api/v1/namespaces/a/pods/x/status/y", "", 404),
        ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/x", "", 404),
        ("GET", "/at/7/api/v1/pods", "list", 0),
        ("GET", "//api/v1/pods", "", 0),
    ],
)
def test_routes(method: str, target: str, verb: str, code: int) -> None:
    """The verb of an endpoint, or why there is none."""

    async def story(api: Api) -> None:
        route = api.site.router.route(method, target)
        assert route.verb == verb
        assert (route.error.code if route.error is not None else 0) == code
        assert route.at == ("7" if target.startswith("/at/") else "")
        assert api.site.router.route(method, target) is route

    async def main() -> None:
        async with site() as api:
            await story(api)

    run(main())
