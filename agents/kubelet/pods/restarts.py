"""When a container is restarted: restart policies, and the back-off with its texts."""

from typing import Final

from kvstack.apimachinery.objects import durations
from kvstack.apimachinery.objects.json_object import Object

INITIAL_S: Final = 10.0
MAX_S: Final = 300.0
_FORGOTTEN_AFTER_S: Final = 2 * MAX_S


def policy_of(pod: Object, container: Object) -> str:
    """Return Always, OnFailure or Never: a container's own policy, or the pod's."""
    policy: str = container.get("restartPolicy") or pod["spec"].get("restartPolicy", "Always")
    return policy


def should_restart(pod: Object, container: Object, exit_code: int) -> bool:
    """Whether a container with this exit code is to be restarted."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    if _matching(container, exit_code):
        return True
    policy = policy_of(pod, container)
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def should_restart_init(pod: Object, container: Object, exit_code: int) -> bool:
    """Whether a failed init container is to be restarted; Always is OnFailure here."""
    return exit_code != 0 and should_restart(pod, container, exit_code)


def restarts_all(container: Object, exit_code: int) -> bool:
    """Whether all containers of the pod are restarted after this exit code."""
    return _matching(container, exit_code) == "RestartAllContainers"


def _matching(container: Object, exit_code: int) -> str:
    """Return the action of the first rule that an exit code matches; empty: none."""
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes") or {}
        is_in = exit_code in (codes.get("values") or ())
        if is_in == (codes.get("operator") == "In"):
            action: str = rule.get("action", "")
            return action
    return ""


def crash_loop_text(pod: Object, name: str) -> str:
    """Return what an event says of a container that waits to be started again."""
    return f"Back-off restarting failed container {name} in pod {_full_name(pod)}"


def crash_loop_message(pod: Object, name: str, wait_s: float) -> str:
    """Return what is said of a container that waits to be started again."""
    wait = durations.text(int(wait_s * 1e9))
    return f"back-off {wait} restarting failed container={name} pod={_full_name(pod)}"


def _full_name(pod: Object) -> str:
    meta = pod["metadata"]
    return f"{meta['name']}_{meta['namespace']}({meta['uid']})"


class BackOff:
    """The restart back-off of a pod's containers, by any hashable key."""

    def __init__(self, max_s: float = MAX_S) -> None:
        """max_s: the maximum delay."""
        self._max_s = max_s
        self._waits: dict[str, tuple[float, float]] = {}  # seconds, since when

    def rest_s(self, key: str, finished_s: float, now_s: float) -> float:
        """Return how long a container that ended has still to wait; 0: it may start."""
        known = self._waits.get(key)
        if known is None or finished_s - known[1] > _FORGOTTEN_AFTER_S:
            return 0.0
        return max(0.0, finished_s + known[0] - now_s)

    def wait_s(self, key: str) -> float:
        """Return the last delay."""
        return self._waits[key][0]

    def restarted(self, key: str, finished_s: float, now_s: float) -> None:
        """A container starts again: the next wait is longer."""
        known = self._waits.get(key)
        if known is None or finished_s - known[1] > _FORGOTTEN_AFTER_S:
            self._waits[key] = (min(INITIAL_S, self._max_s), now_s)
        else:
            self._waits[key] = (min(known[0] * 2, self._max_s), now_s)
