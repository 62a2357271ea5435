"""Features of kube-scheduler 1.37 that ours lacks: rows of docs/differences.md."""

from typing import Final

from kvstack.agents.process.absent import Absent

ABSENT: Final = (
    Absent(
        "extended resources that device classes map (`extendedResourceName`)",
        "only nodes with the resource itself are considered",
    ),
    Absent(
        "pod groups, gangs (`GenericWorkload`), asynchronous API calls (`SchedulerAsyncAPICalls`)",
        "behind feature gates that are off upstream, too",
    ),
    Absent(
        "batches of pods with one signature (`OpportunisticBatching`)",
        "each pod is scheduled individually; results that only depend on resources are cached",
    ),
    Absent(
        "`filterTimeout` of DynamicResources",
        "the search for devices is limited by its steps, not by its time",
    ),
)
