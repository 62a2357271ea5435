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
            ("nodes", TEXT, "1", LIVE, "how many, or their names, comma-separated"),
            ("adopt", BOOL, "false", LIVE, "run nodes too that others make with the label hollow=true; of one process alone"),
        ),
        *CLIENT,
        *page_flags(10248),
        *AUTHENTICATION,
        *AUTHORIZATION,
        *flag_group(
            "Global",
            ("help", BOOL, "false", LIVE, "show this text"),
            ("v", INT, "0", LIVE, "4 and more: debug"),
        ),
    ),
    SHORT,
)  # fmt: skip
