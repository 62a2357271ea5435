"""The simulated usage of a hollow pod, by its annotations.

    hollow/cpu: 250m                         always
    hollow/cpu: 0s=10m,30s=800m,90s=50m      from then on, counted from the start of a container
    hollow/memory: 0s=64Mi,1m=512Mi

The containers of a pod that run share its amounts equally. Without an annotation a pod uses a
little (`IDLE`), since readers of metrics take nothing at all for not measured.

    load = load_of(annotations)              raises ValueError
    load.cpu.between(10.0, 40.0)             core seconds from the 10th to the 40th second
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kvstack.apimachinery.objects import durations
from kvstack.apimachinery.objects.durations import DurationError
from kvstack.apimachinery.objects.quantity import QuantityError, parse

CPU: Final = "hollow/cpu"
MEMORY: Final = "hollow/memory"
STEPS_MAX: Final = 100

_NS_PER_S: Final = 1e9


class Schedule(NamedTuple):
    """Amounts by the time since the start."""

    steps: Sequence[tuple[float, float]]
    """Seconds, ascending, the first 0; from then on an amount."""

    def at(self, age_s: float) -> float:
        """Return the amount at a time."""
        found = self.steps[0][1]
        for start_s, amount in self.steps:
            if start_s > age_s:
                break
            found = amount
        return found

    def between(self, begin_s: float, end_s: float) -> float:
        """Return the sum of the amount over a span of time, in amount times seconds."""
        total = 0.0
        starts = [start_s for start_s, _ in self.steps]
        for (start_s, amount), next_s in zip(self.steps, [*starts[1:], float("inf")], strict=True):
            total += amount * max(min(end_s, next_s) - max(begin_s, start_s), 0.0)
        return total


class Load(NamedTuple):
    """The CPU and memory that a pod uses."""

    cpu: Schedule
    """Cores."""
    memory: Schedule
    """Bytes."""


IDLE: Final = Load(Schedule(((0.0, 0.001),)), Schedule(((0.0, 8.0 * 2**20),)))


def load_of(annotations: Mapping[str, str]) -> Load:
    """Return what a pod of these annotations uses; ValueError names the one that is wrong."""
    cpu, memory = annotations.get(CPU), annotations.get(MEMORY)
    return Load(
        IDLE.cpu if cpu is None else _schedule(CPU, cpu),
        IDLE.memory if memory is None else _schedule(MEMORY, memory),
    )


def _schedule(name: str, text: str) -> Schedule:
    terms = text.split(",")
    if len(terms) > STEPS_MAX:
        raise ValueError(f"{name} has {len(terms)} steps, more than {STEPS_MAX}")
    if len(terms) == 1 and "=" not in text:
        return Schedule(((0.0, _amount(name, text)),))
    steps: list[tuple[float, float]] = []
    for term in terms:
        when, _, amount = term.partition("=")
        try:
            start_s = durations.parse(when.strip()) / _NS_PER_S
        except DurationError as error:
            raise ValueError(f"{name}: {term!r}: {error}") from None
        if start_s < 0 or (steps and start_s <= steps[-1][0]):
            raise ValueError(f"{name}: {term!r}: times must be from 0s on, and ascend")
        steps.append((start_s, _amount(name, amount)))
    first_s, first = steps[0]
    return Schedule(tuple(steps if first_s == 0 else [(0.0, first), *steps[1:]]))


def _amount(name: str, text: str) -> float:
    try:
        found = parse(text.strip()).as_float()
    except QuantityError as error:
        raise ValueError(f"{name}: {text!r}: {error}") from None
    if not 0 <= found <= 1e15:
        raise ValueError(f"{name}: {text!r}: an amount from 0 to 1e15")
    return found
