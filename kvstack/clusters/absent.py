"""What forks, packs, comparisons and plans do not do; in docs/differences.md."""

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
        "clocks of their own for forks of `kvstack fork`",
        "clusters of the pytest plugin have them, and plans",
    ),
    Absent(
        "connections to the Service `kubernetes` of a cluster of a farm",
        "nothing listens at its endpoint: programs use the kubeconfig",
    ),
)
