"""Why pods wait for a node: `/debug/scheduling` at the API server's port, for authorized users.

    {"pods": [{"namespace": "a", "name": "web", "since": TIME, "message": "0/3 nodes …",
               "reasons": [{"plugin": "NodeResourcesFit", "text": "Insufficient cpu", "count": 2,
                            "nodes": ["node-1", "node-2"]}]}]}

It is what the scheduler of this process decided last about each pod.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from kvstack.apiserver.http.pages.debug_pages import ROOT, send_json
from kvstack.apiserver.http.pages.page_set import PageSet, check_get
from kvstack.apiserver.http.request_context import RequestContext

PATH: Final = f"{ROOT}/scheduling"


def add_scheduling_page(pages: PageSet, shown: Callable[[], Sequence[dict[str, Any]]]) -> None:
    """Serve the page; shown: returns the pods that wait."""

    async def page(context: RequestContext) -> None:
        check_get(context.request)
        send_json(context, {"pods": list(shown())})

    pages.add(PATH, page, is_listed=False)
