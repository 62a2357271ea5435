"""Whether JSON is indented.

    ?pretty=true or pretty=1 in Accept      as asked
    no such parameter                       for curl, Wget and browsers

Applies to objects, errors and discovery. YAML and protobuf have one form only.
"""

from typing import Final

from kvstack.apimachinery.objects.request_info import Query, parse_query
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_bool
from kvstack.apiserver.http.negotiation import Representation
from kvstack.component.http.serving.request import Request

_PEOPLES_TOOLS: Final = ("curl", "Wget", "Mozilla/5.0")
_PARAMETER: Final = "pretty"
_NO_QUERY: Final[Query] = {}


def is_pretty(request: Request, representation: Representation, query: Query | None = None) -> bool:
    """Return whether an answer is indented; query: of the request, if the caller has parsed it."""
    if representation.pretty:
        return True
    if query is None:
        _, _, text = request.target.partition("?")
        query = parse_query(text) if _PARAMETER in text else _NO_QUERY
    values = query.get(_PARAMETER)
    if values and values[0]:
        try:
            return parse_bool(values[0])
        except NumberError:
            return False
    return request.header("user-agent").startswith(_PEOPLES_TOOLS)
