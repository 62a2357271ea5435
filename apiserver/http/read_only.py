"""The requests that a read-only server serves.

Reads, requests that are answered without being stored (reviews), and dry runs.
"""

from typing import Final

from kvstack.apiserver.http.routing import WRITES, Route

_WRITES: Final = WRITES | {"deletecollection"}
REFUSAL: Final = "this cluster is read-only"


def lets_pass(route: Route) -> bool:
    """Return whether a request for a resource writes nothing."""
    if route.verb not in _WRITES:
        return True
    endpoint = route.endpoint
    if endpoint is not None and endpoint.row.storage is None:
        return True
    return route.query.get("dryRun") == ["All"]
