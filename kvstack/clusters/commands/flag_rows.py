"""Flags that several commands share."""

from typing import Final

from kvstack.component.flags.flag_table import (
    BOOL,
    DURATION,
    INT,
    LIST,
    LIVE,
    TEXT,
    Flag,
    flag_group,
)

SOURCE: Final = flag_group(
    "Source",
    ("context", TEXT, "", LIVE, "context of the kubeconfig; default: the current one"),
    ("kubeconfig", TEXT, "", LIVE, "file with contexts; default: KUBECONFIG, or ~/.kube/config"),
    (
        "at",
        TEXT,
        "",
        LIVE,
        "read the state at a revision, a time (RFC 3339) or so long ago (10m); times need a server of kvstack",
    ),
    ("namespace", LIST, "", LIVE, "only these namespaces, and cluster-scoped objects"),
    ("events", BOOL, "true", LIVE, "include Events"),
    ("max-objects", INT, "200000", LIVE, "fail if there are more objects"),
    (
        "encryption-provider-config",
        TEXT,
        "",
        LIVE,
        "EncryptionConfiguration with the keys of a store's values",
    ),
)
ETCD: Final = flag_group(
    "etcd",
    ("etcd-cafile", TEXT, "", LIVE, "CA certificates that verify the certificate of etcd"),
    ("etcd-certfile", TEXT, "", LIVE, "client certificate for etcd"),
    ("etcd-keyfile", TEXT, "", LIVE, "key of the client certificate"),
    (
        "etcd-user",
        TEXT,
        "",
        LIVE,
        "name:password of an etcd user; default: the variable ETCDCTL_USER, which other users of the machine do not see",
    ),
    ("etcd-prefix", TEXT, "/registry", LIVE, "prefix of the keys of objects"),
)
FORK: Final = flag_group(
    "Fork",
    (
        "name",
        TEXT,
        "",
        LIVE,
        "name of the fork and its context; default: the source's name and a number",
    ),
    (
        "nodes",
        TEXT,
        "",
        LIVE,
        "number of hollow nodes that replace the source's nodes; none: no nodes run; default: the source's nodes become hollow nodes",
    ),
    (
        "without",
        LIST,
        "",
        LIVE,
        "parts of `kvstack up` that do not run: controllers, scheduler, nodes, metrics, dashboard",
    ),
    (
        "allow-outbound",
        BOOL,
        "false",
        LIVE,
        "let the fork call webhooks, aggregated API servers and nodes",
    ),
    (
        "clock",
        TEXT,
        "real",
        LIVE,
        "real: the machine's; virtual: a clock of its own, for kvstack clock; paused: such a clock, standing",
    ),
    ("ttl", DURATION, "0s", LIVE, "lifetime of the fork; 0: until it is deleted"),
    ("detach", BOOL, "true", LIVE, "run in the background; false: the fork ends with this command"),
    ("add-context", BOOL, "true", LIVE, "add a context to the kubeconfig, until the fork ends"),
)
OPEN: Final = flag_group(
    "Open",
    ("live", BOOL, "false", LIVE, "run controllers, scheduler and nodes, and allow writes"),
)
SERVER: Final = flag_group(
    "Server",
    ("fork", TEXT, "", LIVE, "name of a fork"),
    ("context", TEXT, "", LIVE, "context of the kubeconfig; default: the current one"),
    ("kubeconfig", TEXT, "", LIVE, "file with contexts; default: KUBECONFIG, or ~/.kube/config"),
)
WAIT: Final = flag_group(
    "Wait",
    ("settled", BOOL, "false", LIVE, "wait until the cluster is settled"),
    ("timeout", DURATION, "1m", LIVE, "how long to wait; 0: only look"),
    (
        "quiet",
        DURATION,
        "200ms",
        LIVE,
        "how long clients over the network must have been quiet",
    ),
)
DELETE: Final = flag_group("Delete", ("all", BOOL, "false", LIVE, "all forks of this user"))
DIFF: Final = flag_group(
    "Diff",
    (
        "all",
        BOOL,
        "false",
        LIVE,
        "also compare Events, leases and the objects that each server makes for itself",
    ),
)
PLAN: Final = flag_group(
    "Plan",
    ("filename", LIST, "", LIVE, "files and directories that are applied; - is standard input"),
    ("kustomize", TEXT, "", LIVE, "directory of an overlay that is applied"),
    ("selector", TEXT, "", LIVE, "only objects of the files with these labels"),
    (
        "prune",
        BOOL,
        "false",
        LIVE,
        "delete what `kubectl apply` created earlier and is not in the files; with --selector or --all",
    ),
    ("all", BOOL, "false", LIVE, "with --prune: whatever its labels"),
    (
        "prune-allowlist",
        LIST,
        "",
        LIVE,
        "with --prune: only these kinds, as core/v1/ConfigMap; default: those of kubectl",
    ),
    ("until", DURATION, "10m", LIVE, "how far ahead to look, in the cluster's time"),
    ("ready-after", DURATION, "5s", LIVE, "how long pods run before they are ready"),
    ("command-timeout", DURATION, "10m", LIVE, "how long the command after -- may take"),
    (
        "fail-on",
        LIST,
        "",
        LIVE,
        "end with exit code 3 if something is so: stuck, unforeseen, delete",
    ),
)
FARM: Final = flag_group(
    "Farm",
    (
        "listen",
        TEXT,
        "127.0.0.1:0",
        LIVE,
        "unix:///path, or a port of the loopback; 0: any",
    ),
    (
        "prepare",
        TEXT,
        "",
        LIVE,
        "command that runs once, with a KUBECONFIG; clusters begin with what it made",
    ),
    ("contents", TEXT, "", LIVE, "packed file that clusters begin with"),
    ("nodes", INT, "1", LIVE, "hollow nodes of the cluster that is prepared and kept warm"),
    ("max-clusters", INT, "100", LIVE, "maximum number of clusters at once"),
)
PACK: Final = flag_group(
    "Pack",
    ("output", TEXT, "", LIVE, "file to write"),
    (
        "since",
        DURATION,
        "0s",
        LIVE,
        "include the changes of the last 2h (or another duration), if the source has them",
    ),
    ("keep-secrets", BOOL, "false", LIVE, "include secrets"),
)
OUTPUT: Final = Flag("output", "Output", TEXT, "table", LIVE, "table or json")
TEXT_OUTPUT: Final = Flag("output", "Output", TEXT, "text", LIVE, "text or json")
PLAN_OUTPUT: Final = Flag("output", "Output", TEXT, "table", LIVE, "table, json, yaml or markdown")
HELP: Final = Flag("help", "Output", BOOL, "false", LIVE, "show this text")
