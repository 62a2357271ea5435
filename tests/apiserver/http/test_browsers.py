"""What browsers are told, of other sites and of TLS."""

from collections.abc import Awaitable, Callable

from kvstack.apimachinery.objects.text.go_patterns import compile_pattern
from kvstack.apiserver.http.browsers import BrowserRules
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


def test_tls_alone_is_to_be_spoken() -> None:
    async def story(api: Api) -> None:
        assert not (await api.ask("GET", "/version")).header("strict-transport-security")
        api.site.api.browsers = RULES
        for path in ("/version", "/api/v1/namespaces/none"):
            told = (await api.ask("GET", path)).header("strict-transport-security")
            assert told == "max-age=31536000; includeSubDomains"

    tell(story)


def tell(story: Callable[[Api], Awaitable[None]]) -> None:
    async def main() -> None:
        async with site() as api:
            await story(api)

    run(main())
