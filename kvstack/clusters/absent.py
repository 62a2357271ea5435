"""What may be expected of forks, packs and differences and is not so; in docs/differences.md."""

from typing import Final

from kvstack.agents.process.absent import Absent

ABSENT: Final = (
    Absent(
        "states of an API server in the past (`fork --at 10m`, `pack --since`), if not kvstack's",
        "refused; a revision that the server still has works, and so do etcd and a snapshot",
    ),
    Absent(
        "a watch on a fork of an API server, from a resourceVersion older than the fork's",
        "410, and the client lists again; forks of snapshots and data directories have the history",
    ),
    Absent(
        "a data directory of etcd that was killed: entries of its log that are not in the database",
        "not applied; their number is reported",
    ),
    Absent("kubeconfigs with `proxy-url`, `as`, `auth-provider`, `username`", "refused by name"),
    Absent("`logs`, `exec`, `attach`, `port-forward` of pods in a fork", "503: nothing runs there"),
    Absent(
        "volumes of claims in a fork",
        "those that are bound stay bound; new claims wait",
    ),
)
