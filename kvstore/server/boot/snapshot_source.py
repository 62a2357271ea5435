"""The member whose data another one is rebuilt from: found by its client URL, asked for a snapshot.

It must be of the same cluster, another member, no learner, and named by no CORRUPT alarm. With
authentication on, --rebuild-user says in whose name to ask; only root may take snapshots.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import grpc

from kvstore.config.model import Config
from kvstore.errors import ConfigError, DataDirError
from kvstore.logger import Logger
from kvstore.wire.gen import rpc_pb2 as pb

_ASK_TIMEOUT_S: Final = 10.0
_SNAPSHOT_TIMEOUT_S: Final = 6 * 3600.0
_MAINTENANCE: Final = "/etcdserverpb.Maintenance"

_Ask: TypeAlias = "grpc.UnaryUnaryMultiCallable[bytes, bytes]"
_AskStream: TypeAlias = "grpc.UnaryStreamMultiCallable[bytes, bytes]"


class SnapshotSource:
    """A connection to one member's client port."""

    def __init__(self, url: str, config: Config) -> None:
        """Connect when first asked; ConfigError if the TLS files cannot be used."""
        self.url = url
        self._channel = _channel(url, config)
        self._metadata: tuple[tuple[str, str], ...] = ()

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def log_in(self, user: str) -> None:
        """Ask in the name of user:password from now on."""
        name, _, password = user.partition(":")
        authenticate: _Ask = self._channel.unary_unary("/etcdserverpb.Auth/Authenticate")
        request = pb.AuthenticateRequest(name=name, password=password)
        answer = authenticate(request.SerializeToString(), timeout=_ASK_TIMEOUT_S)
        token = pb.AuthenticateResponse.FromString(answer).token
        self._metadata = (("token", token),)

    def status(self) -> pb.StatusResponse:
        """Return what the member says of itself."""
        ask: _Ask = self._channel.unary_unary(f"{_MAINTENANCE}/Status")
        return pb.StatusResponse.FromString(
            ask(b"", timeout=_ASK_TIMEOUT_S, metadata=self._metadata)
        )

    def snapshot(self) -> Iterator[bytes]:
        """Yield the pieces of the database and of the hash behind it."""
        ask: _AskStream = self._channel.unary_stream(f"{_MAINTENANCE}/Snapshot")
        try:
            for message in ask(b"", timeout=_SNAPSHOT_TIMEOUT_S, metadata=self._metadata):
                yield pb.SnapshotResponse.FromString(message).blob
        except grpc.RpcError as error:
            raise DataDirError(f"the snapshot of {self.url} broke off: {_text(error)}") from None


def find_source(
    urls: Sequence[str], config: Config, cluster_id: int, own_id: int, logger: Logger
) -> SnapshotSource:
    """Return the first of the members at urls that can give its data; ConfigError if none can."""
    user = str(config.values["rebuild-user"])
    reasons: list[str] = []
    for url in urls:
        source = SnapshotSource(url, config)
        try:
            if user:
                source.log_in(user)
            reason = _unfit(source.status(), cluster_id, own_id)
        except grpc.RpcError as error:
            reason = _text(error)
        if not reason:
            return source
        source.close()
        logger.warning("cannot rebuild from this member", url=url, reason=reason)
        reasons.append(f"{url}: {reason}")
    raise ConfigError(f"--rebuild-from-peers: nobody can give its data ({'; '.join(reasons)})")


def _unfit(status: pb.StatusResponse, cluster_id: int, own_id: int) -> str:
    header = status.header
    if header.cluster_id != cluster_id:
        return f"it is of cluster {header.cluster_id:x}, this member of {cluster_id:x}"
    if header.member_id == own_id:
        return "it is this member itself"
    if status.isLearner:
        return "it is a learner"
    accused = f"memberID:{header.member_id} alarm:CORRUPT"
    if any(accused in error for error in status.errors):
        return "a CORRUPT alarm names it"
    return ""


def _channel(url: str, config: Config) -> grpc.Channel:
    scheme, _, authority = url.partition("://")
    if scheme == "unix":
        return grpc.insecure_channel(f"unix:{authority}")
    if scheme == "http":
        return grpc.insecure_channel(authority)
    values = config.values
    key_file = str(values["client-key-file"] or values["key-file"])
    cert_file = str(values["client-cert-file"] or values["cert-file"])
    try:
        trusted, key, cert = (
            Path(name).read_bytes() if name else None
            for name in (str(values["trusted-ca-file"]), key_file, cert_file)
        )
    except OSError as error:
        raise ConfigError(f"--rebuild-from-peers {url}: {error}") from None
    return grpc.secure_channel(authority, grpc.ssl_channel_credentials(trusted, key, cert))


def _text(error: grpc.RpcError) -> str:
    """Return what a failed call says; grpcio's errors are calls as well, which no type tells."""
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    return f"{code().name}: {details()}" if code and details else str(error)
