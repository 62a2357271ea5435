"""What browsers are told, of other sites and of TLS."""

import re
from collections.abc import Awaitable, Callable

import pytest

from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text.go_patterns import compile_pattern
from kvstack.apiserver.http.browsers import BrowserRules
from kvstack.apiserver.policy.authentication.requests import PROTOCOL_PREFIX
from kvstack.component.http.serving.request import Request
from tests.apiserver.support.sites import Api, site
from tests.apiserver.support.virtual_time import run

RULES = BrowserRules(
    [compile_pattern(r"^https://ui\.example$"), compile_pattern("//other.example:")],
    ["max-age=31536000", "includeSubDomains"],
)


def test_only_named_sites_may_read_answers() -> None:
    async def story(api: Api) -> None:
        api.site.api.browsers = RULES
        for origin, is_named in (
            ("https://ui.example", True),
            ("http://other.example:8080", True),
            ("https://ui.example.evil.example", False),
            ("https://evil.example", False),
            ("null", False),
        ):
            kept = await api.ask("GET", "/version", origin=origin)
            assert kept.status == 200
            told = kept.header("access-control-allow-origin")
            assert told == (origin if is_named else "")
            assert bool(kept.header("access-control-allow-methods")) == is_named
        assert not (await api.ask("GET", "/version")).header("access-control-allow-origin")

    tell(story)


def test_a_browser_that_asks_first_is_answered_at_once() -> None:
    """It sends no credentials with the question, and they are not asked for."""

    async def story(api: Api) -> None:
        api.site.api.browsers = RULES
        path = "/api/v1/secrets"
        kept = await api.ask("OPTIONS", path, token="", origin="https://ui.example")
        assert (kept.status, kept.body) == (204, b"")
        assert "Authorization" in kept.header("access-control-allow-headers")
        kept = await api.ask("OPTIONS", path, token="", origin="https://evil.example")
        assert kept.status in (401, 403)

    tell(story)


def test_only_tls_is_allowed() -> None:
    async def story(api: Api) -> None:
        assert not (await api.ask("GET", "/version")).header("strict-transport-security")
        api.site.api.browsers = RULES
        for path in ("/version", "/api/v1/namespaces/none"):
            told = (await api.ask("GET", path)).header("strict-transport-security")
            assert told == "max-age=31536000; includeSubDomains"

    tell(story)


OWN = {"host": "api.example:6443", "origin": "https://api.example:6443"}
EVIL = {"host": "api.example:6443", "origin": "https://evil.example"}
MAPS = "/api/v1/namespaces/a/configmaps"
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}


@pytest.mark.parametrize("site_", ["cross-site", "same-site"])
def test_a_page_of_another_site_writes_nothing_with_what_a_browser_adds(site_: str) -> None:
    """As by a POST without a media type, of which the browser does not ask first."""

    async def story(api: Api) -> None:
        headers = {**EVIL, "sec_fetch_site": site_}
        for method, path, body in (
            ("POST", MAPS, MAP),
            ("PATCH", f"{MAPS}/x", {}),
            ("DELETE", f"{MAPS}/x", None),
        ):
            refused = await api.ask(method, path, body, token="", **headers)
            assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
            assert "another site" in refused.json["message"]
        # With a token of its own it is whoever the token names.
        assert (await api.ask("POST", MAPS, MAP, **headers)).status == 201
        # Reading is for the browser to refuse: it needs no question of us.
        assert (await api.ask("GET", "/version", **headers)).status == 200
        api.site.api.browsers = RULES
        named = {**headers, "origin": "https://ui.example"}
        refused = await api.ask("POST", MAPS, MAP, token="", **named)
        assert "another site" not in refused.json["message"]

    tell(story)


def test_the_own_page_and_programs_write() -> None:
    async def story(api: Api) -> None:
        for number, headers in enumerate(
            ({}, {**OWN, "sec_fetch_site": "same-origin"}, {"sec_fetch_site": "none"}, EVIL)
        ):
            made = {**MAP, "metadata": {"name": f"x{number}"}}
            # Without a token it is refused for that, and not for the site.
            refused = await api.ask("POST", MAPS, made, token="", **headers)
            assert refused.status == 403
            assert "another site" not in refused.json["message"]
            assert (await api.ask("POST", MAPS, made, **headers)).status == 201

    tell(story)


def socket(**headers: str) -> Request:
    """Return a request for a WebSocket."""
    found = Api.request("GET", MAPS, None, "", {"upgrade": "websocket", **headers})
    found.may_upgrade = True
    return found


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        (OWN, True),
        ({"host": "api.example", "origin": "https://API.example"}, True),
        ({**EVIL, "origin": "http://127.0.0.1:8001"}, True),
        ({**EVIL, "origin": "http://localhost:8001"}, True),
        ({**EVIL, "origin": "http://[::1]:8001"}, True),
        ({**EVIL, "sec_fetch_site": "same-origin"}, True),
        ({**EVIL, "sec_websocket_protocol": f"v5.channel.k8s.io, {PROTOCOL_PREFIX}eA"}, True),
        ({**EVIL, "authorization": "Bearer x"}, True),
        (EVIL, False),
        ({**OWN, "origin": "null"}, False),
        ({**OWN, "origin": "https://api.example:7443"}, False),
        ({**OWN, "origin": "http://api.example.evil.example:6443"}, False),
        ({**OWN, "origin": "https://api.example:port"}, False),
        ({**EVIL, "origin": "http://127.0.0.1:8001", "sec_fetch_site": "cross-site"}, False),
        ({**EVIL, "sec_websocket_protocol": "v5.channel.k8s.io"}, False),
    ],
)
def test_a_page_of_another_site_opens_no_websocket(
    headers: dict[str, str],
    allowed: bool,  # noqa: FBT001 - the case's
) -> None:
    rules = BrowserRules((), ())
    request = socket(**headers)
    if allowed:
        rules.check(request)
        return
    with pytest.raises(ApiError, match="another site"):
        rules.check(request)
    named = BrowserRules([compile_pattern(re.escape(headers["origin"]))], ())
    named.check(request)


def tell(story: Callable[[Api], Awaitable[None]]) -> None:
    async def main() -> None:
        async with site() as api:
            await story(api)

    run(main())
