"""The way to the other members and back: `PeerLinks` over etcd's peer protocol.

    network = PeerNetwork(options, …)
    network.bind(urls)                        ConfigError if an address cannot be had
    network.start(wake)                       from here on messages arrive
    …  fill(inbox) before each turn, drain(out) after it; the node calls send, send_snapshot, …
    network.stop()

Nothing the turn's thread calls here waits: messages go to a socket that has room, or to a queue
with a limit, or are lost and their member told as unreachable. Small threads do what waits: one a
stream that we dialled, one a connection of the peer port, one for everything unsent.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from kvstore.batch import Inbox, OffloadedTask, Outbox
from kvstore.errors import ConfigError
from kvstore.logger import Logger
from kvstore.peers.arrivals import Arrivals
from kvstore.peers.counters import PeerCounters
from kvstore.peers.handlers import Handlers, Questions
from kvstore.peers.http_client import PeerRequestError, check_url
from kvstore.peers.identity import Identity
from kvstore.peers.link_loop import LinkLoop
from kvstore.peers.listener import Listener
from kvstore.peers.outbound_stream import HEARTBEAT_S, OutboundStream
from kvstore.peers.peer import Peer, PeerContext, Remote
from kvstore.peers.ready_set import ReadySet
from kvstore.peers.snapshot_receiver import SnapshotReceiver
from kvstore.peers.snapshot_sender import SnapshotProvider, SnapshotSender
from kvstore.peers.tasks import METHODS, PeerTasks
from kvstore.peers.tls import PeerTls
from kvstore.raft.model import Message
from kvstore.wire.msgapp_codec import EntriesMemo

REMOTES_MAX: Final = 64
COUNTERS_MAX: Final = 1024
_STOP_S: Final = 2.0
TIMEOUT_S_MIN: Final = 5.0  # etcd raises lower ones to it: heartbeats come three times as often


class NetworkOptions(NamedTuple):
    """What the links are run with."""

    identity: Identity
    tls: PeerTls
    dial_timeout_s: float  # etcd's: one second and the election timeout
    request_timeout_s: float  # of a task
    probe_interval_s: float = 4.0  # less than the 5 s after which an idle connection is closed
    read_timeout_s: float = TIMEOUT_S_MIN  # a connection that says nothing for so long is closed
    write_timeout_s: float = TIMEOUT_S_MIN  # and so is one that takes nothing
    reuse_port: bool = False


class PeerNetwork:
    """All links of this member."""

    def __init__(
        self,
        options: NetworkOptions,
        *,
        source: SnapshotProvider,
        receiver: SnapshotReceiver,
        questions: Questions,
        is_removed: Callable[[int], bool],
        on_removed: Callable[[str], None],
        logger: Logger,
    ) -> None:
        """is_removed and on_removed are called in any thread.

        on_removed gets the reason, when another member says that this one was removed for good.
        """
        self._identity = options.identity
        self._logger = logger
        self.is_removed = is_removed  # asked by the peer port
        self._arrivals = Arrivals(options.identity.member_id, is_removed)
        self._loop = LinkLoop(logger)
        self._around = PeerContext(
            options.identity,
            options.tls,
            options.dial_timeout_s,
            options.probe_interval_s,
            options.read_timeout_s,
            options.write_timeout_s,
            self._loop,
            self._arrivals,
            EntriesMemo(),
            on_removed,
            logger,
        )
        self._snapshots = SnapshotSender(
            options.identity,
            source,
            tls=options.tls,
            dial_timeout_s=options.dial_timeout_s,
            stall_s=options.write_timeout_s,
            on_done=self._arrivals.snapshot_done,
            on_removed=on_removed,
            logger=logger,
        )
        self._tasks = PeerTasks(
            options.identity,
            self.urls_of,
            tls=options.tls,
            dial_timeout_s=options.dial_timeout_s,
            timeout_s=options.request_timeout_s,
            on_done=self._arrivals.task_done,
        )
        handlers = Handlers(options.identity, self, self._arrivals, receiver, questions, logger)
        self._listener = Listener(
            handlers,
            options.tls,
            logger,
            read_timeout_s=options.read_timeout_s,
            reuse_port=options.reuse_port,
        )
        self._lock = threading.Lock()  # of the next three, which are replaced and never changed
        self._peers: dict[int, Peer] = {}
        self._remotes: dict[int, Remote] = {}
        self.counters: dict[int, PeerCounters] = {}  # by member id; for the metrics page
        self._is_stopping = False

    # Life.

    def bind(self, urls: Sequence[str]) -> list[str]:
        """Take the peer addresses; return them with the ports really bound.

        ConfigError if one cannot be had; the network is closed then.
        """
        try:
            self._listener.bind(urls)
        except ConfigError:
            self.stop()
            raise
        return self._listener.bound_urls

    def start(self, wake: Callable[[], None]) -> None:
        """Begin to listen and to dial; wake makes the driver take a turn, from any thread."""
        self._arrivals.wake = self._arrivals.ready.wake = wake
        self._loop.every(HEARTBEAT_S, self._beat)
        self._loop.start()
        self._listener.start()

    def stop(self) -> None:
        """Close everything; once is enough."""
        with self._lock:
            if self._is_stopping:
                return
            self._is_stopping = True
        self._arrivals.close()
        self._tasks.stop()
        self._snapshots.stop()
        self._listener.stop()
        for remote in [*self._remotes.values(), *self._peers.values()]:
            remote.begin_stop()
        deadline_s = time.monotonic() + _STOP_S
        for peer in self._peers.values():
            peer.join(max(deadline_s - time.monotonic(), 0.0))
        self._loop.stop()
        self._arrivals.ready.stop()

    @property
    def ready(self) -> ReadySet:
        """The streams' set, for a transport that can wait for it and clients at once."""
        return self._arrivals.ready

    # For the turn.

    def fill(self, inbox: Inbox) -> None:
        """Move what has arrived into the inbox."""
        self._arrivals.fill(inbox)

    def drain(self, out: Outbox) -> None:
        """Take the tasks that are questions to other members, and start them."""
        if not out.tasks:
            return
        left: list[OffloadedTask] = []
        for task in out.tasks:
            if task.kind in METHODS:
                self._tasks.start(task)
            else:
                left.append(task)
        out.tasks = left

    def send(self, messages: Sequence[Message]) -> None:
        """Send what raft wants sent, except snapshots."""
        batches: dict[OutboundStream, list[Message]] = {}
        peers = self._peers
        for message in messages:
            peer = peers.get(message.to)
            if peer is None:
                self._send_remote(message)
                continue
            outbound = peer.outbound_for(message)
            if outbound is None:
                if not peer.pipeline.send(message):
                    self._arrivals.lose(message.to)
            elif outbound in batches:
                batches[outbound].append(message)
            else:
                batches[outbound] = [message]
        for outbound, batch in batches.items():
            if not outbound.write(batch):
                self._arrivals.lose(batch[0].to)

    def send_snapshot(self, message: Message) -> None:
        """Stream the database as it is committed now or a little later, with a SNAP message."""
        peer = self._peers.get(message.to)
        if peer is None:
            self._arrivals.snapshot_done(message.to, False)
        else:
            self._snapshots.send(message, peer.picker, peer.status, peer.counters)

    def set_members(self, peers: Mapping[int, Sequence[str]]) -> None:
        """Take the other members' peer URLs by id; links to members not named are closed."""
        with self._lock:
            if self._is_stopping:
                return
            old = self._peers
            now = {each: old[each] for each in peers if each in old}
            added = [
                Peer(self._around, each, urls, self.counters_of(each))
                for each, urls in peers.items()
                if each not in old
            ]
            now.update({peer.id: peer for peer in added})
            self._peers = now
            gone: list[Remote] = [peer for each, peer in old.items() if each not in now]
            gone += [remote for each, remote in self._remotes.items() if each in now]
            self._remotes = {
                each: remote for each, remote in self._remotes.items() if each not in now
            }
        for remote in gone:
            remote.begin_stop()
        for each, urls in peers.items():
            if each in old and old[each].picker.urls != tuple(urls):
                old[each].picker.update(tuple(urls) or ("",))
        for peer in added:
            peer.start()
            self._logger.info(
                "added remote peer", remote_peer_id=f"{peer.id:x}", urls=list(peer.picker.urls)
            )

    def rest(self, rest_ns: int) -> None:
        """See PeerLinks; without a shared sleep, streams wake the turn whenever they have bytes."""
        self._arrivals.ready.rest(rest_ns)

    def active_since_ns(self, member_id: int) -> int | None:
        """Since when (monotonic) the member is connected without a break; None: it is not."""
        peer = self._peers.get(member_id)
        return None if peer is None else peer.status.since_ns

    # For the peer port and tasks; from any thread.

    def stream_to(self, member_id: int, kind: str) -> OutboundStream | None:
        """Return the sending end of a kind of stream to a member; None if it is not known."""
        peer = self._peers.get(member_id)
        return None if peer is None else peer.stream(kind)

    def add_remote(self, member_id: int, urls: Sequence[str]) -> None:
        """Note where a member says it can be reached, unless it is known; it is sent POSTs only."""
        if member_id in self._peers or member_id in self._remotes:
            return
        try:
            for url in urls:
                check_url(url)
        except PeerRequestError as error:
            self._logger.warning(
                "a member's own URLs cannot be used",
                remote_peer_id=f"{member_id:x}",
                error=str(error),
            )
            return
        with self._lock:
            is_known = member_id in self._peers or member_id in self._remotes
            if is_known or self._is_stopping or len(self._remotes) >= REMOTES_MAX:
                return
            if member_id == self._identity.member_id or self.is_removed(member_id):
                return
            remote = Remote(self._around, member_id, urls, self.counters_of(member_id))
            self._remotes = {**self._remotes, member_id: remote}
        self._logger.info("added new remote peer", remote_peer_id=f"{member_id:x}", urls=list(urls))

    def urls_of(self, member_id: int) -> Sequence[str]:
        """Return a member's peer URLs, the one in use first; none if it is not known."""
        peer = self._peers.get(member_id) or self._remotes.get(member_id)
        if peer is None:
            return ()
        first = peer.picker.pick()
        return [first, *(url for url in peer.picker.urls if url != first)]

    def counters_of(self, member_id: int) -> PeerCounters:
        """Return a member's numbers; those of members beyond COUNTERS_MAX are not kept."""
        counters = self.counters.get(member_id)
        if counters is None:
            counters = PeerCounters()
            if len(self.counters) < COUNTERS_MAX:
                counters = self.counters.setdefault(member_id, counters)
        return counters

    def _send_remote(self, message: Message) -> None:
        remote = self._remotes.get(message.to)
        if remote is not None and not remote.pipeline.send(message):
            self._arrivals.lose(message.to)

    def _beat(self) -> None:
        for peer in self._peers.values():
            peer.beat()
        self._arrivals.ready.check_silence()
