"""Probes of containers: which there are, and when their results change.

    tally = Tally(probe)
    tally.add(is_good)     None: nothing changes yet; else the new result

Results are kept by container and kind; a container without a probe of a kind is as if it passed.
"""

from collections.abc import Iterator, MutableMapping
from typing import Final, TypeAlias

from kvstack.agents.kubelet.runtime.runtime import Container
from kvstack.apimachinery.objects.json_object import Object

Results: TypeAlias = MutableMapping[tuple[str, str], bool]
"""By id of the container and kind of the probe."""

STARTUP: Final = "startup"
LIVENESS: Final = "liveness"
READINESS: Final = "readiness"
KINDS: Final = {
    STARTUP: "startupProbe",
    LIVENESS: "livenessProbe",
    READINESS: "readinessProbe",
}


def probes_of(container: Object) -> Iterator[tuple[str, Object]]:
    """Give kinds and probes of a container of a spec."""
    for kind, field in KINDS.items():
        if probe := container.get(field):
            yield kind, probe


def is_started(container: Object, found: Container, results: Results) -> bool:
    """Whether a container runs, and has passed its startup probe."""
    if not found.is_running:
        return False
    return not container.get(KINDS[STARTUP]) or results.get((found.id, STARTUP), False)


def is_ready(container: Object, found: Container, results: Results) -> bool:
    """Whether a container has started, and passes its readiness probe."""
    if not is_started(container, found, results):
        return False
    return not container.get(KINDS[READINESS]) or results.get((found.id, READINESS), False)


def failed_probe(found: Container, results: Results) -> str:
    """Return the kind of the probe for whose failure a container is to end; empty: none."""
    for kind in (LIVENESS, STARTUP):
        if results.get((found.id, kind), True) is False:
            return kind
    return ""


class Tally:
    """Counts the results of one probe."""

    def __init__(self, probe: Object) -> None:
        """Start with no results."""
        self._needed = {
            True: probe.get("successThreshold", 1),
            False: probe.get("failureThreshold", 3),
        }
        self._last: bool | None = None
        self._count = 0

    def add(self, *, is_good: bool) -> bool | None:
        """Count a result; return it once it came often enough in a row."""
        self._count = self._count + 1 if self._last is is_good else 1
        self._last = is_good
        return is_good if self._count >= self._needed[is_good] else None
