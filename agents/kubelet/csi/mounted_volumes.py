"""The CSI volumes of one node: the pods that use them, and operations under way.

    path = await mounted.have(pod, volume, group)    PendingError: not yet; StepError: it failed
    mounted.release(uid)                             whether none of the pod's is mounted
    mounted.in_use()                                 for the node's status

    nothing ─► record on disk ─► attached ─► staged ─► published ─► group, size ─► the pod runs
    nothing ◄── unstaged ◄── no other pod has it ◄── unpublished ◄── containers have ended

Each step runs in a task of its own, and waiting pods are synced again when it is done: a driver
that hangs delays only its own volumes. Steps of one volume run in turn. A step whose outcome is
unknown counts as done for unmounting, and as not done for mounting.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final, TypeAlias

from kvstack.agents.client.back_off import FailureBackOff
from kvstack.agents.kubelet.csi import volume as rules
from kvstack.agents.kubelet.csi.driver_error import DriverError
from kvstack.agents.kubelet.csi.drivers import Drivers
from kvstack.agents.kubelet.csi.growing import Growing, GrowthError
from kvstack.agents.kubelet.csi.mounting import (
    FAILED_MAP,
    FAILED_MOUNT,
    Group,
    Mounting,
    StepError,
)
from kvstack.agents.kubelet.csi.uses import PendingError, State, Use
from kvstack.agents.kubelet.csi.volume import EPHEMERAL, Volume
from kvstack.agents.kubelet.csi.volume_data import (
    Staged,
    VolumePaths,
    published_of,
)
from kvstack.apimachinery.objects.core.attachments import unique_name
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

Tell: TypeAlias = Callable[[Object, str, str], None]
"""Record a warning about a pod: reason and text."""

FAILED_UNMOUNT: Final = "FailedUnmount"
RESIZE_FAILED: Final = "VolumeResizeFailed"
ONE_POD_ONLY: Final = (
    "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
)
_BRIEFLY_S: Final = 0.2
_RETRY_S: Final = 0.5
_RETRY_MAX_S: Final = 122.0
_GROW_RETRY_S: Final = 30.0
_REGISTERED_S: Final = 5.0
"""The time after the node's start in which a running driver registers."""


