"""Deletecollection: deletes every object of a list, one by one."""

from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.verbs import options
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.deletion.delete import delete_object, read_options
from kvstack.apiserver.verbs.reading import get_and_list
from kvstack.apiserver.verbs.results import Listing


async def delete_collection(call: Call) -> Listing:
    """Delete the listed objects; return the list. The first error ends it: ApiError."""
    given = options.list_options(call.query, is_list=False)
    selection = get_and_list.selection_of(call, given)
    wanted = await call.apart(read_options, call, is_collection=True)
    page = await get_and_list.page_of(call, selection, get_and_list.read_options(given))
    for record in page.records:
        try:
            await delete_object(call, record.name, wanted)
        except ApiError as error:
            if error.reason != "NotFound":
                raise
    return Listing(page)
