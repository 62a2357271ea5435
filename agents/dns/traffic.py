"""Counters of queries and answers for the metrics page."""

from collections import Counter
from typing import Final

from kvstack.agents.dns.query import HEADER_BYTES
from kvstack.component.metrics.histograms import Histogram, exponential

UDP, TCP = "udp", "tcp"
KINDS_MAX: Final = 256
"""Types with a counter of their own, over all protocols; clients may query any of 65,536."""
SECONDS: Final = exponential(0.00025, 2, 16)
_BYTES: Final = (0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16_000, 32_000, 48_000, 64_000)


class Traffic:
    """Counts."""

    def __init__(self) -> None:
        self.queries: Counter[tuple[str, str, bytes]] = Counter()
        """By protocol, family of the address (1 or 2) and type."""
        self.codes: Counter[int] = Counter()
        self.seconds = Histogram(SECONDS)
        self.sizes = {each: Histogram(_BYTES) for each in (UDP, TCP)}
        """The sizes of answers."""
        self.query_sizes = {each: Histogram(_BYTES) for each in (UDP, TCP)}

    def count(self, protocol: str, family: str, data: bytes, answer: bytes) -> None:
        """Count a query and its answer."""
        end = data.find(0, HEADER_BYTES) + 1
        key = (protocol, family, data[end : end + 2])
        if key not in self.queries and len(self.queries) >= KINDS_MAX:
            key = (protocol, family, b"")
        self.queries[key] += 1
        self.codes[answer[3] & 0xF] += 1
        self.query_sizes[protocol].add(len(data))
        self.sizes[protocol].add(len(answer))
