"""Features of kube-scheduler 1.37 that ours lacks: rows of docs/differences.md."""

from typing import Final

from kvstack.agents.process.absent import Absent

ABSENT: Final = (
    Absent(
        "extended resources that device classes map (`extendedResourceName`)",
        "only nodes that have the resource themselves are taken",
    ),
    Absent(
        "pod groups, gangs (`GenericWorkload`), calls aside (`SchedulerAsyncAPICalls`)",
        "behind feature gates that are off upstream, too",
    ),
    Absent(
        "batches of pods of one signature (`OpportunisticBatching`)",
        "each pod is decided by itself; what follows from amounts alone is kept between pods",
    ),
    Absent(
        "`filterTimeout` of DynamicResources",
        "a search for devices is cut by its steps, not by its time",
    ),
)
