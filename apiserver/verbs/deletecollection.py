"""Deletecollection: every object of a list is deleted, one by one."""

from kvstack.apiserver.objects.status import ApiError
from kvstack.apiserver.verbs import options, reading
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.create import collection_of
from kvstack.apiserver.verbs.delete import delete_object, read_options
from kvstack.apiserver.verbs.results import Listing


async def delete_collection(call: Call) -> Listing:
    """Delete what is listed; return the list as it was. The first error ends it: ApiError."""
    given = options.list_options(call.query, is_list=False)
    selection = reading.selection_of(call, given)
    wanted = read_options(call, is_collection=True)
    reads = call.env.registry.reads
    page = await reads.list(collection_of(call), selection, reading.read_options(given))
    for record in page.records:
        try:
            await delete_object(call, record.name, wanted)
        except ApiError as error:
            if error.reason != "NotFound":
                raise
    return Listing(await call.endpoint.read_all(page))
