"""Serves requests that API servers forward: the metrics APIs, and the pages of a process.

server = MetricsServer(access, pages, apis, groups)
async with serving(server, settings, authorities): …
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias
from urllib.parse import unquote

from kvstack.agents.metrics.answers import MetricsApi, WholeAnswer, answer, answered, refusal
from kvstack.agents.metrics.documents import MetricsGroup, openapi_answer
from kvstack.agents.process.access import Access
from kvstack.agents.process.pages import Pages
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.request_info import parse_query
from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.request import Request

Query: TypeAlias = Mapping[str, Sequence[str]]

_BAD_PARTS: Final = ("", ".", "..")


class MetricsServer:
    """Serves one process."""

    def __init__(
        self,
        access: Access,
        pages: Pages,
        apis: Mapping[str, MetricsApi],
        groups: Sequence[MetricsGroup],
    ) -> None:
        """apis: by the path of their group; groups: those with OpenAPI documents."""
        self._access = access
        self._pages = pages
        self._apis = apis
        self._groups = groups

    async def handle(self, request: Request, answer_: Answer) -> None:
        """Answer one request."""
        target, _, query_text = request.target.partition("?")
        path = unquote(target)
        if not path.startswith(("/apis/", "/openapi/")):
            await self._pages.handle(request, answer_)
            return
        query = parse_query(query_text)
        if any(each in _BAD_PARTS for each in path[1:].split("/")):
            answered = refusal(status.generic(404))  # the authorized path must be the requested one
        elif (refused := await self._access.refusal(request, path, query)) is not None:
            answered = refusal(refused)
        else:
            answered = await self._answer(request, path, query)
        headers = [("Content-Type", answered.content_type), ("Cache-Control", "no-cache, private")]
        answer_.send(answered.code, headers, answered.body)

    async def _answer(self, request: Request, path: str, query: Query) -> WholeAnswer:
        document = openapi_answer(self._groups, path)
        if document is not None:
            return answer(document)
        for below, api in self._apis.items():
            if path == below or path.startswith(f"{below}/"):
                return await answered(api, request.method, path, query, request.header("accept"))
        return refusal(status.generic(404))
