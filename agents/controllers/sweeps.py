"""Controllers that check all objects of their kinds periodically, and ignore changes in between.

    class Cleaner(Sweep):
        period_s = 300.0
        def __init__(self): super().__init__(PODS)
        def sweep(self, view, now_s): …          a plan for all of them

A sweep that fails is made again as any key is; the period counts from the end of one that did not.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from typing import ClassVar, Final

from typing_extensions import override

from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.controllers.ownership import no_keys
from kvstack.agents.reconcile.plan import (
    Again,
    BaseController,
    Outcome,
    Plan,
    Step,
    View,
    Watch,
)

_ALL: Final = "all"


class Sweep(BaseController, ABC):
    """A controller with one key, which stands for everything."""

    workers = 1
    period_s: ClassVar[float]

    def __init__(self, *resources: ResourceType) -> None:
        """resources: what is looked at; changes of it do not matter."""
        self.watches: Sequence[Watch] = tuple(Watch(each, no_keys) for each in resources)

    @override
    def initial_keys(self) -> Iterable[str]:
        """Start with the sweep."""
        return (_ALL,)

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for everything."""
        yield from self.sweep(view, now_s)
        return Again(self.period_s, is_routine=True, rests_s=self.rests_s())

    def rests_s(self) -> float:
        """Return how long the sweep that was just made would do nothing, unless objects change."""
        return 0.0

    @abstractmethod
    def sweep(self, view: View, now_s: float) -> Generator[Step, list[Outcome], None]:
        """Yield what is to be done now."""
        ...
