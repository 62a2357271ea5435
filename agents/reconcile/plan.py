"""What controllers are made of: views to read, actions, and plans that yield them.

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        deployment = view.get(DEPLOYMENTS, key)
        if deployment is None:
            return None
        [made] = yield [Create(REPLICA_SETS, namespace, replica_set)]
        if made.error: …
        yield [Update(DEPLOYMENTS, {**deployment, "status": status}, "status")]
        return Again(after_s=5.0)

A plan is a generator: it yields actions that are to be done side by side, is sent their outcomes in
the same order, and goes on. It does nothing itself, so that a test or a simulation can carry it out
just as well. What it raises (an outcome's error, say) has its key tried again later; what it
returns says whether it is to run again although nothing changed.

Objects from views are shared and never changed. Actions hold objects of their own.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

from kvstack.agents.client.discovery import Discovery
from kvstack.agents.client.resource_type import ResourceType
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError

# Actions.


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object."""

    resource: ResourceType
    namespace: str
    obj: Object
    name: str = ""
    """The name of the object that has the subresource."""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Update:
    """Replace an object, if it still has the resourceVersion in it."""

    resource: ResourceType
    obj: Object
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Patch:
    """Patch an object."""

    resource: ResourceType
    namespace: str
    name: str
    body: Object | Sequence[Object]
    media_type: str
    subresource: str = ""
    field_manager: str = ""
    force: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object, if it is still the one with this uid and resourceVersion (where given)."""

    resource: ResourceType
    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    propagation: str = ""
    grace_s: int | None = None


@dataclass(frozen=True, slots=True)
class Get:
    """Read an object from the server, not from the view."""

    resource: ResourceType
    namespace: str
    name: str
    subresource: str = ""
    metadata_only: bool = False
    query: tuple[tuple[str, str], ...] = ()
    """The query of the request, for what is not an object of its own."""


@dataclass(frozen=True, slots=True)
class ListLive:
    """Read a list from the server, not from the view; the outcome's object has its `items`."""

    resource: ResourceType
    namespace: str = ""
    labels: str = ""
    metadata_only: bool = False


@dataclass(frozen=True, slots=True)
class DeleteCollection:
    """Delete all objects of a namespace that a selector selects."""

    resource: ResourceType
    namespace: str
    labels: str = ""
    propagation: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """Record an Event about an object; it always succeeds."""

    about: Object
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Discover:
    """Discover the served resources; the outcome's object has the `Discovery` as `found`."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Watch the metadata of these resources from now on, and no others besides `watches`.

    Done once what was not followed before is known, or half a minute has passed.
    """

    resources: frozenset[ResourceType]
    keys: "FollowedKeysOf"


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Enqueue other keys; it always succeeds."""

    keys: "Sequence[str | Later]"


@dataclass(frozen=True, slots=True)
class InThread:
    """Do something on this machine that waits for its disk; what may be done twice."""

    work: Callable[[], None]


Action: TypeAlias = (
    Create
    | Update
    | Patch
    | Delete
    | Get
    | ListLive
    | DeleteCollection
    | Record
    | Discover
    | Follow
    | Enqueue
    | InThread
)


@dataclass(frozen=True, slots=True)
class SlowStart:
    """Actions done one, two, four … at once, until some of them fail: the rest is skipped."""

    actions: Sequence[Action]


Step: TypeAlias = Sequence[Action] | SlowStart


class ForeseenError(Exception):
    """An error that a controller foresees; the key is tried again later."""


class Outcome(NamedTuple):
    """The result of an action."""

    action: Action
    obj: Object | None = None
    """The object in the server's answer."""
    error: Exception | None = None
    """ApiError, or UnreachableError: whether it was done is not known; OSError of this machine."""
    is_skipped: bool = False

    @property
    def code(self) -> int:
        """The code of a refusal; 0: it was none."""
        return self.error.code if isinstance(self.error, ApiError) else 0

    @property
    def is_not_found(self) -> bool:
        """Whether the object does not exist: code 404."""
        return isinstance(self.error, ApiError) and self.error.is_not_found

    @property
    def is_conflict(self) -> bool:
        """Whether another write was first: code 409."""
        return isinstance(self.error, ApiError) and self.error.is_conflict

    @property
    def is_namespace_terminating(self) -> bool:
        """Whether creation was refused because the namespace is being deleted."""
        if not isinstance(self.error, ApiError):
            return False
        causes = (self.error.status.get("details") or {}).get("causes") or ()
        return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)

    def result(self) -> Object:
        """Return what the server answered, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.obj if self.obj is not None else {}


class Again(NamedTuple):
    """Run once more, even without a change."""

    after_s: float
    is_routine: bool = False
    """A look around, which comes whatever happens."""
    rests_s: float = 0.0
    """How long such a look does and writes nothing, unless an object changes that it can see."""


class Retry(NamedTuple):
    """Run once more with the delay of a failure, which this is not: something is missing yet."""

    why: str


Plan: TypeAlias = Generator[Step, list[Outcome], Again | Retry | None]


def do(action: Action) -> Generator[Step, list[Outcome], Object]:
    """Do one action and return what the server answered; raises its error. For `yield from`."""
    [outcome] = yield [action]
    return outcome.result()


def do_all(actions: Sequence[Action]) -> Generator[Step, list[Outcome], list[Object]]:
    """Do actions side by side; raises the first error, once all have ended. For `yield from`."""
    outcomes = yield actions
    return [outcome.result() for outcome in outcomes]


def discover() -> Generator[Step, list[Outcome], Discovery]:
    """Return what the server serves; raises the error. For `yield from`."""
    answered = yield from do(Discover())
    found: Discovery = answered["found"]
    return found


# Controllers.


class View(Protocol):
    """The controller's view of the cluster."""

    def get(self, resource: ResourceType, key: str) -> Object | None:
        """Return an object by `namespace/name`, or name."""
        ...

    def list(self, resource: ResourceType, namespace: str = "") -> Sequence[Object]:
        """Return the objects of a namespace, or (empty) all."""
        ...

    def by_index(self, resource: ResourceType, index: str, value: str) -> Sequence[Object]:
        """Return the objects that an index has under a value."""
        ...


