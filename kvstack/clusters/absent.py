"""Missing features of forks, packs, comparisons and plans; listed in docs/differences.md."""

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
    Absent(
        "`--applyset` and other flags of kubectl of a plan with `-f`",
        "`kvstack plan -- kubectl apply …`",
    ),
    Absent(
        "`kvstack plan -f` as `kubectl apply` without `--server-side`",
        "fields are merged as by the server; conflicts are overruled",
    ),
    Absent(
        "a clock of its own for `kvstack up`",
        "refused (409); forks, clusters of the pytest plugin and plans have them",
    ),
    Absent(
        "limits of requests by the machine's time in a fork whose clock goes fast",
        "they count by the fork's: at a rate of 1000 a request that takes 60 ms ends with 504",
    ),
    Absent(
        "what clients over the network will do (`/settled`)",
        "they are named, and `exact` is false",
    ),
    Absent(
        "connections to the Service `kubernetes` of a cluster of a farm",
        "nothing listens at its endpoint: programs use the kubeconfig",
    ),
)
