"""Creates that store nothing of their own: reviews, tokens.

body → admission → the act that answers it → 201
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from kvstack.apiserver.apply.managed_fields import name_from_user_agent
from kvstack.apiserver.kinds.core import token_requests
from kvstack.apiserver.objects import metadata, status
from kvstack.apiserver.policy.admission.request import CREATE
from kvstack.apiserver.registry.record import Obj
from kvstack.apiserver.verbs import admitting, options
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.create import as_written, own_new, read_body, type_of
from kvstack.apiserver.verbs.results import Made

Validate: TypeAlias = Callable[[Obj], Awaitable[None] | None]
Act: TypeAlias = Callable[[Call, Obj, Validate], Awaitable[Obj]]
"""(call, the decoded body, validating admission of an object): return the answer; raises ApiError.
It may change the body, and add to the warnings of the call."""


_DEFAULTS: Final = {"TokenRequest": token_requests.default}
"""What is filled in in bodies of kinds that have no hooks of their own."""


async def act(call: Call) -> Made:
    """Answer the object of the body; raises ApiError."""
    endpoint = call.endpoint
    resource = endpoint.resource
    found = call.env.acts.get((resource.group, resource.resource, endpoint.subresource))
    if found is None:
        raise status.generic(405)
    given = options.write_options(options.CREATE, call.query)
    obj = read_body(call, given)
    metadata.match_namespace(obj.setdefault("metadata", {}), call.namespace)
    default = _DEFAULTS.get(endpoint.kind.kind)
    if default is not None:
        default(obj)
    manager = given.manager or name_from_user_agent(call.user_agent)
    own_new(call, obj, manager)
    asked = admitting.admission_of(
        call,
        CREATE,
        given.to_object(options.CREATE),
        is_dry_run=given.dry_run,
        kind=endpoint.kind,
    )
    await admitting.mutate(call, asked, obj, None)
    answer = await found(call, obj, lambda seen: admitting.validate(call, asked, seen, None))
    kind = endpoint.kind
    answer = {"kind": kind.kind, "apiVersion": kind.api_version, **answer}
    return Made(as_written(call, answer), endpoint.kind, type_of(call), 201)
