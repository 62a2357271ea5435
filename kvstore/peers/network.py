"""The links to the other members: `PeerLinks` over etcd's peer protocol.

    network = PeerNetwork(options, …)
    network.bind(urls)                        ConfigError if an address cannot be bound
    network.start(wake)                       messages arrive from now on
    …  fill(inbox) before each turn, drain(out) after it; the node calls send, send_snapshot, …
    network.stop()

Nothing the turn's thread calls here blocks: a message goes to a socket that is writable or to a
queue with a limit, or it is lost and its member reported unreachable. What blocks has threads: one
for each stream that this member dialled, one for each connection of the peer port, and one for all
that is unsent.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstore.batch import Inbox, OffloadedTask, Outbox
from kvstore.peers.counters import PeerCounters
from kvstore.peers.handlers import Handlers, Questions
from kvstore.peers.http_client import PeerRequestError, check_url
from kvstore.peers.identity import Identity
from kvstore.peers.listener import Listener
from kvstore.peers.peer import Peer, PeerContext, Remote
from kvstore.peers.snapshots.snapshot_receiver import SnapshotReceiver
from kvstore.peers.snapshots.snapshot_sender import SnapshotProvider, SnapshotSender
from kvstore.peers.streams.arrivals import Arrivals
from kvstore.peers.streams.link_loop import LinkLoop
from kvstore.peers.streams.outbound_stream import HEARTBEAT_S, OutboundStream
from kvstore.peers.streams.ready_set import ReadySet
from kvstore.peers.tasks import METHODS, PeerTasks
from kvstore.peers.tls import PeerTls
from kvstore.raft.model import Message
from kvstore.wire.msgapp_codec import EntriesMemo

REMOTES_MAX: Final = 64
COUNTERS_MAX: Final = 1024
_STOP_S: Final = 2.0
TIMEOUT_S_MIN: Final = 5.0  # as in etcd: heartbeats are three times as frequent


class NetworkOptions(NamedTuple):
    """The settings of the links."""

    identity: Identity
    tls: PeerTls
    dial_timeout_s: float  # etcd's: one second and the election timeout
    request_timeout_s: float  # of a task
    probe_interval_s: float = 4.0  # less than the 5 s after which an idle connection is closed
    read_timeout_s: float = TIMEOUT_S_MIN  # a connection that sends nothing for so long is closed
    write_timeout_s: float = TIMEOUT_S_MIN  # and one that accepts nothing
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

        on_removed(reason) is called when another member answers that this one was removed.
        """
        self._identity = options.identity
        self._logger = logger
        self.is_removed = is_removed  # called by the peer port
        self._arrivals = Arrivals(options.identity.member_id, is_removed)
        self._loop = LinkLoop(logger)
        self._context = PeerContext(
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
        self._lock = threading.Lock()  # of the next three, which are replaced, never mutated
        self._peers: dict[int, Peer] = {}
        self._remotes: dict[int, Remote] = {}
        self.counters: dict[int, PeerCounters] = {}  # by member id; for the metrics page
        self._is_stopping = False

    # Start and stop.

    def bind(self, urls: Sequence[str]) -> list[str]:
        """Bind the peer addresses; return them with the actual ports.

        ConfigError if one cannot be bound; the network is closed then.
        """
        try:
            self._listener.bind(urls)
        except ConfigError:
            self.stop()
            raise
        return self._listener.bound_urls

    def start(self, wake: Callable[[], None]) -> None:
        """Start to listen and to dial; wake, called in any thread, makes the driver take a turn."""
        self._arrivals.wake = self._arrivals.ready.wake = wake
        self._loop.every(HEARTBEAT_S, self._send_heartbeats)
        self._loop.start()
        self._listener.start()

    def stop(self) -> None:
        """Close everything; a second call does nothing."""
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
        """The set of streams, for a transport that can poll it together with its clients."""
        return self._arrivals.ready

    # Called by the turn's thread.

    def fill(self, inbox: Inbox) -> None:
        """Move what has arrived into the inbox."""
        self._arrivals.fill(inbox)

    def drain(self, out: Outbox) -> None:
        """Start the tasks that are requests to other members, and remove them from out."""
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
        """Send raft's messages, except snapshots."""
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
                    self._arrivals.report_lost(message.to)
            elif outbound in batches:
                batches[outbound].append(message)
            else:
                batches[outbound] = [message]
        for outbound, batch in batches.items():
            if not outbound.write(batch):
                self._arrivals.report_lost(batch[0].to)

    def send_snapshot(self, message: Message) -> None:
        """Send a SNAP message and the database, as of its last commit when the sending starts."""
        peer = self._peers.get(message.to)
        if peer is None:
            self._arrivals.snapshot_done(message.to, False)
        else:
            self._snapshots.send(message, peer.picker, peer.status, peer.counters)

    def set_members(self, peers: Mapping[int, Sequence[str]]) -> None:
        """Set the other members' peer URLs by id; links to any other member are closed."""
        with self._lock:
            if self._is_stopping:
                return
            old = self._peers
            now = {each: old[each] for each in peers if each in old}
            added = [
                Peer(self._context, each, urls, self.counters_of(each))
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

    def defer_wakeups(self, for_ns: int) -> None:
        """See PeerLinks; has no effect if streams and clients are not polled together."""
        self._arrivals.ready.defer_wakeups(for_ns)

    def active_since_ns(self, member_id: int) -> int | None:
        """When (monotonic) the current connection to the member began; None: not connected."""
        peer = self._peers.get(member_id)
        return None if peer is None else peer.status.since_ns

    # Called by the peer port and by tasks, in any thread.

    def stream_to(self, member_id: int, kind: str) -> OutboundStream | None:
        """Return the stream of a kind to a member; None if the member is not known."""
        peer = self._peers.get(member_id)
        return None if peer is None else peer.stream(kind)

    def add_remote(self, member_id: int, urls: Sequence[str]) -> None:
        """Remember the peer URLs that an unknown member advertises; it is sent POSTs only."""
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
            remote = Remote(self._context, member_id, urls, self.counters_of(member_id))
            self._remotes = {**self._remotes, member_id: remote}
        self._logger.info("added new remote peer", remote_peer_id=f"{member_id:x}", urls=list(urls))

    def urls_of(self, member_id: int) -> Sequence[str]:
        """Return a member's peer URLs, the one in use first; empty if it is not known."""
        peer = self._peers.get(member_id) or self._remotes.get(member_id)
        if peer is None:
            return ()
        first = peer.picker.pick()
        return [first, *(url for url in peer.picker.urls if url != first)]

    def counters_of(self, member_id: int) -> PeerCounters:
        """Return a member's counters; beyond COUNTERS_MAX members they are not kept."""
        counters = self.counters.get(member_id)
        if counters is None:
            counters = PeerCounters()
            if len(self.counters) < COUNTERS_MAX:
                counters = self.counters.setdefault(member_id, counters)
        return counters

    def _send_remote(self, message: Message) -> None:
        remote = self._remotes.get(message.to)
        if remote is not None and not remote.pipeline.send(message):
            self._arrivals.report_lost(message.to)

    def _send_heartbeats(self) -> None:
        for peer in self._peers.values():
            peer.send_heartbeats()
        self._arrivals.ready.check_silence()
