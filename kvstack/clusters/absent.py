"""What forks, packs and comparisons do not do; in docs/differences.md."""

from typing import Final

from kvstack.agents.process.absent import Absent

ABSENT: Final = (
    Absent(
        "past states of an API server that is not kvstack's (`fork --at 10m`, `pack --since`)",
        "refused; `--at REVISION` works while the server has it, and so do etcd and snapshots",
    ),
    Absent(
        "a watch on a fork of an API server from a resourceVersion before the fork",
        "410, and the client lists again; forks of snapshots and data directories have the history",
    ),
    Absent(
        "log entries of a killed etcd that are not yet in its database",
        "not applied; their number is reported",
    ),
    Absent("kubeconfigs with `proxy-url`, `as`, `auth-provider`, `username`", "refused by name"),
    Absent("`logs`, `exec`, `attach`, `port-forward` of pods in a fork", "503: nothing runs there"),
    Absent(
        "volumes of claims in a fork",
        "those that are bound stay bound; new claims wait",
    ),
)
