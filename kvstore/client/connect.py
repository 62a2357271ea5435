"""Makes a Store over the network, on the best channel available.

connect(["https://10.0.0.1:2379"], ClientOptions(tls=…)) ──► Store      native, or else grpcio
"""

from collections.abc import Callable, Sequence

from kvstack.component import crate
from kvstack.component.errors import ConfigError
from kvstore.client.channel import Channel
from kvstore.client.channel_store import ChannelStore
from kvstore.client.endpoints import Endpoint, parse_endpoint
from kvstore.client.options import ClientOptions
from kvstore.client.store import Store


def connect(
    endpoints: Sequence[str],
    options: ClientOptions | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> Store:
    """Return a Store of a cluster; ConfigError for invalid endpoints or options.

    It connects when it is used in `async with`. on_notice gets log lines, on the event loop:
    connections made and lost, and why.
    """
    options = options or ClientOptions()
    return ChannelStore(open_channel(endpoints, options, on_notice), options)


def open_channel(
    endpoints: Sequence[str],
    options: ClientOptions,
    on_notice: Callable[[str], None] | None = None,
) -> Channel:
    """Return the best channel available to these endpoints, not started; errors are connect's."""
    if not endpoints:
        raise ConfigError("at least one endpoint is required")
    if options.token and options.user:
        raise ConfigError("token and user cannot be used together")
    parsed = parse_endpoints(endpoints, options)
    if options.transport == "native" or (options.transport == "auto" and crate.is_available()):
        from kvstore.client.channels.native import NativeChannel

        return NativeChannel(parsed, options, on_notice)
    # Loaded only where it is used: grpcio is large.
    from kvstore.client.channels.grpcio import GrpcioChannel

    return GrpcioChannel(parsed, options, on_notice)


def parse_endpoints(endpoints: Sequence[str], options: ClientOptions) -> list[Endpoint]:
    """Return the parsed endpoints, with these options."""
    return [parse_endpoint(each, with_tls=options.tls.is_given) for each in endpoints]