class MountedVolumes:
    """The volumes of a node's pods; used on one loop."""

    def __init__(
        self,
        paths: VolumePaths,
        drivers: Drivers,
        mounting: Mounting,
        growing: Growing,
        clock: Clock,
        logger: Logger,
        *,
        tell: Tell,
        again: Callable[[str], None],
        report: Callable[[], None],
    ) -> None:
        """again: sync a pod, by its uid; report: the node's status has changed."""
        self._paths = paths
        self._drivers = drivers
        self._mounting = mounting
        self._growing = growing
        self._clock = clock
        self._logger = logger
        self._tell = tell
        self._again = again
        self._report = report
        self._uses: dict[tuple[str, str], Use] = {}
        self._staged: dict[Staged, bool] = {}
        """Volumes that may be staged, and whether they are."""
        self._attached: set[Staged] = set()
        """The volumes in the node's status."""
        self._locks: dict[Staged, asyncio.Lock] = {}
        self._clearing: set[Staged] = set()
        self._back_off = FailureBackOff(clock, _RETRY_S, _RETRY_MAX_S)
        self._came: dict[str, asyncio.Event] = {}
        """Set when a driver registers, by its name."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._opened_s = clock.monotonic_s()
        self._is_ending = False
        drivers.on_change = self._driver_changed

    # A node that starts anew.

    async def open(self) -> None:
        """Find what an earlier kubelet left."""
        self._opened_s = self._clock.monotonic_s()
        problems: list[str] = []
        published = await self._mounting.on_disk(lambda: list(self._paths.all_published(problems)))
        staged = await self._mounting.on_disk(lambda: list(self._paths.all_staged(problems)))
        for problem in problems:
            text = "what is known of a volume cannot be read; it is not unmounted"
            self._logger.error(text, problem=problem)
        for each in published:
            use = Use(each, State.UNKNOWN)
            self._uses[use.key] = use
            if each.lifecycle != EPHEMERAL:
                self._attached.add(use.staged)  # perhaps: it is known once the pod asks for it
        for one in staged:
            self._staged[one] = False
            self._attached.add(one)

    def uids(self) -> Collection[str]:
        """Return the pods that have volumes, or may have."""
        return {uid for uid, _ in self._uses}

    def clear_unused(self) -> None:
        """Unstage unused volumes; called once the pods of the node are known."""
        for staged in list(self._staged):
            self._clear(staged)

    async def give_back(self, within_s: float) -> bool:
        """Release all volumes of pods whose containers have ended with the node.

        Returns whether that was done within the time. Drivers are asked once: one that has ended
        with the node does not come back.
        """
        self._tell = lambda _pod, _reason, _text: None  # a node that ends records no events
        self._is_ending = True
        for uid in self.uids():
            self.release(uid)
        self.clear_unused()
        try:
            async with asyncio.timeout(within_s):
                while self._uses or self._staged:
                    pending = set(self._tasks)
                    if not pending:
                        break
                    await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            return False
        return not self._uses and not self._staged

    async def close(self) -> None:
        """Stop; volumes are left as they are."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._mounting.close()

    # Reports.

    def in_use(self) -> list[str]:
        """Return the unique names of what is, or may be, mounted and has to be attached."""
        return sorted({unique_name(each.driver, each.handle) for each in self._attached})

    def mounted(self) -> list[Use]:
        """Return the volumes that pods have."""
        return [use for use in self._uses.values() if use.state is State.MOUNTED]

    def of_pod(self, uid: str) -> list[Use]:
        """Return the volumes that a pod has, or may have."""
        return [use for use in self._uses.values() if use.published.uid == uid]

    # Having a volume.

    async def have(
        self, pod: Object, name: str, volume: Volume, group: Group, claim: Object | None = None
    ) -> str:
        """Return where a pod has a volume; PendingError, StepError.

        name: as the pod names it. claim: to which it is bound; None: it is inline.
        """
        published = published_of(pod["metadata"]["uid"], volume)
        use = self._uses.get((published.uid, published.volume))
        if use is None:
            use = self._uses[published.uid, published.volume] = Use(published)
        use.pod, use.name, use.volume, use.group, use.claim = pod, name, volume, group, claim
        if use.is_leaving:
            raise PendingError(_RETRY_S)
        if use.state is State.MOUNTED:
            self._grow(use)
            return self._path(use)
        if use.task is None and use.problem is None and self._rest_s(use) <= 0:
            task = self._start(use, self._mount(use, volume, pod))
            await asyncio.wait((task,), timeout=_BRIEFLY_S)
        return self._outcome(use)

    def _outcome(self, use: Use) -> str:
        """Return where a volume is; PendingError, StepError."""
        if use.state is State.MOUNTED and use.task is None:
            return self._path(use)
        if use.problem is not None:
            problem, use.problem = use.problem, None
            raise problem
        raise PendingError(max(self._rest_s(use), _RETRY_S) if use.task is None else _RETRY_MAX_S)

    def _rest_s(self, use: Use) -> float:
        return use.retry_s - self._clock.monotonic_s()

    def _path(self, use: Use) -> str:
        return str(self._paths.target(use.published))

    def _start(self, use: Use, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start work on a volume of a pod, which is synced again after that."""
        use.task = self._spawn(self._run(use, work), f"volume {use.published.volume}")
        return use.task

    async def _run(self, use: Use, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
            self._back_off.forget(use.key)
        except StepError as error:
            use.problem = error
            use.retry_s = self._clock.monotonic_s() + self._back_off.next_s(use.key)
        except Exception as error:  # noqa: BLE001 - recorded as an event and tried again
            text = f'MountVolume.SetUp failed for volume "{use.published.volume}" : {error!r}'
            use.problem = StepError(text)
            use.retry_s = self._clock.monotonic_s() + self._back_off.next_s(use.key)
        finally:
            use.task, use.is_waiting = None, False
            self._again(use.published.uid)

    async def _mount(self, use: Use, volume: Volume, pod: Object) -> None:
        """Mount a volume for a pod; StepError."""
        await self._await_driver(use, volume.driver)
        obj = await self._driver_object(volume)
        if problem := rules.lifecycle_problem(volume, obj):
            what = "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode"
            text = f'MountVolume.SetUp failed for volume "{volume.name}" : {what}: {problem}'
            raise StepError(text)
        context: dict[str, str] = {}
        if rules.is_attached_first(volume, obj):
            self._attached.add(use.staged)
            use.is_waiting = True
            context = dict(await self._mounting.wait_attached(volume))
        elif use.staged in self._attached:
            self._attached.discard(use.staged)  # an earlier kubelet's, taken to be attached
        use.is_waiting = True
        async with self._lock(use.staged):
            use.is_waiting = False
            if not use.is_leaving:
                await self._mount_in_turn(use, volume, pod, context)

    async def _await_driver(self, use: Use, driver: str) -> None:
        """Wait until drivers have registered that were running when the node started."""
        rest_s = self._opened_s + _REGISTERED_S - self._clock.monotonic_s()
        if self._drivers.find(driver) is None and rest_s > 0:
            use.is_waiting = True
            await self._pause(driver, rest_s)

    async def _driver_object(self, volume: Volume) -> Object | None:
        try:
            return await self._drivers.object(volume.driver)
        except DriverError as error:
            text = f'MountVolume.SetUp failed for volume "{volume.name}" : {error}'
            raise StepError(text) from error

    async def _mount_in_turn(
        self, use: Use, volume: Volume, pod: Object, context: dict[str, str]
    ) -> None:
        mounting, published, staged = self._mounting, use.published, use.staged
        self._check_alone(use, volume)
        abilities = await mounting.abilities(volume)
        if abilities.stages and volume.lifecycle != EPHEMERAL and not self._staged.get(staged):
            try:
                self._staged[staged] = False
                await mounting.stage(volume, staged, context, abilities, use.group)
                self._staged[staged] = True
            except StepError as error:
                if error.is_final:
                    del self._staged[staged]
                raise
        before, use.state = use.state, State.UNKNOWN
        is_again = before is not State.NONE
        try:
            await mounting.publish(
                pod, volume, published, context, abilities, use.group, is_again=is_again
            )
        except StepError as error:
            if error.is_final and not is_again:
                use.state = State.NONE
            raise
        if use.claim is not None and self._growing.is_due(use.growth, volume, use.claim):
            try:
                await self._growing.grow(use.growth, volume, published, pod, use.claim)
            except GrowthError as error:
                what = "MountVolume.Setup failed while expanding volume"
                raise StepError(f'{what} for volume "{volume.name}" : {error}') from error
        use.state = State.MOUNTED

    def _check_alone(self, use: Use, volume: Volume) -> None:
        """Refuse a ReadWriteOncePod volume that another pod uses; StepError."""
        if tuple(volume.access_modes) != (rules.ONE_POD,):
            return
        others = (each for each in self._uses.values() if each.staged == use.staged)
        if any(each is not use and each.state is not State.NONE for each in others):
            step = "MapVolume.SetUpDevice failed" if volume.is_block else "MountVolume.SetUp failed"
            text = f'{step} for volume "{volume.name}" : {ONE_POD_ONLY}'
            raise StepError(text, reason=FAILED_MAP if volume.is_block else FAILED_MOUNT)

    # What mounted volumes need.

    def _grow(self, use: Use) -> None:
        """Expand a volume in use, if its claim waits for that."""
        pod, volume, claim = use.pod, use.volume, use.claim
        if pod is None or volume is None or claim is None:
            return
        if use.task is not None or self._rest_s(use) > 0:
            return
        if self._growing.is_due(use.growth, volume, claim):
            self._start(use, self._grow_in_turn(use, volume, pod, claim))

    async def _grow_in_turn(self, use: Use, volume: Volume, pod: Object, claim: Object) -> None:
        async with self._lock(use.staged):
            if use.is_leaving:
                return
            try:
                await self._growing.grow(use.growth, volume, use.published, pod, claim)
            except GrowthError as error:
                what = "NodeExpandVolume.NodeExpandVolume failed"
                self._tell(pod, RESIZE_FAILED, f'{what} for volume "{volume.name}" : {error}')
                use.retry_s = self._clock.monotonic_s() + _GROW_RETRY_S

    async def measure(self, driver: str) -> None:
        """Ask a driver for the usage of its volumes, if it reports it; until it fails."""
        try:
            client = self._drivers.client(driver)
            if not (await client.abilities()).tells_stats:
                return
            for use in self.mounted():
                if use.published.driver == driver and use.state is State.MOUNTED:
                    use.fill = await client.fill(use.published.handle, self._path(use))
        except DriverError as error:
            text = "a driver does not report the usage of its volumes"
            self._logger.debug(text, driver=driver, error=str(error))

    def republish(self) -> None:
        """Republish the volumes of drivers with `requiresRepublish`."""
        for use in self.mounted():
            obj = self._drivers.known_object(use.published.driver)
            is_idle = use.task is None and not use.is_leaving
            if is_idle and rules.is_republished(obj) and not use.published.is_block:
                self._start(use, self._republish(use))

    async def _republish(self, use: Use) -> None:
        volume, pod = use.volume, use.pod
        assert volume is not None, "the volume of a mounted use exists"
        assert pod is not None, "by a pod"
        try:
            context: dict[str, str] = {}
            if rules.is_attached_first(volume, await self._driver_object(volume)):
                context = dict(await self._mounting.wait_attached(volume))
            async with self._lock(use.staged):
                if not use.is_leaving:
                    abilities = await self._mounting.abilities(volume)
                    published = use.published
                    await self._mounting.publish(
                        pod, volume, published, context, abilities, use.group, is_again=True
                    )
        except StepError as error:  # the pod has what it had
            self._tell(pod, error.reason, str(error))

    # Giving it back.

    def release(self, uid: str) -> bool:
        """Unmount the volumes of a pod whose containers have ended; return whether none is left."""
        uses = self.of_pod(uid)
        for use in uses:
            if not use.is_leaving:
                use.is_leaving = True
                name = f"unmounting {use.published.volume}"
                self._spawn(self._leave(use), name)
        return not uses

    async def _leave(self, use: Use) -> None:
        if (task := use.task) is not None:
            if use.is_waiting:
                task.cancel()
            await asyncio.wait((task,))
        while not await self._unmount(use):
            if self._is_ending:
                return
            await self._pause(use.published.driver, self._back_off.next_s(use.key))
        self._back_off.forget(use.key)
        del self._uses[use.key]
        self._again(use.published.uid)
        self._clear(use.staged)

    async def _unmount(self, use: Use) -> bool:
        """Unmount a volume of its pod; return whether that is done."""
        published = use.published
        try:
            async with self._lock(use.staged):
                if use.state is State.NONE:
                    await self._mounting.forget_published(published)
                else:
                    await self._mounting.unpublish(published)
        except (DriverError, OSError) as error:
            self._tell_of_left(use, str(error))
            return False
        except Exception as error:  # noqa: BLE001 - reported and tried again: its pod waits for it
            self._tell_of_left(use, repr(error))
            return False
        return True

    def _tell_of_left(self, use: Use, problem: str) -> None:
        published = use.published
        step = "UnmapVolume.UnmapPodDevice" if published.is_block else "UnmountVolume.TearDown"
        text = f'{step} failed for volume "{published.volume}" : {problem}'
        self._logger.warning("failed to unmount a volume", pod=published.uid, error=text)
        if use.pod is not None:
            self._tell(use.pod, FAILED_UNMOUNT, text)

    def _clear(self, staged: Staged) -> None:
        """Unstage a volume that no pod uses."""
        if staged not in self._clearing and not self._has_users(staged):
            self._clearing.add(staged)
            self._spawn(self._clear_in_turn(staged), f"unstaging {staged.handle}")

    def _has_users(self, staged: Staged) -> bool:
        return any(use.staged == staged for use in self._uses.values())

    async def _clear_in_turn(self, staged: Staged) -> None:
        try:
            while not await self._cleared(staged):
                if self._is_ending:
                    return
                await self._pause(staged.driver, self._back_off.next_s(staged))
            self._back_off.forget(staged)
        finally:
            self._clearing.discard(staged)
        if not self._has_users(staged):
            self._locks.pop(staged, None)

    async def _cleared(self, staged: Staged) -> bool:
        """Undo staging unless a pod has come that has the volume; return whether that is done."""
        try:
            async with self._lock(staged):
                if self._has_users(staged):
                    return True
                if staged in self._staged:
                    self._staged[staged] = False
                    await self._mounting.unstage(staged)
                    del self._staged[staged]
        except Exception as error:  # noqa: BLE001 - reported and tried again: it stays attached
            text = f"UnmountDevice failed for volume {staged.driver}^{staged.handle}: {error!r}"
            self._logger.warning("failed to unstage a volume", error=text)
            return False
        if staged in self._attached and not self._has_users(staged):
            self._attached.discard(staged)
            self._report()  # it may be detached now
        return True

    # Tasks.

    def _lock(self, staged: Staged) -> asyncio.Lock:
        return self._locks.setdefault(staged, asyncio.Lock())

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._logger.error("a task of a volume ended", task=task.get_name(), error=repr(error))

    async def _pause(self, driver: str, wait_s: float) -> None:
        """Wait, but no longer than until a driver registers."""
        came = self._came.setdefault(driver, asyncio.Event())
        try:
            async with asyncio.timeout(wait_s):
                await came.wait()
        except TimeoutError:
            return

    def _driver_changed(self, name: str) -> None:
        """Try again what waits for a driver."""
        if self._drivers.find(name) is None:
            return
        if (came := self._came.pop(name, None)) is not None:
            came.set()
        for use in self._uses.values():
            if use.published.driver == name and use.state is not State.MOUNTED:
                use.retry_s = 0.0
                self._again(use.published.uid)
