"""Watch: its start and its duration; http sends the events."""

from typing import Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.text.go_numbers import NumberError
from kvstack.apiserver.verbs import options
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.reading import get_and_list
from kvstack.apiserver.verbs.results import Watching

_READ_ONLY: Final = "past states cannot be watched"


async def watch(call: Call) -> Watching:
    """Return the watch of the request; raises ApiError."""
    if "watch" not in call.endpoint.row.verbs:
        raise status.method_not_supported(call.endpoint.resource, "watch")
    if call.at_revision:
        raise status.bad_request(_READ_ONLY)
    parameters = options.list_options(call.query, is_watch=True)
    selection = get_and_list.selection_of(call, parameters)
    try:
        revision = parameters.revision
    except NumberError as error:
        raise get_and_list.bad_version(parameters.resource_version, error) from None
    is_list = bool(parameters.send_initial_events) and parameters.bookmarks
    if not revision and parameters.send_initial_events is None:
        # A path below /watch/ without the parameter `watch` is not defaulted: it begins with the
        # initial objects too, but no bookmark marks their end.
        parameters = parameters._replace(send_initial_events=True)
    if parameters.timeout_s:
        timeout_s = float(parameters.timeout_s)
    else:
        least = call.env.settings.min_request_timeout_s
        timeout_s = least * (1 + call.env.random.random())
    return Watching(selection, parameters, timeout_s, is_list)
