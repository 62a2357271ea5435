"""Update: PUT of a whole object, or of what a subresource may change of it."""

from kvstack.apiserver.apply.managed_fields import name_from_user_agent
from kvstack.apiserver.objects import metadata, status
from kvstack.apiserver.objects.text import json_text
from kvstack.apiserver.registry.keys import object_key
from kvstack.apiserver.registry.record import Obj
from kvstack.apiserver.verbs import options, updating
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.create import own_changed, own_new, read_body
from kvstack.apiserver.verbs.results import Made, Stored
from kvstack.apiserver.verbs.subresources import scale


async def update(call: Call) -> Stored | Made:
    """Put the object of the body in the place of the stored one; raises ApiError."""
    given = options.write_options(options.UPDATE, call.query)
    obj = read_body(call, given)
    meta = obj.setdefault("metadata", {})
    name = call.info.name
    metadata.check_url_name(meta, name)
    metadata.match_namespace(meta, call.namespace)
    if call.endpoint.row.is_namespaced and not call.namespace:
        raise status.bad_request("Namespace parameter required.")
    call.warnings += metadata.drop_duplicate_owners(meta)
    manager = given.manager or name_from_user_agent(call.user_agent)
    is_first = call.endpoint.converted_version is None  # else it may be made several times

    def changed(live: Obj | None) -> Obj:
        nonlocal is_first
        new: Obj = obj if is_first else json_text.copied(obj)
        is_first = False
        if live is None:
            own_new(call, new, manager)
        else:
            own_changed(call, live, new, manager)
        return new

    key = object_key(call.namespace, name)
    uid = meta.get("uid", "")
    change = updating.Update(name, key, changed, given, uid=uid)
    if call.endpoint.subresource == "scale":
        return await scale.change(call, change)
    return await updating.run(call, change)
