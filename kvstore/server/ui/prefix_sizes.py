"""The sizes of prefixes, estimated from evenly spaced samples of the live keys.

A round samples ROUND_KEYS keys, the next round others between them. The last ROUNDS_MAX rounds
count, so the estimate becomes better with each request of the page and follows changes. Nothing is
sampled while the page is not open.
"""

from collections import defaultdict, deque
from typing import Final, NamedTuple

from kvstore.node.metering.counters import prefix_of

ROUND_KEYS: Final = 128
ROUNDS_MAX: Final = 32
_OFFSET_STEP: Final = 2_654_435_761  # spreads the rounds' offsets


class PrefixSize(NamedTuple):
    """The estimate of one prefix."""

    prefix: bytes
    keys: int
    size_bytes: int  # of the live keys' records, without history


class PrefixSizes:
    """The estimate of all prefixes."""

    def __init__(self) -> None:
        self._rounds: deque[list[tuple[bytes, int]]] = deque(maxlen=ROUNDS_MAX)
        self._count = 0

    def next_offset(self) -> int:
        """Return where the next round begins."""
        self._count += 1
        return self._count * _OFFSET_STEP

    def add(self, sampled: list[tuple[bytes, int]]) -> None:
        """Add a round: keys with the sizes of their records in bytes."""
        self._rounds.append(sampled)

    def top(self, limit: int, key_count: int) -> list[PrefixSize]:
        """Return up to limit prefixes of the key_count keys there are, the largest first."""
        keys: defaultdict[bytes, int] = defaultdict(int)
        sizes: defaultdict[bytes, int] = defaultdict(int)
        for sampled in self._rounds:
            for key, size_bytes in sampled:
                prefix = prefix_of(key)
                keys[prefix] += 1
                sizes[prefix] += size_bytes
        looked_at = sum(keys.values())
        if looked_at == 0:
            return []
        scale = key_count / looked_at
        ranked = sorted(sizes, key=lambda prefix: (-sizes[prefix], prefix))
        return [
            PrefixSize(each, round(keys[each] * scale), round(sizes[each] * scale))
            for each in ranked[:limit]
        ]
