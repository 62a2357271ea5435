"""One other member and all links to it.

to it     the msgapp and message streams it dialled; POSTs while there is none
from it   the msgapp and message streams this member dialled
besides   a prober
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kvstack.component.logger import Logger
from kvstore.peers.counters import PeerCounters
from kvstore.peers.identity import Identity
from kvstore.peers.pipeline import Pipeline
from kvstore.peers.prober import Prober
from kvstore.peers.status import PeerStatus, UrlPicker
from kvstore.peers.streams.arrivals import Arrivals
from kvstore.peers.streams.link_loop import LinkLoop
from kvstore.peers.streams.outbound_stream import OutboundStream
from kvstore.peers.streams.stream_reader import MESSAGE, MSGAPP, StreamReader
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
    """The objects that all peers share."""

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
    """A member known only by the URLs it advertised; it is sent POSTs."""

    def __init__(
        self,
        context: PeerContext,
        member_id: int,
        urls: Sequence[str],
        counters: PeerCounters,
    ) -> None:
        self.id = member_id
        self.counters = counters
        self.picker = UrlPicker(tuple(urls) or ("",))
        self.status = PeerStatus(member_id, counters, context.logger)
        self.pipeline = Pipeline(
            context.identity,
            member_id,
            self.picker,
            self.status,
            counters,
            tls=context.tls,
            dial_timeout_s=context.dial_timeout_s,
            on_lost=lambda: context.arrivals.report_lost(member_id),
            on_removed=context.on_removed,
            logger=context.logger,
        )

    def begin_stop(self) -> None:
        """Start to close the links; does not block."""
        self.pipeline.stop()


class Peer(Remote):
    """A member of the cluster."""

    def __init__(
        self,
        context: PeerContext,
        member_id: int,
        urls: Sequence[str],
        counters: PeerCounters,
    ) -> None:
        super().__init__(context, member_id, urls, counters)
        self._context = context
        self.msgapp = OutboundStream(
            MSGAPP,
            MSGAPP_HEARTBEAT,
            lambda: MsgAppEncoder(context.memo),
            context.loop,
            counters,
            self._lost,
            context.write_timeout_s,
        )
        self.message = OutboundStream(
            MESSAGE,
            MESSAGE_HEARTBEAT,
            MessageEncoder,
            context.loop,
            counters,
            self._lost,
            context.write_timeout_s,
            lambda: context.arrivals.report_attached(member_id),  # for messages of a leader
        )
        local = context.identity.member_id
        self._readers = [
            StreamReader(
                kind,
                context.identity,
                member_id,
                self.picker,
                self.status,
                counters,
                tls=context.tls,
                dial_timeout_s=context.dial_timeout_s,
                silence_s_max=context.read_timeout_s,
                make_decoder=make_decoder,
                ready=context.arrivals.ready,
                on_removed=context.on_removed,
                logger=context.logger,
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
            tls=context.tls,
            dial_timeout_s=context.dial_timeout_s,
            interval_s=context.probe_interval_s,
            logger=context.logger,
        )

    def start(self) -> None:
        """Start to dial."""
        for reader in self._readers:
            reader.start()
        self._prober.start()

    def outbound_for(self, message: Message) -> OutboundStream | None:
        """Return the stream for a message; None: there is none, and it is sent as a POST."""
        if message.type == _APP and self.msgapp.is_attached:
            return self.msgapp
        return self.message if self.message.is_attached else None

    def stream(self, kind: str) -> OutboundStream:
        """Return the outbound stream of a kind."""
        return self.msgapp if kind == MSGAPP else self.message

    def send_heartbeats(self) -> None:
        """Send heartbeats on idle streams; called in the link loop."""
        self.msgapp.send_heartbeat()
        self.message.send_heartbeat()

    @override
    def begin_stop(self) -> None:
        """Start to close the links; does not block."""
        super().begin_stop()
        for reader in self._readers:
            reader.begin_stop()
        self._prober.begin_stop()
        self.msgapp.close()
        self.message.close()

    def join(self, timeout_s: float) -> None:
        """Wait for the reader threads."""
        for reader in self._readers:
            reader.join(timeout_s)

    def _lost(self, kind: str, action: str, reason: str) -> None:
        self._context.arrivals.report_lost(self.id)
        self._context.logger.warning(
            "lost TCP streaming connection with remote peer",
            stream=kind,
            action=action,
            error=reason,
            remote_peer_id=f"{self.id:x}",
        )
        if action != "read":
            self.status.deactivate(f"stream {kind}", action, reason)
