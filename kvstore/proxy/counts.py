"""What the proxy counts, under etcd's names: /proxy/metrics."""

from dataclasses import dataclass, field

from kvstore.server.metrics.exposition import Kind, Reading, labels
from kvstore.wire.rpc import METHODS
from kvstore.wire.rpc import Kind as Streaming

_TYPES = {
    Streaming.UNARY: "unary",
    Streaming.SERVER_STREAM: "server_stream",
    Streaming.BIDI: "bidi_stream",
}


@dataclass(slots=True)
class Counts:
    """Of the life of the process."""

    watchers_coalescing: int = 0  # now
    events_coalescing: int = 0
    cache_keys: int = 0  # now
    cache_hits: int = 0
    cache_misses: int = 0
    started: dict[int, int] = field(default_factory=dict)  # method → calls
    handled: dict[tuple[int, str], int] = field(default_factory=dict)  # (method, code's name)

    def begun(self, method: int) -> None:
        """Count a call."""
        self.started[method] = self.started.get(method, 0) + 1

    def ended(self, method: int, code_name: str) -> None:
        """Count its end."""
        key = (method, code_name)
        self.handled[key] = self.handled.get(key, 0) + 1

    def readings(self) -> list[Reading]:
        """Return the families of the page."""
        gauge, counter = Kind.GAUGE, Kind.COUNTER
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
             {_method(method): count for method, count in self.started.items()}),
            ("grpc_server_handled_total", counter,
             "Total number of RPCs completed on the server, regardless of success or failure.",
             {f"{labels(grpc_code=code)},{_method(method)}": count
              for (method, code), count in self.handled.items()}),
        ]  # fmt: skip


def _method(method_id: int) -> str:
    method = METHODS[method_id]
    return labels(
        grpc_method=method.name, grpc_service=method.service, grpc_type=_TYPES[method.kind]
    )
