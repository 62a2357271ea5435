"""Flags that every program of Kubernetes has: rows of a `FlagTable`."""

from typing import Final

from kvstack.apiserver.server.settings.flag_table import Effect, Flag, Kind

METRICS: Final = (
    Flag("allow-metric-labels", "Metrics", Kind.MAP, "", Effect.IGNORED),
    Flag("allow-metric-labels-manifest", "Metrics", Kind.TEXT, "", Effect.IGNORED),
    Flag("disabled-metrics", "Metrics", Kind.LIST, "", Effect.IGNORED),
    Flag("show-hidden-metrics-for-version", "Metrics", Kind.TEXT, "", Effect.IGNORED),
)
LOGS: Final = (
    Flag("log-flush-frequency", "Logs", Kind.DURATION, "5s", Effect.IGNORED),
    Flag("log-json-info-buffer-size", "Logs", Kind.TEXT, "", Effect.IGNORED),
    Flag("log-json-split-stream", "Logs", Kind.BOOL, "false", Effect.IGNORED),
    Flag("log-text-info-buffer-size", "Logs", Kind.TEXT, "", Effect.IGNORED),
    Flag("log-text-split-stream", "Logs", Kind.BOOL, "false", Effect.IGNORED),
    Flag(
        "logging-format",
        "Logs",
        Kind.TEXT,
        "text",
        Effect.LIVE,
        "json; text is accepted, lines are JSON",
    ),
    Flag(
        "v",
        "Logs",
        Kind.INT,
        "0",
        Effect.LIVE,
        "verbosity of the log: 4 and more shows debug lines",
    ),
    Flag("vmodule", "Logs", Kind.TEXT, "", Effect.IGNORED),
)
GLOBAL: Final = (
    Flag("help", "Global", Kind.BOOL, "false", Effect.LIVE, "show this text"),
    Flag("version", "Global", Kind.VERSION, "", Effect.LIVE, "show the version"),
)
SHORT: Final = {"h": "help", "v": "v"}
"""Flags of one letter."""
