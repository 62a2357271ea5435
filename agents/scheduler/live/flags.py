"""Every flag of kube-scheduler 1.37, and some of `kvstack scheduler`'s own, one row a line."""

from typing import Final

from kvstack.agents.process.flag_rows import (
    AUTHENTICATION,
    AUTHORIZATION,
    CLIENT,
    OBSERVATION,
    leader_election,
    page_flags,
)
from kvstack.component.flags.component_flags import SHORT
from kvstack.component.flags.flag_table import (
    DURATION,
    FLOAT,
    IGNORED,
    INT,
    LIVE,
    TEXT,
    FlagTable,
    flag_group,
)

TABLE: Final = FlagTable(
    (
        *flag_group(
            "Misc",
            ("config", TEXT, "", LIVE, "file with a KubeSchedulerConfiguration"),
            ("tie-break", TEXT, "roundRobin", LIVE, "choice between nodes with equal scores: roundRobin or heap (upstream's)"),
            ("write-config-to", TEXT, "", LIVE, "write the configuration with all defaults to this file and exit"),
        ),
        *CLIENT,
        *page_flags(10259),
        *AUTHENTICATION,
        *AUTHORIZATION,
        *leader_election('kube-scheduler'),
        *flag_group(
            "Deprecated",
            ("kube-api-content-type", TEXT, "application/vnd.kubernetes.protobuf", IGNORED, ""),
            ("kube-api-qps", FLOAT, "50", IGNORED, ""),
            ("kube-api-burst", INT, "100", IGNORED, ""),
            ("pod-max-in-unschedulable-pods-duration", DURATION, "5m0s", LIVE, "maximum time an unschedulable pod waits before it is tried again"),
        ),
        *OBSERVATION,
    ),
    SHORT,
)  # fmt: skip
