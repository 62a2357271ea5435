"""Runs the plugins of a profile at the extension points that write: PostFilter and PreBind.

made = await run_post_filters(profile, handle, unplaced)     what they say together
await run_pre_binds(profile, handle, pod, node, reserved)    BindingError: one of them failed
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from kvstack.agents.scheduler.cycle import Code
from kvstack.agents.scheduler.handle import Handle, PluginError, PostFilterResult
from kvstack.agents.scheduler.live.binder import BindingError
from kvstack.agents.scheduler.plugin import Unplaced
from kvstack.agents.scheduler.profile import Profile
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.component.logger import Logger

Reserved: TypeAlias = Mapping[str, Sequence[Any]]
"""By plugin: what it reserved."""


async def run_post_filters(
    profile: Profile, handle: Handle, unplaced: Unplaced, logger: Logger
) -> PostFilterResult:
    """Run post-filter plugins in turn until one succeeds; an error ends it, too.

    The result has no code where room was made. Texts of plugins that made none are joined; that of
    an error stands alone, and leaves the nomination as it was.
    """
    nominated: str | None = None
    texts: list[str] = []
    for plugin in profile.post_filters:
        try:
            result = await plugin.post_filter(handle, unplaced)
        except Exception as error:  # noqa: BLE001 - the pod is put back all the same
            is_expected = isinstance(error, PluginError)
            log = logger.info if is_expected else logger.error
            log(
                "a PostFilter plugin failed",
                plugin=plugin.name,
                pod=unplaced.cycle.pod.key,
                error=str(error) if is_expected else repr(error),
            )
            return PostFilterResult(Code.UNSCHEDULABLE, str(error))
        if result.code is not Code.UNSCHEDULABLE:
            return result
        if result.nominated is not None:
            nominated = result.nominated
        if result.text:
            texts.append(result.text)
    return PostFilterResult(Code.UNSCHEDULABLE, ", ".join(texts), nominated)


def pre_binds_of(profile: Profile, pod: PodInfo, node: str, reserved: Reserved) -> Sequence[str]:
    """Return the names of plugins that have something to do before a pod is bound."""
    return [
        each.name
        for each in profile.pre_binds
        if each.pre_bind_pre_flight(pod, node, reserved.get(each.name, ()))
    ]


async def run_pre_binds(
    profile: Profile,
    handle: Handle,
    pod: PodInfo,
    node: str,
    reserved: Reserved,
    names: Sequence[str],
) -> None:
    """Run pre-bind plugins; raises BindingError.

    names: those that have something to do.
    """
    for plugin in profile.pre_binds:
        if plugin.name not in names:
            continue
        try:
            await plugin.pre_bind(handle, pod, node, reserved.get(plugin.name, ()))
        except Exception as error:
            # Whatever keeps a plugin from its work keeps the pod from being bound.
            raise BindingError(f'running PreBind plugin "{plugin.name}": {error}') from error


async def unreserve(
    profile: Profile, handle: Handle, pod: PodInfo, reserved: Reserved, logger: Logger
) -> None:
    """Give back what a pod was to have: first here, then what plugins wrote."""
    for each in reversed(profile.reserves):
        each.unreserve(handle.cluster, reserved[each.name])
    for each in reversed(profile.pre_binds):
        try:
            await each.undo_pre_bind(handle, pod, reserved.get(each.name, ()))
        except Exception as error:  # noqa: BLE001 - as above
            # The pod is put back all the same; the creator of the object cleans it up.
            logger.error(
                "failed to undo a PreBind plugin", plugin=each.name, pod=pod.key, error=repr(error)
            )
