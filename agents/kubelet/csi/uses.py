"""The state of pods' volumes: one `Use` for each volume and pod."""

from enum import Enum
from typing import TYPE_CHECKING

from kvstack.agents.kubelet.csi.growing import Growth
from kvstack.agents.kubelet.csi.mounting import Group, StepError
from kvstack.agents.kubelet.csi.volume_data import Published, staged_of

if TYPE_CHECKING:
    import asyncio

    from kvstack.agents.kubelet.csi.volume import Volume
    from kvstack.agents.kubelet.volumes.volume_stats import Fill
    from kvstack.apimachinery.objects.json_object import Object


class PendingError(Exception):
    """A volume is not ready yet; the pod is synced again when it may be."""

    def __init__(self, after_s: float) -> None:
        """after_s: when to look again in any case."""
        super().__init__("a volume is being mounted")
        self.after_s = after_s


class State(Enum):
    """The state of a pod's volume."""

    NONE = "none"
    UNKNOWN = "unknown"
    """It may be mounted."""
    MOUNTED = "mounted"


class Use:
    """One volume of one pod."""

    def __init__(self, published: Published, state: State = State.NONE) -> None:
        self.published = published
        self.staged = staged_of(published)
        self.state = state
        self.volume: Volume | None = None
        """None: its pod was not synced since the node started."""
        self.pod: Object | None = None
        self.name = ""
        """The name of the volume in its pod."""
        self.claim: Object | None = None
        self.fill: Fill | None = None
        """The usage that its driver reported last."""
        self.group = Group(None, "Always")
        self.growth = Growth()
        self.is_leaving = False
        self.is_waiting = False
        """Whether its task waits for others: it is cancelled when the pod ends."""
        self.task: asyncio.Task[None] | None = None
        self.problem: StepError | None = None
        """The error of the last attempt, until it is reported."""
        self.retry_s = 0.0
        """Monotonic seconds; not before."""

    @property
    def key(self) -> tuple[str, str]:
        """Return what it is known by."""
        return self.published.uid, self.published.volume
