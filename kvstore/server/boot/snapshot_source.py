"""The source of a rebuild: another member, reached by its client URL, that streams a snapshot.

It must belong to the same cluster, must not be a learner, and no CORRUPT alarm may name it. With
authentication, --rebuild-user names the user; only root may read snapshots.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstore.client import ClientOptions, ClientTls
from kvstore.client.blocking import OwnLoop
from kvstore.client.channel_store import ChannelStore
from kvstore.client.codec.decode import parse
from kvstore.client.codec.messages import Messages
from kvstore.client.connect import open_channel
from kvstore.client.errors import CallFailedError, StoreError
from kvstore.client.tls_files import check_files
from kvstore.client.values import StatusResult
from kvstore.config.model import Config
from kvstore.errors import Code, DataDirError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.varint import WireError

_ASK_TIMEOUT_S: Final = 10.0
_REACH_S: Final = 2.0  # then the next member is tried


class SnapshotSource:
    """A connection to one member's client port."""

    def __init__(self, url: str, config: Config) -> None:
        """Connect when first asked; ConfigError if the TLS files cannot be used."""
        self.url = url
        options = _options(url, config)
        self._channel = open_channel([url], options)
        self._loop = OwnLoop()
        self._store = self._loop.enter(ChannelStore(self._channel, options))

    def close(self) -> None:
        """End the connection."""
        self._loop.close()

    def status(self) -> StatusResult:
        """Return the status of the member; StoreError if it does not answer."""
        return self._loop.run(self._store.status())

    def snapshot(self) -> Iterator[bytes]:
        """Yield the pieces of the database and of the hash after it."""
        try:
            yield from self._loop.iterate(self._pieces())
        except (CallFailedError, WireError) as error:
            raise DataDirError(f"the snapshot of {self.url} was interrupted: {error}") from None

    async def _pieces(self) -> AsyncIterator[bytes]:
        messages = Messages()
        metadata = await self._store.stream_metadata()
        messages.stream = self._channel.open(rpc.SNAPSHOT, metadata, messages)
        messages.stream.send(b"")
        messages.stream.half_close()
        try:
            async for message in messages:
                yield parse(pb.SnapshotResponse, message).blob
        finally:
            messages.cancel()


def find_source(
    urls: Sequence[str], config: Config, cluster_id: int, own_id: int, logger: Logger
) -> SnapshotSource:
    """Return the first member of urls that can provide its data; ConfigError if none can."""
    reasons: list[str] = []
    for url in urls:
        source = SnapshotSource(url, config)
        try:
            reason = _unfit(source.status(), cluster_id, own_id)
        except StoreError as error:
            reason = f"{Code(error.code).name}: {error.text}"
        if not reason:
            return source
        source.close()
        logger.warning("cannot rebuild from this member", url=url, reason=reason)
        reasons.append(f"{url}: {reason}")
    raise ConfigError(
        f"--rebuild-from-peers: no member can provide its data ({'; '.join(reasons)})"
    )


def _unfit(status: StatusResult, cluster_id: int, own_id: int) -> str:
    if status.cluster_id != cluster_id:
        return f"it is of cluster {status.cluster_id:x}, this member of {cluster_id:x}"
    if status.member_id == own_id:
        return "it is this member itself"
    if status.is_learner:
        return "it is a learner"
    accused = f"memberID:{status.member_id} alarm:CORRUPT"
    if any(accused in error for error in status.errors):
        return "a CORRUPT alarm names it"
    return ""


def _options(url: str, config: Config) -> ClientOptions:
    user, _, password = config.rebuild_user.partition(":")
    flags = config.client_tls
    tls = ClientTls(
        cert_file=flags.client_cert_file or flags.cert_file,
        key_file=flags.client_key_file or flags.key_file,
        trusted_ca_file=flags.trusted_ca_file,
    )
    if not url.startswith(("https:", "unixs:")):
        tls = ClientTls()
    try:
        check_files(tls)
    except ConfigError as error:
        raise ConfigError(f"--rebuild-from-peers {url}: {error}") from None
    return ClientOptions(
        timeout_s=_ASK_TIMEOUT_S, reach_s=_REACH_S, user=user, password=password, tls=tls
    )
