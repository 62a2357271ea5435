"""Asks an API server for one of its own pages, as the user of a kubeconfig.

    page = await ask(server, "GET", "/settled", {"timeout": "10s"}, answer_s=40.0)

A server without such a page is not kvstack's, and the error says so.
"""

from typing import Any

from kvstack.agents.client.api import Api, Options, Query
from kvstack.agents.client.kubeconfig import connect
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.status import ApiError
from kvstack.clusters.commands.naming import NamedServer
from kvstack.component.errors import ComponentError


class PageError(ComponentError):
    """A page was not answered as asked; the text names the server."""


async def ask(
    server: NamedServer,
    method: str,
    path: str,
    query: Query | None = None,
    body: bytes = b"",
    *,
    answer_s: float,
) -> dict[str, Any]:
    """Return the JSON that a page answers; raises PageError."""
    cluster = server.cluster
    api = Api(connect(cluster), Options(user_agent="kvstack", timeout_s=answer_s))
    try:
        return await api.call(method, path, query, body)
    except UnreachableError as error:
        raise PageError(f"{server.shown} ({cluster.server}): {error}") from error
    except ApiError as error:
        raise PageError(f"{server.shown}: {_text(error, path)}") from error
    finally:
        await api.close()


def _text(error: ApiError, path: str) -> str:
    if error.is_not_found:
        return f"its server has no {path}: only those of `kvstack up` and of forks do"
    if error.is_forbidden:
        return f"{error.message} (a right to the non-resource URL {path} is needed)"
    return error.message
