"""Who changed what, and when: an audit back end that keeps what a plan needs.

    writes = Writes(time.now)
    writes.done        [Write(25.0, "deployment-controller", "create", …), …]
    writes.refused     those that were not done, and why

`you` are whoever makes the change that is planned.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.core.pod_status import is_ready
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object

YOU: Final = "you"
PLAN_USER: Final = "kvstack-plan"
WRITES_MAX: Final = 500_000
"""What comes later is not kept; the objects themselves are compared all the same."""
_SERVICE_ACCOUNTS: Final = "system:serviceaccount:"
_OF_SYSTEM: Final = f"{_SERVICE_ACCOUNTS}kube-system:"
_NAMES: Final = {
    PLAN_USER: YOU,
    "kubernetes-super-admin": YOU,
    "system:kube-scheduler": "scheduler",
    "system:kube-controller-manager": "controller-manager",
    "kvstack:hollow-nodes": "kubelet",
    f"{_OF_SYSTEM}generic-garbage-collector": "garbage-collector",
}
_NAMESPACES: Final = "namespaces"
"""Their requests are in themselves."""
_PODS: Final = GroupResource("", "pods")


class Write(NamedTuple):
    """A request that was to change something."""

    at_s: float
    """Since the change began."""
    who: str
    verb: str
    resource: GroupResource
    subresource: str
    namespace: str
    name: str
    """Empty: of all objects, or it was refused before it had one."""
    code: int
    message: str = ""

    @property
    def path(self) -> str:
        """`namespace/name`, or the name."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class PodMoment(NamedTuple):
    """Whether a pod was ready at a moment."""

    at_s: float
    uid: str
    owner: str
    """The uid of its controller; empty: it has none."""
    is_ready: bool


class Writes:
    """Keeps writes; a `Sink` of the audit."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """now_s: the cluster's time."""
        self._now_s: Final = now_s
        self._began_s = now_s()
        self.done: Final[list[Write]] = []
        self.refused: Final[list[Write]] = []
        self.pods: Final[list[PodMoment]] = []

    def begin(self) -> None:
        """Forget what was written before the change begins."""
        self._began_s = self._now_s()
        for kept in (self.done, self.refused, self.pods):
            kept.clear()

    @property
    def passed_s(self) -> float:
        """How much time has gone by since the change began."""
        return self._now_s() - self._began_s

    def process(self, events: Sequence[Object]) -> bool:
        """Take events of the audit."""
        for event in events:
            self._take(event)
        return True

    async def stop(self) -> None:
        """Nothing is held."""

    def _take(self, event: Object) -> None:
        reference = event.get("objectRef")
        if reference is None or len(self.done) + len(self.refused) >= WRITES_MAX:
            return
        status = event.get("responseStatus") or {}
        answered = event.get("responseObject")
        meta = answered.get("metadata") if isinstance(answered, dict) else None
        code = int(status.get("code") or 200)
        is_done = code < 400
        name = reference.get("name") or ((meta or {}).get("name") if is_done else "") or ""
        write = Write(
            self.passed_s,
            who(event["user"].get("username", "")),
            event["verb"],
            GroupResource(reference.get("apiGroup", ""), reference["resource"]),
            reference.get("subresource", ""),
            "" if reference["resource"] == _NAMESPACES else reference.get("namespace", ""),
            name,
            code,
            "" if is_done else str(status.get("message", "")),
        )
        (self.done if is_done else self.refused).append(write)
        if is_done and write.resource == _PODS and isinstance(answered, dict):
            moment = _moment(write, answered)
            if moment is not None:
                self.pods.append(moment)


def who(user: str) -> str:
    """Return how a plan calls a user."""
    if user in _NAMES:
        return _NAMES[user]
    if user.startswith(_OF_SYSTEM):
        return user.removeprefix(_OF_SYSTEM)
    if user.startswith(_SERVICE_ACCOUNTS):
        namespace, _, name = user.removeprefix(_SERVICE_ACCOUNTS).partition(":")
        return f"{namespace}/{name}"
    return user


def _moment(write: Write, answered: Object) -> PodMoment | None:
    """Return what a write says of a pod; None: nothing."""
    meta = answered.get("metadata") or {}
    if answered.get("kind") != "Pod" or not meta.get("uid"):
        return None
    is_gone = write.verb == "delete" or bool(meta.get("deletionTimestamp"))
    return PodMoment(
        write.at_s, meta["uid"], controller_uid(answered), is_ready(answered) and not is_gone
    )


def controller_uid(obj: Object) -> str:
    """Return the uid of the controller of an object, or of its first owner; empty: none."""
    owners = (obj.get("metadata") or {}).get("ownerReferences") or []
    chosen = next((each for each in owners if each.get("controller")), owners[0] if owners else {})
    uid = chosen.get("uid", "")
    return uid if isinstance(uid, str) else ""
