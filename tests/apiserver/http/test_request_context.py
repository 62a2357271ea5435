"""What rides along a request: whom it is of, from the first byte to the last."""

from kvstack.apiserver.http.request_context import UNKNOWN, RequestContext
from tests.apiserver.support.sites import site
from tests.apiserver.support.virtual_time import run

MAPS = "/api/v1/namespaces/a/configmaps"


class Noting:
    """Keeps the contexts of requests that are over."""

    def __init__(self) -> None:
        self.contexts: list[RequestContext] = []

    def ended(self, context: RequestContext, took_ns: int) -> None:
        """Keep one."""
        self.contexts.append(context)


def test_a_request_is_nobody_s_until_its_user_is_known() -> None:
    noting = Noting()

    async def story() -> None:
        async with site() as api:
            api.site.api._observers = (noting,)
            await api.ask("GET", MAPS, token="of-nobody")
            await api.ask("GET", MAPS)

    run(story())
    assert [each.user.name for each in noting.contexts] == ["", "admin"]
    assert noting.contexts[0].user is UNKNOWN
    assert not UNKNOWN.groups
    assert [each.reply.code for each in noting.contexts] == [401, 200]


def test_whom_a_user_impersonates_is_the_user_of_the_request() -> None:
    noting = Noting()

    async def story() -> None:
        async with site() as api:
            api.site.api._observers = (noting,)
            await api.ask("GET", MAPS, impersonate_user="alice")

    run(story())
    assert [each.user.name for each in noting.contexts] == ["alice"]
    assert noting.contexts[0].reply.code == 403
