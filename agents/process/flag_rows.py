"""Flags that the controller manager and the scheduler share: upstream's names and defaults.

Rows for a `FlagTable`; `settings` reads them.
"""

from typing import Final

from kvstack.component.flags.component_flags import GLOBAL, LOGS, METRICS
from kvstack.component.flags.flag_table import (
    ARRAY,
    BOOL,
    DURATION,
    IGNORED,
    INT,
    IP,
    LIST,
    LIVE,
    MAP,
    TEXT,
    Flag,
    flag_group,
)

_TTL_HELP: Final = "time for which responses are cached"


def page_flags(port: int) -> tuple[Flag, ...]:
    """Return the flags of the pages; port: the default."""
    return flag_group(
        "Secure serving",
        ("bind-address", IP, "0.0.0.0", LIVE, "address to listen on"),
        ("cert-dir", TEXT, "", IGNORED, ""),
        ("disable-http2-serving", BOOL, "false", LIVE, "serve HTTP/1.1 only"),
        ("http2-max-streams-per-connection", INT, "0", IGNORED, ""),
        ("permit-address-sharing", BOOL, "false", IGNORED, ""),
        ("permit-port-sharing", BOOL, "false", IGNORED, ""),
        ("secure-port", INT, str(port), LIVE, "port to listen on; 0: none"),
        ("tls-cert-file", TEXT, "", LIVE, "serving certificate; default: a self-signed one"),
        ("tls-cipher-suites", LIST, "", LIVE, "names as in Go; empty: all secure ones"),
        ("tls-curve-preferences", LIST, "", IGNORED, ""),
        ("tls-min-version", TEXT, "", LIVE, "VersionTLS12 or VersionTLS13"),
        ("tls-private-key-file", TEXT, "", LIVE, "key of the serving certificate"),
        ("tls-sni-cert-key", ARRAY, "", IGNORED, ""),
    )  # fmt: skip


AUTHENTICATION: Final = flag_group(
    "Authentication",
    ("authentication-kubeconfig", TEXT, "", LIVE, "kubeconfig used for TokenReviews; default: --kubeconfig"),
    ("authentication-skip-lookup", BOOL, "false", IGNORED, ""),
    ("authentication-token-webhook-cache-ttl", DURATION, "10s", LIVE, _TTL_HELP),
    ("authentication-tolerate-lookup-failure", BOOL, "true", IGNORED, ""),
    ("client-ca-file", TEXT, "", LIVE, "CA certificates that verify client certificates"),
    ("requestheader-allowed-names", LIST, "", IGNORED, ""),
    ("requestheader-client-ca-file", TEXT, "", IGNORED, ""),
    ("requestheader-extra-headers-prefix", LIST, "x-remote-extra-", IGNORED, ""),
    ("requestheader-group-headers", LIST, "x-remote-group", IGNORED, ""),
    ("requestheader-uid-headers", LIST, "", IGNORED, ""),
    ("requestheader-username-headers", LIST, "x-remote-user", IGNORED, ""),
)  # fmt: skip

AUTHORIZATION: Final = flag_group(
    "Authorization",
    ("authorization-always-allow-paths", LIST, "/healthz,/readyz,/livez", LIVE, "paths served without authorization; a trailing * matches any suffix"),
    ("authorization-kubeconfig", TEXT, "", LIVE, "kubeconfig used for SubjectAccessReviews; default: --kubeconfig"),
    ("authorization-webhook-cache-authorized-ttl", DURATION, "10s", LIVE, _TTL_HELP),
    ("authorization-webhook-cache-unauthorized-ttl", DURATION, "10s", LIVE, _TTL_HELP),
)  # fmt: skip

CLIENT: Final = flag_group(
    "Misc",
    ("kubeconfig", TEXT, "", LIVE, "kubeconfig with the address of the API server and the credentials"),
    ("master", TEXT, "", LIVE, "URL of the API server; overrides the kubeconfig"),
)  # fmt: skip


def leader_election(name: str) -> tuple[Flag, ...]:
    """Return the flags of the lease; name: its default name."""
    return flag_group(
        "Leader election",
        ("leader-elect", BOOL, "true", LIVE, "work only while holding the lease"),
        ("leader-elect-lease-duration", DURATION, "15s", LIVE, "duration of the lease"),
        ("leader-elect-renew-deadline", DURATION, "10s", LIVE, "time for which a leader retries a renewal before it gives up"),
        ("leader-elect-resource-lock", TEXT, "leases", LIVE, "leases is the only one"),
        ("leader-elect-resource-name", TEXT, name, LIVE, "name of the lease"),
        ("leader-elect-resource-namespace", TEXT, "kube-system", LIVE, "namespace of the lease"),
        ("leader-elect-retry-period", DURATION, "2s", LIVE, "time between two attempts"),
    )  # fmt: skip


OBSERVATION: Final = (
    *METRICS,
    *LOGS,
    *flag_group(
        "Debugging",
        ("contention-profiling", BOOL, "false", IGNORED, ""),
        ("profiling", BOOL, "true", IGNORED, ""),
    ),
    *flag_group(
        "Generic",
        ("emulated-version", LIST, "", IGNORED, ""),
        ("emulation-forward-compatible", BOOL, "false", IGNORED, ""),
        ("feature-gates", MAP, "", IGNORED, ""),
        ("min-compatibility-version", LIST, "", IGNORED, ""),
    ),
    *GLOBAL,
)  # fmt: skip
"""Metrics, logs, and what belongs to every program."""
