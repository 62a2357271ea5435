"""One other member and every link to it.

to it     msgapp stream and message stream it dialled, else POSTs
from it   msgapp stream and message stream we dialled
beside    a prober
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kvstore.logger import Logger
from kvstore.peers.arrivals import Arrivals
from kvstore.peers.counters import PeerCounters
from kvstore.peers.identity import Identity
from kvstore.peers.link_loop import LinkLoop
from kvstore.peers.outbound_stream import OutboundStream
from kvstore.peers.pipeline import Pipeline
from kvstore.peers.prober import Prober
from kvstore.peers.status import PeerStatus, UrlPicker
from kvstore.peers.stream_reader import MESSAGE, MSGAPP, StreamReader
from kvstore.peers.tls import PeerTls
from kvstore.raft.model import Message, MessageType
from kvstore.types import override
from kvstore.wire.msgapp_codec import (
    MESSAGE_HEARTBEAT,
    MSGAPP_HEARTBEAT,
    EntriesMemo,
    MessageDecoder,
    MessageEncoder,
    MsgAppDecoder,
    MsgAppEncoder,
)

_APP: Final = int(MessageType.APP)


class PeerContext(NamedTuple):
    """What all peers share."""

    identity: Identity
    tls: PeerTls
    dial_timeout_s: float
    probe_interval_s: float
    read_timeout_s: float
    write_timeout_s: float
    loop: LinkLoop
    arrivals: Arrivals
    memo: EntriesMemo
    on_removed: Callable[[str], None]
    logger: Logger


class Remote:
    """A member known only by what it said of itself: it gets POSTs."""

    def __init__(
        self,
        around: PeerContext,
        member_id: int,
        urls: Sequence[str],
        counters: PeerCounters,
    ) -> None:
        self.id = member_id
        self.counters = counters
        self.picker = UrlPicker(tuple(urls) or ("",))
        self.status = PeerStatus(member_id, counters, around.logger)
        self.pipeline = Pipeline(
            around.identity,
            member_id,
            self.picker,
            self.status,
            counters,
            tls=around.tls,
            dial_timeout_s=around.dial_timeout_s,
            on_lost=lambda: around.arrivals.lose(member_id),
            on_removed=around.on_removed,
            logger=around.logger,
        )

    def begin_stop(self) -> None:
        """Give up the links; waits for nothing."""
        self.pipeline.stop()


class Peer(Remote):
    """A member of the cluster."""

    def __init__(
        self,
        around: PeerContext,
        member_id: int,
        urls: Sequence[str],
        counters: PeerCounters,
    ) -> None:
        super().__init__(around, member_id, urls, counters)
        self._around = around
        self.msgapp = OutboundStream(
            MSGAPP,
            MSGAPP_HEARTBEAT,
            lambda: MsgAppEncoder(around.memo),
            around.loop,
            counters,
            self._lost,
            around.write_timeout_s,
        )
        self.message = OutboundStream(
            MESSAGE,
            MESSAGE_HEARTBEAT,
            MessageEncoder,
            around.loop,
            counters,
            self._lost,
            around.write_timeout_s,
            lambda: around.arrivals.reach(member_id),  # what a leader says goes here
        )
        local = around.identity.member_id
        self._readers = [
            StreamReader(
                kind,
                around.identity,
                member_id,
                self.picker,
                self.status,
                counters,
                tls=around.tls,
                dial_timeout_s=around.dial_timeout_s,
                silence_s_max=around.read_timeout_s,
                make_decoder=make_decoder,
                ready=around.arrivals.ready,
                on_removed=around.on_removed,
                logger=around.logger,
            )
            for kind, make_decoder in (
                (MSGAPP, lambda: MsgAppDecoder(local, member_id)),
                (MESSAGE, MessageDecoder),
            )
        ]
        self._prober = Prober(
            member_id,
            self.picker,
            counters,
            tls=around.tls,
            dial_timeout_s=around.dial_timeout_s,
            interval_s=around.probe_interval_s,
            logger=around.logger,
        )

    def start(self) -> None:
        """Dial."""
        for reader in self._readers:
            reader.start()
        self._prober.start()

    def outbound_for(self, message: Message) -> OutboundStream | None:
        """Return the stream a message goes on; None: there is none, it goes as a POST."""
        if message.type == _APP and self.msgapp.is_attached:
            return self.msgapp
        return self.message if self.message.is_attached else None

    def stream(self, kind: str) -> OutboundStream:
        """Return the sending end of a kind of stream."""
        return self.msgapp if kind == MSGAPP else self.message

    def beat(self) -> None:
        """Send heartbeats on what stands idle; in the link loop."""
        self.msgapp.beat()
        self.message.beat()

    @override
    def begin_stop(self) -> None:
        """Give up the links; waits for nothing."""
        super().begin_stop()
        for reader in self._readers:
            reader.begin_stop()
        self._prober.begin_stop()
        self.msgapp.close()
        self.message.close()

    def join(self, timeout_s: float) -> None:
        """Wait for the threads that read."""
        for reader in self._readers:
            reader.join(timeout_s)

    def _lost(self, kind: str, action: str, reason: str) -> None:
        self._around.arrivals.lose(self.id)
        self._around.logger.warning(
            "lost TCP streaming connection with remote peer",
            stream=kind,
            action=action,
            error=reason,
            remote_peer_id=f"{self.id:x}",
        )
        if action != "read":
            self.status.deactivate(f"stream {kind}", action, reason)
