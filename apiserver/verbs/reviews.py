"""Creates that store nothing: reviews and tokens.

body → admission → the handler of the resource → 201
"""

from typing import Final

from kvstack.apimachinery.objects import metadata, status
from kvstack.apiserver.apply.managed_fields import name_from_user_agent
from kvstack.apiserver.kinds.core import token_requests
from kvstack.apiserver.policy.admission.request import CREATE
from kvstack.apiserver.verbs import options
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.interfaces import ReviewRequest
from kvstack.apiserver.verbs.results import Computed
from kvstack.apiserver.verbs.writing import admission
from kvstack.apiserver.verbs.writing.ownership import as_written, own_new
from kvstack.apiserver.verbs.writing.request_body import read_body

_DEFAULTS: Final = {"TokenRequest": token_requests.default}
"""Defaults of kinds without hooks of their own."""


async def create(call: Call) -> Computed:
    """Answer a review; raises ApiError."""
    endpoint = call.endpoint
    resource = endpoint.resource
    handler = call.env.reviews.get((resource.group, resource.resource, endpoint.subresource))
    if handler is None:
        raise status.generic(405)
    write_options = options.write_options(options.CREATE, call.query)
    obj = await call.apart(read_body, call, write_options)
    metadata.match_namespace(obj.setdefault("metadata", {}), call.namespace)
    default = _DEFAULTS.get(endpoint.kind.kind)
    if default is not None:
        default(obj)
    manager = write_options.manager or name_from_user_agent(call.user_agent)
    await call.apart(own_new, call, obj, manager)
    admission_request = admission.admission_of(
        call,
        CREATE,
        write_options.to_object(options.CREATE),
        is_dry_run=write_options.dry_run,
        kind=endpoint.kind,
    )
    await admission.mutate(call, admission_request, obj, None)
    answer = await handler(
        ReviewRequest(
            call.user,
            call.info.namespace,
            call.info.name,
            obj,
            lambda seen: admission.validate(call, admission_request, seen, None),
            call.warnings,
        )
    )
    kind = endpoint.kind
    answer = {"kind": kind.kind, "apiVersion": kind.api_version, **answer}
    return Computed(as_written(call, answer), endpoint.kind, call.object_type, 201)