class Later(NamedTuple):
    """A key to be worked on after a while."""

    key: str
    after_s: float


KeysOf: TypeAlias = Callable[[Object | None, Object | None, View], Iterable[str | Later]]
"""Maps a change to keys: from the old state, the new state, and the view after it."""


FollowedKeysOf: TypeAlias = Callable[
    [ResourceType, Object | None, Object | None, View], Iterable[str | Later]
]
"""Maps a change of a followed resource to keys."""


@dataclass(frozen=True, slots=True)
class Watch:
    """A resource whose changes concern a controller."""

    resource: ResourceType
    keys: KeysOf
    metadata_only: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """An index that a controller looks into."""

    resource: ResourceType
    name: str
    values_of: Callable[[Object], Iterable[str]]


@dataclass(frozen=True, slots=True)
class BackOff:
    """The delays of keys whose plans failed."""

    base_s: float = 0.005
    max_s: float = 1000.0
    has_bucket: bool = True
    """Whether all keys together are limited, too: 10 a second after 100 at once."""
    retries_max: int | None = None
    """The number of failures in a row after which a key waits for its next change."""

    @property
    def is_period(self) -> bool:
        """Whether keys are repeated at a fixed interval, whatever the result."""
        return self.base_s == self.max_s


DEFAULT_BACK_OFF: Final = BackOff()


@dataclass(frozen=True, slots=True)
class Identity:
    """Under which names a controller appears."""

    name: str
    """The name of the controller, as in `--controllers`."""
    service_account: str
    """The account in kube-system that it uses; empty: the manager's own user."""
    event_component: str


class Controller(Protocol):
    """Keeps the cluster as its objects say."""

    @property
    def identity(self) -> Identity:
        """Under which names it appears."""
        ...

    @property
    def watches(self) -> Sequence[Watch]:
        """Resources whose changes trigger it; they are in its view."""
        ...

    @property
    def reads(self) -> Sequence[ResourceType]:
        """Other resources in its view."""
        ...

    @property
    def indexes(self) -> Sequence[Index]:
        """The indexes that it uses."""
        ...

    @property
    def workers(self) -> int:
        """The number of workers."""
        ...

    @property
    def back_off(self) -> BackOff:
        """The delays of failed keys."""
        ...

    def initial_keys(self) -> Iterable[str | Later]:
        """Return the initial keys, besides those of existing objects."""
        ...

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for a key; now_s: seconds since 1970."""
        ...


class BaseController:
    """Defaults of the members of a `Controller`."""

    reads: Sequence[ResourceType] = ()
    indexes: Sequence[Index] = ()
    workers: int = 5
    back_off: BackOff = DEFAULT_BACK_OFF

    def initial_keys(self) -> Iterable[str | Later]:
        """Return the initial keys, from the existing objects."""
        return ()
