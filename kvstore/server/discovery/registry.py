"""The registry of v3 discovery over gRPC: an etcd of any version, asked as its own client would.

Calls block. One endpoint after the other is asked, from where the last one answered; all of them
once for each call. With --discovery-user the token is taken anew when it is no longer good.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias, TypeVar

import grpc

from kvstore.config.model import Config
from kvstore.errors import AUTH_FAILED, AUTH_NOT_ENABLED
from kvstore.server.discovery.discovery import DiscoveryError, RegistryError, Row
from kvstore.transport.grpcio.dial import DialTls, Option, check_files, dial_plan
from kvstore.wire import rpc
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.rpc import METHODS

_INT32_MAX: Final = 2**31 - 1

T = TypeVar("T")
_Ask: TypeAlias = "grpc.UnaryUnaryMultiCallable[bytes, bytes]"
_AskStream: TypeAlias = "grpc.StreamStreamMultiCallable[bytes, bytes]"


@contextmanager
def open_registry(config: Config) -> Iterator["GrpcRegistry"]:
    """Give the registry that the --discovery-* flags name; ConfigError if they cannot be meant."""
    registry = GrpcRegistry(config)
    try:
        yield registry
    finally:
        registry.close()


class GrpcRegistry:
    """A Registry; see `kvstore.server.discovery.discovery`."""

    def __init__(self, config: Config) -> None:
        """Connect when first asked."""
        values = config.values
        endpoints = values["discovery-endpoints"]
        assert isinstance(endpoints, tuple)
        self._endpoints: Final = endpoints
        self._tls: Final = DialTls(
            cert_file=str(values["discovery-cert"]),
            key_file=str(values["discovery-key"]),
            trusted_ca_file=str(values["discovery-cacert"]),
            is_unverified=bool(values["discovery-insecure-skip-tls-verify"]),
            is_wanted=not values["discovery-insecure-transport"],
        )
        check_files(self._tls)
        self._timeout_s: Final = _seconds(config, "discovery-request-timeout")
        self._dial_s: Final = _seconds(config, "discovery-dial-timeout")
        self._options: Final = _options(config)
        self._user, self._password = _user(config)
        self._token = ""
        self._at = 0  # the endpoint that is asked first
        self._channel: grpc.Channel | None = None

    def close(self) -> None:
        """End the connection."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def get(self, key: str) -> Row | None:
        """See Registry."""
        request = pb.RangeRequest(key=key.encode())
        found = pb.RangeResponse.FromString(self._call(rpc.RANGE, request.SerializeToString()))
        return _row(found.kvs[0]) if found.kvs else None

    def list(self, prefix: str) -> tuple[list[Row], int]:
        """See Registry."""
        request = pb.RangeRequest(key=prefix.encode(), range_end=_end_of(prefix))
        found = pb.RangeResponse.FromString(self._call(rpc.RANGE, request.SerializeToString()))
        return [_row(each) for each in found.kvs], found.header.revision

    def put(self, key: str, value: str) -> None:
        """See Registry."""
        request = pb.PutRequest(key=key.encode(), value=value.encode())
        self._call(rpc.PUT, request.SerializeToString())

    def watch(self, prefix: str, revision: int, found: Callable[[Row], bool]) -> None:
        """See Registry."""
        create = pb.WatchCreateRequest(
            key=prefix.encode(), range_end=_end_of(prefix), start_revision=revision
        )
        request = pb.WatchRequest(create_request=create).SerializeToString()

        def read(channel: grpc.Channel) -> None:
            is_over = threading.Event()

            def requests() -> Iterator[bytes]:
                yield request
                is_over.wait()  # the stream ends with its sending side

            ask: _AskStream = channel.stream_stream(METHODS[rpc.WATCH].path)
            call = ask(requests(), metadata=self._metadata())
            try:
                for message in call:
                    if self._take(pb.WatchResponse.FromString(message), prefix, found):
                        return
            finally:
                is_over.set()
                call.cancel()
            raise RegistryError("the watch ended")

        self._any_endpoint(read)

    def _take(self, response: pb.WatchResponse, prefix: str, found: Callable[[Row], bool]) -> bool:
        rows = [_row(each.kv) for each in response.events]
        if response.compact_revision:
            rows = self.list(prefix)[0]
        elif response.canceled:
            raise RegistryError(response.cancel_reason or "the watch was cancelled")
        is_content = False
        for row in rows:
            is_content = found(row) or is_content
        return is_content

    def _call(self, method: int, body: bytes) -> bytes:
        def ask(channel: grpc.Channel) -> bytes:
            call: _Ask = channel.unary_unary(METHODS[method].path)
            return call(body, timeout=self._timeout_s, metadata=self._metadata())

        return self._any_endpoint(ask)

    def _any_endpoint(self, ask: Callable[[grpc.Channel], T]) -> T:
        """Return what the first endpoint that answers says; RegistryError if none does."""
        reason = ""
        for _ in self._endpoints:
            try:
                channel = self._connected()
                self._log_in(channel)
                return ask(channel)
            except grpc.RpcError as error:
                reason = _text(error)
            except OSError as error:
                reason = str(error)
            self._token = ""
            self.close()
            self._at = (self._at + 1) % len(self._endpoints)
        raise RegistryError(reason)

    def _connected(self) -> grpc.Channel:
        if self._channel is None:
            plan = dial_plan(self._endpoints[self._at], self._tls)
            options = (*plan.options, *self._options)
            if plan.credentials is None:
                self._channel = grpc.insecure_channel(plan.target, options)
            else:
                self._channel = grpc.secure_channel(plan.target, plan.credentials, options)
            try:
                grpc.channel_ready_future(self._channel).result(self._dial_s)
            except grpc.FutureTimeoutError:
                raise OSError(
                    f"{self._endpoints[self._at]} cannot be reached within {self._dial_s:g} s"
                ) from None
        return self._channel

    def _log_in(self, channel: grpc.Channel) -> None:
        if not self._user or self._token:
            return
        request = pb.AuthenticateRequest(name=self._user, password=self._password)
        call: _Ask = channel.unary_unary(METHODS[rpc.AUTHENTICATE].path)
        try:
            answer = call(request.SerializeToString(), timeout=self._timeout_s)
        except grpc.RpcError as error:
            if _text(error) == AUTH_NOT_ENABLED.text:
                self._user = ""
                return
            if _text(error) == AUTH_FAILED.text:
                raise DiscoveryError(AUTH_FAILED.text) from None
            raise
        self._token = pb.AuthenticateResponse.FromString(answer).token

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (("token", self._token),) if self._token else ()


