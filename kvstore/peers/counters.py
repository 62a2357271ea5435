"""The counters of the links to one member; the metrics page reads them.

Nothing is locked: a counter has one writer thread, or a lost increment does no harm. Times are
seconds, sizes bytes. Names follow etcd's etcd_network_*.
"""

from typing import Final

RTT_BOUNDS_S: Final = tuple(0.0001 * 2**n for n in range(16))
SNAPSHOT_BOUNDS_S: Final = tuple(0.1 * 2**n for n in range(10))


class Histogram:
    """A histogram of durations: one count per bound, and one for all above."""

    __slots__ = ("bounds", "buckets", "count", "sum_s")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.count = 0
        self.sum_s = 0.0

    def observe(self, duration_s: float) -> None:
        """Count one duration."""
        at = 0
        while at < len(self.bounds) and duration_s > self.bounds[at]:
            at += 1
        self.buckets[at] += 1
        self.count += 1
        self.sum_s += duration_s


class PeerCounters:
    """The counters of one member since the link to it was made."""

    __slots__ = (
        "active",
        "disconnected",
        "received_bytes",
        "received_failures",
        "rtt",
        "sent_bytes",
        "sent_failures",
        "smoothed_rtt_s",
        "snapshot_receive",
        "snapshot_receive_failures",
        "snapshot_receive_inflights",
        "snapshot_send",
        "snapshot_send_failures",
        "snapshot_send_inflights",
    )

    def __init__(self) -> None:
        self.active = 0  # 0 or 1
        self.disconnected = 0
        self.sent_bytes = 0
        self.received_bytes = 0
        self.sent_failures = 0
        self.received_failures = 0
        self.rtt = Histogram(RTT_BOUNDS_S)
        self.smoothed_rtt_s = 0.0  # 0: not measured yet
        self.snapshot_send = Histogram(SNAPSHOT_BOUNDS_S)  # successful ones
        self.snapshot_send_failures = 0
        self.snapshot_send_inflights = 0
        self.snapshot_receive = Histogram(SNAPSHOT_BOUNDS_S)  # successful ones
        self.snapshot_receive_failures = 0
        self.snapshot_receive_inflights = 0

    def measured(self, rtt_s: float) -> None:
        """Count one round trip."""
        old_s = self.smoothed_rtt_s
        self.smoothed_rtt_s = rtt_s if old_s == 0.0 else old_s + (rtt_s - old_s) / 8
        self.rtt.observe(self.smoothed_rtt_s)
