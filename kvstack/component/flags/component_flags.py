"""Flags that every program of Kubernetes has: rows of a `FlagTable`."""

from typing import Final

from kvstack.component.flags.flag_table import (
    BOOL,
    DURATION,
    IGNORED,
    INT,
    LIST,
    LIVE,
    MAP,
    TEXT,
    VERSION,
    flag_group,
)

METRICS: Final = flag_group(
    "Metrics",
    ("allow-metric-labels", MAP, "", IGNORED, ""),
    ("allow-metric-labels-manifest", TEXT, "", IGNORED, ""),
    ("disabled-metrics", LIST, "", IGNORED, ""),
    ("show-hidden-metrics-for-version", TEXT, "", IGNORED, ""),
)  # fmt: skip
LOGS: Final = flag_group(
    "Logs",
    ("log-flush-frequency", DURATION, "5s", IGNORED, ""),
    ("log-json-info-buffer-size", TEXT, "", IGNORED, ""),
    ("log-json-split-stream", BOOL, "false", IGNORED, ""),
    ("log-text-info-buffer-size", TEXT, "", IGNORED, ""),
    ("log-text-split-stream", BOOL, "false", IGNORED, ""),
    ("logging-format", TEXT, "text", LIVE, "json; text is accepted, lines are JSON"),
    ("v", INT, "0", LIVE, "verbosity of the log: 4 and more shows debug lines"),
    ("vmodule", TEXT, "", IGNORED, ""),
)  # fmt: skip
GLOBAL: Final = flag_group(
    "Global",
    ("help", BOOL, "false", LIVE, "show this text"),
    ("version", VERSION, "", LIVE, "show the version"),
)  # fmt: skip
SHORT: Final = {"h": "help", "v": "v"}
"""Shorthands: letter to flag name."""
