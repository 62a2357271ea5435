"""What the fuzzer found and was mended: target and bytes."""

from typing import Final

FAULTS: Final[list[tuple[str, bytes]]] = []