def _options(config: Config) -> tuple[Option, ...]:
    def milliseconds(flag: str) -> int:
        return min(int(_seconds(config, flag) * 1000), _INT32_MAX)

    return (
        ("grpc.keepalive_time_ms", milliseconds("discovery-keepalive-time")),
        ("grpc.keepalive_timeout_ms", milliseconds("discovery-keepalive-timeout")),
        ("grpc.enable_http_proxy", 0),
    )


def _seconds(config: Config, flag: str) -> float:
    value = config.values[flag]
    assert isinstance(value, int), flag
    return value / 1e9


def _user(config: Config) -> tuple[str, str]:
    user, password = (str(config.values[f"discovery-{each}"]) for each in ("user", "password"))
    if not password and ":" in user:
        user, _, password = user.partition(":")
    return user, password


def _end_of(prefix: str) -> bytes:
    """Return the first key after all that begin with prefix, which ends in ASCII."""
    data = prefix.encode()
    return data[:-1] + bytes([data[-1] + 1])


def _row(each: kv_pb2.KeyValue) -> Row:
    key, value = (part.decode("utf-8", "replace") for part in (each.key, each.value))
    return Row(key, value, each.create_revision)


def _text(error: grpc.RpcError) -> str:
    """Return what a failed call says; grpcio's errors are calls as well, which no type tells."""
    details = getattr(error, "details", None)
    return str(details()) if details else str(error)
