"""The subresource `eviction` of pods: a delete that disruption budgets may refuse.

    pod → may budgets be ignored? → budget gives one disruption → pod is marked → delete

The budget is written before the pod: its disruption is used up even if the delete then fails.
"""

import asyncio
from typing import Final

from kvstack.apimachinery.objects import metadata, status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.kinds.pods.subresources.eviction import (
    ATTEMPTS_MAX,
    ATTEMPTS_PAUSE,
    contended,
    covering_budgets,
    decide,
    delete_options,
    ignores_budgets,
    mark_evicted,
    needs_version,
    still_processed,
)
from kvstack.apiserver.policy.admission.request import CREATE
from kvstack.apiserver.registry.keys import object_key
from kvstack.apiserver.registry.reads import ListOptions
from kvstack.apiserver.registry.selection import Selection
from kvstack.apiserver.verbs import options
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.deletion.delete import delete_object
from kvstack.apiserver.verbs.options import DeleteOptions
from kvstack.apiserver.verbs.results import Computed
from kvstack.apiserver.verbs.subresources.binding import PODS, success
from kvstack.apiserver.verbs.writing import admission, plain_updates, storing
from kvstack.apiserver.verbs.writing.request_body import read_body

BUDGETS: Final = GroupResource("policy", "poddisruptionbudgets")


async def create(call: Call) -> Computed:
    """Evict a pod; raises ApiError."""
    write_options = options.write_options(options.CREATE, call.query)
    eviction = await call.apart(read_body, call, write_options)
    metadata.match_namespace(eviction.setdefault("metadata", {}), call.info.namespace)
    admission_request = admission.admission_of(
        call,
        CREATE,
        write_options.to_object(options.CREATE),
        is_dry_run=write_options.dry_run,
        kind=call.endpoint.kind,
    )
    await admission.mutate(call, admission_request, eviction, None)
    dry_run = ["All"] if write_options.dry_run else []
    body = delete_options(eviction, call.info.name, dry_run)
    eviction_options = options.delete_options({}, body)
    await admission.validate(call, admission_request, eviction, None)
    for _ in range(ATTEMPTS_MAX):
        pod = await _pod(call)
        if not ignores_budgets(pod):
            await _evict_by_budget(call, pod, eviction_options)
            return success()
        try:
            await _delete(call, pod, eviction_options, only_this=needs_version(pod))
        except ApiError as error:
            if (
                error.reason != "Conflict"
                or eviction_options.uid
                or eviction_options.resource_version is not None
            ):
                raise
            await asyncio.sleep(ATTEMPTS_PAUSE)
        else:
            return success()
    raise status.conflict(PODS, call.info.name)


async def _pod(call: Call) -> Object:
    key = object_key(call.namespace, call.info.name)
    record = await storing.read_live(call, call.collection, key)
    if record is None:
        raise status.not_found(PODS, call.info.name)
    return storing.parsed(record)


async def _evict_by_budget(call: Call, pod: Object, eviction_options: DeleteOptions) -> None:
    """Delete a pod if its budget allows it; raises ApiError."""
    decision = decide(pod, covering_budgets(pod, await _budgets(call)), call.now)
    if decision.budget is not None:
        await _write_budget(call, pod, decision.budget, is_dry_run=eviction_options.dry_run)
    try:
        await _delete(call, pod, eviction_options, only_this=decision.only_this_version)
    except ApiError as error:
        is_ours = decision.only_this_version and eviction_options.resource_version is None
        if error.reason == "Conflict" and is_ours:
            raise still_processed(decision.budget_name) from None
        raise


async def _budgets(call: Call) -> list[Object]:
    registry = call.env.registry
    selection = Selection(f"{call.namespace}/")
    page = await registry.reads.list(registry.collection(BUDGETS), selection, ListOptions())
    return [each.parse() for each in page.records]


async def _write_budget(call: Call, pod: Object, budget: Object, *, is_dry_run: bool) -> None:
    """Decrement a budget's allowed disruptions; retries with the current budget on conflicts."""
    if is_dry_run:
        return
    registry = call.env.registry
    name = budget["metadata"]["name"]
    key = object_key(call.namespace, name)
    for _ in range(ATTEMPTS_MAX):
        try:
            await registry.live.replace(BUDGETS, budget, "status")
        except ApiError as error:
            if error.reason != "Conflict":
                raise
        else:
            return
        await asyncio.sleep(ATTEMPTS_PAUSE)
        record = await storing.read_live(call, registry.collection(BUDGETS), key)
        if record is None:
            raise status.not_found(BUDGETS, name)
        again = decide(pod, [storing.parsed(record)], call.now).budget
        if again is None:
            return
        budget = again
    raise contended(name)


async def _delete(
    call: Call, pod: Object, eviction_options: DeleteOptions, *, only_this: bool
) -> None:
    """Mark a pod as evicted and delete it; only_this: only if it has not changed."""
    meta = pod["metadata"]
    if only_this and eviction_options.resource_version is None:
        eviction_options = eviction_options._replace(resource_version=meta["resourceVersion"])
    if not eviction_options.dry_run:
        eviction_options = await _mark(call, eviction_options)
    await delete_object(call, meta["name"], eviction_options, admits=False)


async def _mark(call: Call, eviction_options: DeleteOptions) -> DeleteOptions:
    """Set the condition that says why the pod is evicted; return the options of its delete."""
    key = object_key(call.namespace, call.info.name)
    kind = GroupResource("", "Pod")

    def changed(pod: Object) -> Object:
        meta = pod["metadata"]
        for requested, member, label, text in (
            (eviction_options.uid, "uid", "UID", "deleted and then recreated"),
            (eviction_options.resource_version, "resourceVersion", "ResourceVersion", "modified"),
        ):
            if requested and requested != meta.get(member, ""):
                raise status.conflict(
                    kind,
                    meta["name"],
                    f"the {label} in the precondition ({requested}) does not match the {label} in"
                    f" record ({meta.get(member, '')}). The object might have been {text}",
                )
        mark_evicted(pod, call.now)
        return pod

    record = await plain_updates.run(call, PODS, key, changed)
    if record is None:
        raise status.not_found(PODS, call.info.name)
    if eviction_options.resource_version is None:
        return eviction_options
    return eviction_options._replace(resource_version=str(record.revision))
