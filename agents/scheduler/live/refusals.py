"""Why pending pods have no node: one row per reason, with its nodes.

    refusals = Refusals(is_waiting)
    refusals.note(pod, diagnosis, cluster.names, now_s)      after each decision that found no node
    refusals.rows()                                          those that wait still, the oldest first

The condition of a pod counts reasons; here are the nodes behind the counts, and the plugin that
decided. Of the pods PODS_MAX are kept, of the nodes of a reason the first NODES_MAX are named.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from kvstack.agents.scheduler.cycle import Reason
from kvstack.agents.scheduler.diagnosis import Diagnosis
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.times import format_time

Row: TypeAlias = dict[str, Any]

PODS_MAX: Final = 200
NODES_MAX: Final = 20
REASONS_MAX: Final = 50
_EXTENDER: Final = "Extender"


class Refusals:
    """The last decision about each pod that waits."""

    def __init__(self, is_waiting: Callable[[str, str], bool]) -> None:
        """is_waiting: returns whether the pod of a key and uid has no node yet."""
        self._is_waiting = is_waiting
        self._kept: OrderedDict[str, Row] = OrderedDict()

    def note(
        self, pod: PodInfo, diagnosis: Diagnosis, names: Sequence[str], message: str, now_s: float
    ) -> None:
        """Keep a decision in the place of the pod's last one; names: of nodes, by slot."""
        namespace, _, name = pod.key.rpartition("/")
        first_s = self._kept[pod.uid]["since"] if pod.uid in self._kept else format_time(now_s)
        self._kept[pod.uid] = {
            "namespace": namespace,
            "name": name,
            "uid": pod.uid,
            "since": first_s,
            "time": format_time(now_s),
            "message": message,
            "nodeCount": diagnosis.node_count,
            "reasons": _reasons(diagnosis, names)[:REASONS_MAX],
        }
        self._kept.move_to_end(pod.uid)
        if len(self._kept) > PODS_MAX:
            self._kept.popitem(last=False)

    def forget(self, uid: str) -> None:
        """Forget a pod that has a node."""
        self._kept.pop(uid, None)

    def rows(self) -> list[Row]:
        """Return what is known of the pods that wait; the others are forgotten."""
        gone = [
            uid
            for uid, each in self._kept.items()
            if not self._is_waiting(f"{each['namespace']}/{each['name']}", uid)
        ]
        for uid in gone:
            del self._kept[uid]
        return sorted(self._kept.values(), key=lambda each: each["since"])


def _reasons(diagnosis: Diagnosis, names: Sequence[str]) -> list[Row]:
    """Return the reasons, that of the most nodes first."""
    if diagnosis.refusal is not None:
        text = diagnosis.refusal.text
        plugin = diagnosis.refused_by
        return [{"plugin": plugin, "text": text, "count": diagnosis.node_count, "nodes": []}]
    rows: list[Row] = []
    for each in diagnosis.refused:
        numbers = each.failures.numbers
        for number, reason in enumerate(each.failures.reasons, 1):
            slots = (each.at & (numbers == number)).nonzero()[0]
            if len(slots):
                rows.append(
                    _row(each.plugin, reason, slots[:NODES_MAX].tolist(), len(slots), names)
                )
    by_reason: dict[Reason, list[int]] = {}
    for slot, reason in diagnosis.others.items():
        by_reason.setdefault(reason, []).append(slot)
    for reason, slots in by_reason.items():
        rows.append(_row(_EXTENDER, reason, sorted(slots)[:NODES_MAX], len(slots), names))
    rows.sort(key=lambda each: -each["count"])
    return rows


def _row(
    plugin: str, reason: Reason, slots: Sequence[int], count: int, names: Sequence[str]
) -> Row:
    return {
        "plugin": plugin,
        "text": ", ".join(reason.texts),
        "count": count,
        "nodes": sorted(names[slot] for slot in slots),
    }
