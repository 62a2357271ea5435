"""Flags that the controller manager and the scheduler share: upstream's names and defaults.

Rows for a `FlagTable`; `settings` reads them.
"""

from typing import Final

from kvstack.apiserver.server.settings.component_flags import GLOBAL, LOGS, METRICS
from kvstack.apiserver.server.settings.flag_table import Effect, Flag, Kind

_TTL_HELP: Final = "how long an answer is believed"


def page_flags(port: int) -> tuple[Flag, ...]:
    """Return the flags of the pages; port: the default."""
    group = "Secure serving"
    live, ignored = Effect.LIVE, Effect.IGNORED
    return (
        Flag("bind-address", group, Kind.IP, "0.0.0.0", live, "address of the pages"),
        Flag("cert-dir", group, Kind.TEXT, "", ignored),
        Flag("disable-http2-serving", group, Kind.BOOL, "false", live, "offer HTTP/1.1 alone"),
        Flag("http2-max-streams-per-connection", group, Kind.INT, "0", ignored),
        Flag("permit-address-sharing", group, Kind.BOOL, "false", ignored),
        Flag("permit-port-sharing", group, Kind.BOOL, "false", ignored),
        Flag("secure-port", group, Kind.INT, str(port), live, "their port; 0: no pages"),
        Flag("tls-cert-file", group, Kind.TEXT, "", live, "certificate; default: a new one"),
        Flag("tls-cipher-suites", group, Kind.LIST, "", live, "Go's names; empty: all safe ones"),
        Flag("tls-curve-preferences", group, Kind.LIST, "", ignored),
        Flag("tls-min-version", group, Kind.TEXT, "", live, "VersionTLS12 or VersionTLS13"),
        Flag("tls-private-key-file", group, Kind.TEXT, "", live, "key of the certificate"),
        Flag("tls-sni-cert-key", group, Kind.ARRAY, "", ignored),
    )


AUTHENTICATION: Final = (
    Flag(
        "authentication-kubeconfig",
        "Authentication",
        Kind.TEXT,
        "",
        Effect.LIVE,
        "who asks the API server whose a token is; default: --kubeconfig",
    ),
    Flag("authentication-skip-lookup", "Authentication", Kind.BOOL, "false", Effect.IGNORED),
    Flag(
        "authentication-token-webhook-cache-ttl",
        "Authentication",
        Kind.DURATION,
        "10s",
        Effect.LIVE,
        _TTL_HELP,
    ),
    Flag(
        "authentication-tolerate-lookup-failure",
        "Authentication",
        Kind.BOOL,
        "true",
        Effect.IGNORED,
    ),
    Flag(
        "client-ca-file",
        "Authentication",
        Kind.TEXT,
        "",
        Effect.LIVE,
        "authorities of the certificates of who reads the pages",
    ),
    Flag("requestheader-allowed-names", "Authentication", Kind.LIST, "", Effect.IGNORED),
    Flag("requestheader-client-ca-file", "Authentication", Kind.TEXT, "", Effect.IGNORED),
    Flag(
        "requestheader-extra-headers-prefix",
        "Authentication",
        Kind.LIST,
        "x-remote-extra-",
        Effect.IGNORED,
    ),
    Flag(
        "requestheader-group-headers",
        "Authentication",
        Kind.LIST,
        "x-remote-group",
        Effect.IGNORED,
    ),
    Flag("requestheader-uid-headers", "Authentication", Kind.LIST, "", Effect.IGNORED),
    Flag(
        "requestheader-username-headers",
        "Authentication",
        Kind.LIST,
        "x-remote-user",
        Effect.IGNORED,
    ),
)

AUTHORIZATION: Final = (
    Flag(
        "authorization-always-allow-paths",
        "Authorization",
        Kind.LIST,
        "/healthz,/readyz,/livez",
        Effect.LIVE,
        "pages for everybody; with * at the end: all that begin so",
    ),
    Flag(
        "authorization-kubeconfig",
        "Authorization",
        Kind.TEXT,
        "",
        Effect.LIVE,
        "who asks the API server what a user may; default: --kubeconfig",
    ),
    Flag(
        "authorization-webhook-cache-authorized-ttl",
        "Authorization",
        Kind.DURATION,
        "10s",
        Effect.LIVE,
        _TTL_HELP,
    ),
    Flag(
        "authorization-webhook-cache-unauthorized-ttl",
        "Authorization",
        Kind.DURATION,
        "10s",
        Effect.LIVE,
        _TTL_HELP,
    ),
)

CLIENT: Final = (
    Flag(
        "kubeconfig",
        "Misc",
        Kind.TEXT,
        "",
        Effect.LIVE,
        "how the API server is reached, and as whom",
    ),
    Flag(
        "master", "Misc", Kind.TEXT, "", Effect.LIVE, "URL of the API server, over the kubeconfig's"
    ),
)


def leader_election(name: str) -> tuple[Flag, ...]:
    """Return the flags of the lease; name: its default name."""
    group, live = "Leader election", Effect.LIVE
    return (
        Flag("leader-elect", group, Kind.BOOL, "true", live, "work only while holding the lease"),
        Flag("leader-elect-lease-duration", group, Kind.DURATION, "15s", live, "of the lease"),
        Flag(
            "leader-elect-renew-deadline",
            group,
            Kind.DURATION,
            "10s",
            live,
            "how long a leader tries to renew before it stops",
        ),
        Flag("leader-elect-resource-lock", group, Kind.TEXT, "leases", live, "leases"),
        Flag("leader-elect-resource-name", group, Kind.TEXT, name, live, "name of the lease"),
        Flag(
            "leader-elect-resource-namespace",
            group,
            Kind.TEXT,
            "kube-system",
            live,
            "namespace of the lease",
        ),
        Flag("leader-elect-retry-period", group, Kind.DURATION, "2s", live, "between two tries"),
    )


OBSERVATION: Final = (
    *METRICS,
    *LOGS,
    Flag("contention-profiling", "Debugging", Kind.BOOL, "false", Effect.IGNORED),
    Flag("profiling", "Debugging", Kind.BOOL, "true", Effect.IGNORED),
    Flag("emulated-version", "Generic", Kind.LIST, "", Effect.IGNORED),
    Flag("emulation-forward-compatible", "Generic", Kind.BOOL, "false", Effect.IGNORED),
    Flag("feature-gates", "Generic", Kind.MAP, "", Effect.IGNORED),
    Flag("min-compatibility-version", "Generic", Kind.LIST, "", Effect.IGNORED),
    *GLOBAL,
)
"""Metrics, logs, and what belongs to every program."""
