"""Admission as the verbs call it: one request per write, made only if a plugin handles it.

asked = admission_of(call, CREATE, options)      None: no plugin is interested
await mutate(asked, obj, old)                    plugins change the object
…                                                the object is completed and checked
await validate(asked, obj, old)                  plugins refuse it
"""

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.metadata import drop_duplicate_owners
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apiserver.apply.managed_fields import entries_after_admission
from kvstack.apiserver.policy.admission.request import AdmissionRequest, Versions
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.forms.versions import RequestVersions
from kvstack.apiserver.verbs.stages import ADMISSION, timed


def admission_of(
    call: Call,
    operation: str,
    options: Object,
    *,
    name: str = "",
    is_dry_run: bool = False,
    subresource: str | None = None,
    kind: Kind | None = None,
) -> AdmissionRequest | None:
    """Return an admission request; None: no plugin handles it.

    subresource: the endpoint's if None; kind: of the object, the hub's if None.
    """
    endpoint = call.endpoint
    below = endpoint.subresource if subresource is None else subresource
    if not call.env.admission.handles(operation, endpoint.resource, below):
        return None
    return AdmissionRequest(
        operation,
        call.user,
        endpoint.resource,
        kind or endpoint.hub_kind,
        version=endpoint.row.version,
        subresource=below,
        namespace=call.info.namespace,
        name=name or call.info.name,
        options=options,
        is_dry_run=is_dry_run,
        warnings=call.warnings,
        annotations=call.annotations,
        is_detailed=call.audit is not None and call.audit.wants_request,
        versions=_versions(call),
    )


def _versions(call: Call) -> Versions:
    """Return the versions of the resource; all requests of an endpoint share them."""
    versions = call.endpoint.versions
    if versions is None:
        versions = call.endpoint.versions = RequestVersions(call.endpoint, call.env.endpoints)
    return versions


async def mutate(
    call: Call, request: AdmissionRequest | None, obj: Object | None, old: Object | None
) -> None:
    """Let plugins change an object in place; raises ApiError."""
    if request is None:
        return
    request.object, request.old = obj, old
    metadata = None if obj is None else obj.get("metadata")
    entries = None if metadata is None else metadata.get("managedFields")
    waiting = call.env.admission.mutate(request)
    if waiting is not None:
        await timed(call.env.clock, call.spent, ADMISSION, waiting)
    if obj is None or metadata is None:
        return
    metadata = obj["metadata"]  # plugins replace it, since it may be shared
    if metadata.get("managedFields") != entries:
        kept, warning = entries_after_admission(entries, metadata.get("managedFields"))
        if warning:
            call.warnings.append(warning)
            if kept:
                metadata["managedFields"] = kept
            else:
                metadata.pop("managedFields", None)
    call.warnings += drop_duplicate_owners(metadata, is_after_admission=True)


async def validate(
    call: Call, request: AdmissionRequest | None, obj: Object | None, old: Object | None
) -> None:
    """Let plugins refuse an object in its final form; raises ApiError."""
    if request is None:
        return
    request.object, request.old = obj, old
    name = request.name
    if not name and obj is not None:
        # The name of a new object was generated meanwhile, and may be generated again.
        request.name = (obj.get("metadata") or {}).get("name", "")
    waiting = call.env.admission.validate(request)
    if waiting is not None:
        await timed(call.env.clock, call.spent, ADMISSION, waiting)
    request.name = name
