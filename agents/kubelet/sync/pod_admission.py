"""Admission of pods by a node: `pods/admission` decides, this does the requests.

    reason, message = await admission.refusal(pod)      None: the node takes it

Labels of the node are read again before they refuse a pod. A critical pod preempts others if
resources are short.
"""

from typing import Final

from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.kubelet.eviction.eviction_manager import HARD_GRACE_S
from kvstack.agents.kubelet.node_pods import NodePods
from kvstack.agents.kubelet.pods.admission import (
    NODE_AFFINITY,
    OUT_OF,
    Refusal,
    refusal,
    resize_refusal,
    victims,
)
from kvstack.agents.kubelet.pods.resizes import with_resources
from kvstack.agents.kubelet.pods.sandboxes import is_critical
from kvstack.apimachinery.objects.json_object import Object

_PREEMPTED: Final = "Preempted in order to admit critical pod"


class PodAdmission:
    """Admits the pods of one kubelet."""

    def __init__(self, kubelet: NodePods, recorder: EventRecorder) -> None:
        """Look at the kubelet's pods and its node when asked."""
        self._kubelet = kubelet
        self._recorder = recorder

    async def refusal(self, pod: Object) -> Refusal | None:
        """Return why the node does not take a pod; ApiError, UnreachableError."""
        refused = self._refusal(pod)
        if refused is not None and refused[0] == NODE_AFFINITY:
            await self._kubelet.node.read()  # its labels may be newer than what is known of them
            refused = self._refusal(pod)
        if refused is not None and refused[0].startswith(OUT_OF) and is_critical(pod):
            refused = self._make_room(pod, refused)
        return refused

    def resize_refusal(self, pod: Object) -> Refusal | None:
        """Return why a pod that was admitted cannot have what it asks for now; None: it can."""
        uid = pod["metadata"]["uid"]
        others = [each for each in self._active() if each["metadata"]["uid"] != uid]
        return resize_refusal(pod, self._kubelet.node.object, others)

    def _refusal(self, pod: Object) -> Refusal | None:
        if self._kubelet.is_shutting_down:
            return ("NodeShutdown", "Pod was rejected as the node is shutting down.")
        options = self._kubelet.options
        return refusal(
            pod,
            self._kubelet.node.object,
            self._active(),
            self._kubelet.runtime.unsupported,
            ignores_limits=options.ignores_limits,
            allowed_sysctls=options.allowed_sysctls,
        )

    def _active(self) -> list[Object]:
        """Return the pods that take of the node's resources, or are about to end."""
        known = self._kubelet.record_of
        return [
            with_resources(pod, record.memory.resize.allocated)
            for pod in self._kubelet.admitted()
            if (record := known(pod["metadata"]["uid"])) is not None
            and not record.memory.has_failed
        ]

    def _make_room(self, pod: Object, refused: Refusal) -> Refusal | None:
        """End pods in favour of a critical one; return why it is refused nevertheless."""
        end = self._kubelet.end
        found = victims(pod, self._kubelet.node.object, self._active())
        if found is None:
            return refused
        for each in found:
            self._recorder.record(each, "Warning", "Preempting", _PREEMPTED)
            end(each["metadata"]["uid"], "Preempting", _PREEMPTED, HARD_GRACE_S, disrupts=True)
        return self._refusal(pod)
