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

_TTL_HELP: Final = "how long an answer is believed"


def page_flags(port: int) -> tuple[Flag, ...]:
    """Return the flags of the pages; port: the default."""
    return flag_group(
        "Secure serving",
        ("bind-address", IP, "0.0.0.0", LIVE, "address of the pages"),
        ("cert-dir", TEXT, "", IGNORED, ""),
        ("disable-http2-serving", BOOL, "false", LIVE, "offer HTTP/1.1 alone"),
        ("http2-max-streams-per-connection", INT, "0", IGNORED, ""),
        ("permit-address-sharing", BOOL, "false", IGNORED, ""),
        ("permit-port-sharing", BOOL, "false", IGNORED, ""),
        ("secure-port", INT, str(port), LIVE, "their port; 0: no pages"),
        ("tls-cert-file", TEXT, "", LIVE, "certificate; default: a new one"),
        ("tls-cipher-suites", LIST, "", LIVE, "Go's names; empty: all safe ones"),
        ("tls-curve-preferences", LIST, "", IGNORED, ""),
        ("tls-min-version", TEXT, "", LIVE, "VersionTLS12 or VersionTLS13"),
        ("tls-private-key-file", TEXT, "", LIVE, "key of the certificate"),
        ("tls-sni-cert-key", ARRAY, "", IGNORED, ""),
    )  # fmt: skip


AUTHENTICATION: Final = flag_group(
    "Authentication",
    ("authentication-kubeconfig", TEXT, "", LIVE, "who asks the API server whose a token is; default: --kubeconfig"),
    ("authentication-skip-lookup", BOOL, "false", IGNORED, ""),
    ("authentication-token-webhook-cache-ttl", DURATION, "10s", LIVE, _TTL_HELP),
    ("authentication-tolerate-lookup-failure", BOOL, "true", IGNORED, ""),
    ("client-ca-file", TEXT, "", LIVE, "authorities of the certificates of who reads the pages"),
    ("requestheader-allowed-names", LIST, "", IGNORED, ""),
    ("requestheader-client-ca-file", TEXT, "", IGNORED, ""),
    ("requestheader-extra-headers-prefix", LIST, "x-remote-extra-", IGNORED, ""),
    ("requestheader-group-headers", LIST, "x-remote-group", IGNORED, ""),
    ("requestheader-uid-headers", LIST, "", IGNORED, ""),
    ("requestheader-username-headers", LIST, "x-remote-user", IGNORED, ""),
)  # fmt: skip

AUTHORIZATION: Final = flag_group(
    "Authorization",
    ("authorization-always-allow-paths", LIST, "/healthz,/readyz,/livez", LIVE, "pages for everybody; with * at the end: all that begin so"),
    ("authorization-kubeconfig", TEXT, "", LIVE, "who asks the API server what a user may; default: --kubeconfig"),
    ("authorization-webhook-cache-authorized-ttl", DURATION, "10s", LIVE, _TTL_HELP),
    ("authorization-webhook-cache-unauthorized-ttl", DURATION, "10s", LIVE, _TTL_HELP),
)  # fmt: skip

CLIENT: Final = flag_group(
    "Misc",
    ("kubeconfig", TEXT, "", LIVE, "how the API server is reached, and as whom"),
    ("master", TEXT, "", LIVE, "URL of the API server, over the kubeconfig's"),
)  # fmt: skip


def leader_election(name: str) -> tuple[Flag, ...]:
    """Return the flags of the lease; name: its default name."""
    return flag_group(
        "Leader election",
        ("leader-elect", BOOL, "true", LIVE, "work only while holding the lease"),
        ("leader-elect-lease-duration", DURATION, "15s", LIVE, "of the lease"),
        ("leader-elect-renew-deadline", DURATION, "10s", LIVE, "how long a leader tries to renew before it stops"),
        ("leader-elect-resource-lock", TEXT, "leases", LIVE, "leases"),
        ("leader-elect-resource-name", TEXT, name, LIVE, "name of the lease"),
        ("leader-elect-resource-namespace", TEXT, "kube-system", LIVE, "namespace of the lease"),
        ("leader-elect-retry-period", DURATION, "2s", LIVE, "between two tries"),
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
