"""The proxy's counters, under etcd's names: /proxy/metrics."""

from dataclasses import dataclass, field

from kvstack.component.metrics.exposition import FamilyKind, FamilySamples, labels
from kvstore.server.metrics.call_labels import METHOD_LABELS, code_name


@dataclass(slots=True)
class ProxyCounters:
    """Counters since the start of the process, and current numbers."""

    watchers_coalescing: int = 0  # current
    events_coalescing: int = 0
    cache_keys: int = 0  # current
    cache_hits: int = 0
    cache_misses: int = 0
    started: dict[int, int] = field(default_factory=dict)  # method → calls
    handled: dict[tuple[int, str], int] = field(default_factory=dict)  # (method, code's name)

    def count_start(self, method: int) -> None:
        """Count a call that starts."""
        self.started[method] = self.started.get(method, 0) + 1

    def count_end(self, method: int, code: int) -> None:
        """Count the end of a call."""
        key = (method, code_name(code))
        self.handled[key] = self.handled.get(key, 0) + 1

    def samples(self) -> list[FamilySamples]:
        """Return the families of the page."""
        gauge, counter = FamilyKind.GAUGE, FamilyKind.COUNTER
        proxy = "etcd_grpc_proxy"
        return [
            (f"{proxy}_watchers_coalescing_total", gauge,
             "Total number of current watchers coalescing", self.watchers_coalescing),
            (f"{proxy}_events_coalescing_total", counter,
             "Total number of events coalescing", self.events_coalescing),
            (f"{proxy}_cache_keys_total", gauge,
             "Total number of keys/ranges cached", self.cache_keys),
            (f"{proxy}_cache_hits_total", gauge,
             "Total number of cache hits", self.cache_hits),
            (f"{proxy}_cache_misses_total", gauge,
             "Total number of cache misses", self.cache_misses),
            ("grpc_server_started_total", counter, "Total number of RPCs started on the server.",
             {METHOD_LABELS[method]: count for method, count in self.started.items()}),
            ("grpc_server_handled_total", counter,
             "Total number of RPCs completed on the server, regardless of success or failure.",
             {f"{labels(grpc_code=code)},{METHOD_LABELS[method]}": count
              for (method, code), count in self.handled.items()}),
        ]  # fmt: skip
