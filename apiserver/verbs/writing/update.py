"""Update: PUT of a whole object, or of what a subresource may change of it."""

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.apply.managed_fields import name_from_user_agent
from kvstack.apiserver.registry.keys import object_key
from kvstack.apiserver.verbs import options
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.options import WriteOptions
from kvstack.apiserver.verbs.results import Computed, Stored
from kvstack.apiserver.verbs.subresources import scale
from kvstack.apiserver.verbs.writing import update_loop
from kvstack.apiserver.verbs.writing.ownership import own_changed, own_new
from kvstack.apiserver.verbs.writing.request_body import read_changed


async def update(call: Call) -> Stored | Computed:
    """Replace the stored object by that of the body; raises ApiError."""
    write_options = options.write_options(options.UPDATE, call.query)
    obj = await call.apart(read_changed, call, write_options)
    manager = write_options.manager or name_from_user_agent(call.user_agent)
    name, uid = call.info.name, obj["metadata"].get("uid", "")
    is_first = True

    def changed(live: Object | None) -> Object:
        nonlocal is_first
        # An attempt changes the object: its resourceVersion, and what hooks and plugins fill in.
        new = obj if is_first else _read_again(call, write_options)
        is_first = False
        if live is None:
            own_new(call, new, manager)
        else:
            own_changed(call, live, new, manager)
        return new

    key = object_key(call.namespace, name)
    change = update_loop.Update(name, key, changed, write_options, uid=uid)
    if call.endpoint.subresource == "scale":
        return await scale.change(call, change)
    return await update_loop.run(call, change)


def _read_again(call: Call, given: WriteOptions) -> Object:
    """Return the object of the body once more; its warnings are recorded already."""
    count = len(call.warnings)
    obj = read_changed(call, given)
    del call.warnings[count:]
    return obj
