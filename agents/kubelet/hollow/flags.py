"""The flags of `kvstack hollow-nodes`, one row a line."""

from typing import Final

from kvstack.agents.process.flag_rows import (
    AUTHENTICATION,
    AUTHORIZATION,
    CLIENT,
    page_flags,
)
from kvstack.component.flags.component_flags import SHORT
from kvstack.component.flags.flag_table import (
    BOOL,
    INT,
    LIVE,
    TEXT,
    FlagTable,
    flag_group,
)

TABLE: Final = FlagTable(
    (
        *flag_group(
            "Nodes",
            ("nodes", TEXT, "1", LIVE, "number of nodes, or their names, comma-separated"),
            ("adopt", BOOL, "false", LIVE, "also run nodes that others create with the label hollow=true; in one process only"),
        ),
        *CLIENT,
        *page_flags(10248),
        *AUTHENTICATION,
        *AUTHORIZATION,
        *flag_group(
            "Global",
            ("help", BOOL, "false", LIVE, "show this text"),
            ("v", INT, "0", LIVE, "verbosity of the log: 4 and more shows debug lines"),
        ),
    ),
    SHORT,
)  # fmt: skip
