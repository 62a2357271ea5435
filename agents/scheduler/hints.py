"""Which waiting pods a change may help, by the hints of the plugins that refused them.

    may_help(plugin, event, pod, change)   whether a pod that the plugin refused is tried again

An event that no plugin waits for activates no pod.
"""

from typing import Final

from kvstack.agents.scheduler.events.changes import Change
from kvstack.agents.scheduler.plugins.table import PLUGINS
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo

EXTENDER: Final = "Extender"
"""Stands among the plugins that refused a pod where an extender did."""


def awaited_events() -> frozenset[str]:
    """Return the events that some plugin waits for."""
    return frozenset(event for plugin in PLUGINS.values() for event in plugin.hints)


def may_help(plugin: str, event: str, pod: PodInfo, change: Change) -> bool:
    """Whether a pod that a plugin refused should be retried after an event."""
    if plugin == EXTENDER:
        return True  # what it waits for is not known here
    hint = PLUGINS[plugin].hints.get(event)
    return hint is not None and hint(pod, change)
