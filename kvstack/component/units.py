"""Units of time and size as plain numbers."""

from typing import Final

MILLISECOND_NS: Final = 1_000_000
SECOND_NS: Final = 1_000_000_000
NANOSECOND_S: Final = 1e-9
MIB: Final = 1 << 20
