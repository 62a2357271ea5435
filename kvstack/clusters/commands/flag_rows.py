"""Rows of flags that several commands have, and what they say."""

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
        "as it was: a revision, a time (RFC 3339), or how long ago (10m); times need a server of kvstack",
    ),
    ("namespace", LIST, "", LIVE, "only these namespaces, and what belongs to none"),
    ("events", BOOL, "true", LIVE, "take Events along"),
    ("max-objects", INT, "200000", LIVE, "give up where there are more objects"),
    (
        "encryption-provider-config",
        TEXT,
        "",
        LIVE,
        "EncryptionConfiguration that a store's values are decrypted by",
    ),
)
ETCD: Final = flag_group(
    "etcd",
    ("etcd-cafile", TEXT, "", LIVE, "certificates that verify those of an etcd"),
    ("etcd-certfile", TEXT, "", LIVE, "client certificate for an etcd"),
    ("etcd-keyfile", TEXT, "", LIVE, "key of that certificate"),
    (
        "etcd-user",
        TEXT,
        "",
        LIVE,
        "name:password of a user of an etcd; default: the variable ETCDCTL_USER, which other users do not see",
    ),
    ("etcd-prefix", TEXT, "/registry", LIVE, "what the keys of objects begin with"),
)
FORK: Final = flag_group(
    "Fork",
    (
        "name",
        TEXT,
        "",
        LIVE,
        "name of the fork and of its context; default: the source's with a number",
    ),
    (
        "nodes",
        TEXT,
        "",
        LIVE,
        "how many hollow nodes there are in place of the source's; none: nobody acts for its nodes; default: the source's become hollow ones",
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
        "let webhooks, aggregated API servers and nodes be asked; by default nothing leaves a fork",
    ),
    ("ttl", DURATION, "0s", LIVE, "how long the fork lives; 0: until it is deleted"),
    ("detach", BOOL, "true", LIVE, "go on without the terminal; false: end with this command"),
    ("add-context", BOOL, "true", LIVE, "add a context to the kubeconfig, until the fork ends"),
)
OPEN: Final = flag_group(
    "Open",
    ("live", BOOL, "false", LIVE, "let controllers, scheduler and nodes run, and be written to"),
)
DELETE: Final = flag_group("Delete", ("all", BOOL, "false", LIVE, "all forks of this user"))
DIFF: Final = flag_group(
    "Diff",
    (
        "all",
        BOOL,
        "false",
        LIVE,
        "compare Events and leases, too, and what each server has of its own",
    ),
)
PLAN: Final = flag_group(
    "Plan",
    ("filename", LIST, "", LIVE, "files and directories that are applied; - is standard input"),
    ("kustomize", TEXT, "", LIVE, "directory of an overlay that is applied"),
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
PACK: Final = flag_group(
    "Pack",
    ("output", TEXT, "", LIVE, "the file to be written"),
    (
        "since",
        DURATION,
        "0s",
        LIVE,
        "take along what changed since so long ago, where the source has it",
    ),
    ("keep-secrets", BOOL, "false", LIVE, "leave nothing out"),
)
OUTPUT: Final = Flag("output", "Output", TEXT, "table", LIVE, "table or json")
PLAN_OUTPUT: Final = Flag("output", "Output", TEXT, "table", LIVE, "table, json, yaml or markdown")
HELP: Final = Flag("help", "Output", BOOL, "false", LIVE, "show this text")
