"""The subresource `binding` of pods, and the resource `bindings`: a pod gets its node.

The stored pod is changed without its hooks: no other write may set the node.
"""

from typing import Final

from kvstack.apimachinery.objects import metadata, status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.load import built_in_type
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apiserver.apply import update as managers
from kvstack.apiserver.apply.managed_fields import name_from_user_agent
from kvstack.apiserver.kinds.pods.subresources.binding import bind, check_binding
from kvstack.apiserver.policy.admission.request import CREATE
from kvstack.apiserver.registry.keys import object_key
from kvstack.apiserver.verbs import options
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.options import WriteOptions
from kvstack.apiserver.verbs.results import Computed
from kvstack.apiserver.verbs.writing import admission, plain_updates, storing
from kvstack.apiserver.verbs.writing.request_body import read_body

PODS: Final = GroupResource("", "pods")
_STATUS: Final = Kind("", "v1", "Status")


async def create(call: Call) -> Computed:
    """Bind a pod; raises ApiError."""
    write_options = options.write_options(options.CREATE, call.query)
    binding = await call.apart(read_body, call, write_options)
    meta = binding.setdefault("metadata", {})
    metadata.match_namespace(meta, call.info.namespace)
    name = call.info.name or meta.get("name", "")
    manager = write_options.manager or name_from_user_agent(call.user_agent)
    await call.apart(managers.on_create, call.endpoint.fields, binding, manager, call.now)
    admission_request = admission.admission_of(
        call,
        CREATE,
        write_options.to_object(options.CREATE),
        name=name,
        is_dry_run=write_options.dry_run,
        kind=call.endpoint.kind,
    )
    await admission.mutate(call, admission_request, binding, None)
    check_binding(binding, name)
    await admission.validate(call, admission_request, binding, None)
    await _bind(call, name, binding, write_options)
    return success()


def success() -> Computed:
    """Return the Status that answers a successful operation."""
    obj = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }
    return Computed(obj, _STATUS, built_in_type(_STATUS), 201)


async def _bind(call: Call, name: str, binding: Object, write_options: WriteOptions) -> None:
    meta = binding["metadata"]
    key = object_key(call.info.namespace, name)

    def changed(pod: Object) -> Object:
        for expected, member, label in (
            (meta.get("uid"), "uid", "UID"),
            (meta.get("resourceVersion"), "resourceVersion", "ResourceVersion"),
        ):
            if expected and expected != pod["metadata"].get(member, ""):
                text = (
                    f"{label} in precondition: {expected}, {label} in object meta:"
                    f" {pod['metadata'].get(member, '')}"
                )
                raise storing.precondition_failed(
                    call, PODS, key, text, is_dry_run=write_options.dry_run
                )
        bind(pod, binding, call.now)
        return pod

    found = await plain_updates.run(call, PODS, key, changed, is_dry_run=write_options.dry_run)
    if found is None:
        raise status.not_found(PODS, name)
