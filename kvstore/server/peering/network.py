"""Makes the links to the other members from the configuration and the node's parts."""

from collections.abc import Callable

from kvstack.component.logger import Logger
from kvstore.config.model import Config
from kvstore.node.parts import Parts
from kvstore.peers.identity import Identity
from kvstore.peers.network import TIMEOUT_S_MIN, NetworkOptions, PeerNetwork
from kvstore.peers.snapshots.snapshot_receiver import SnapshotReceiver
from kvstore.runtime.side_loop import SideLoop
from kvstore.server.boot.data_dir import DataDir
from kvstore.server.boot.founding import peer_tls_of
from kvstore.server.peering.questions import Facts, PeerQuestions
from kvstore.server.peering.snapshots import DatabaseFiles


def open_network(
    config: Config,
    parts: Parts,
    paths: DataDir,
    side: SideLoop,
    on_removed: Callable[[str], None],
    logger: Logger,
) -> PeerNetwork:
    """Listen on the peer addresses; ConfigError if one cannot be used. Sends nothing yet.

    on_removed is called, in any thread, when another member reports that this one was removed.
    """
    read_timeout_s = _timeout_s("raft-read-timeout", config.raft_read_timeout_s, logger)
    membership = parts.state.membership
    files = DatabaseFiles(paths.member, paths.tmp)
    network = PeerNetwork(
        NetworkOptions(
            Identity(
                parts.member_id,
                parts.cluster_id,
                config.initial_advertise_peer_urls,
            ),
            peer_tls_of(config),
            dial_timeout_s=1 + config.election_timeout_ms / 1000,
            request_timeout_s=config.request_timeout_s,
            probe_interval_s=read_timeout_s - 1,
            read_timeout_s=read_timeout_s,
            write_timeout_s=_timeout_s("raft-write-timeout", config.raft_write_timeout_s, logger),
            reuse_port=config.socket_reuse_port,
        ),
        source=files,
        receiver=SnapshotReceiver(paths.snap, files.begin_import, logger),
        questions=PeerQuestions(
            side.client,
            side.submit,
            Facts(
                parts.cluster_id,
                lambda: membership.cluster_version,
                lambda: bool(membership.downgrade_target),
            ),
        ),
        is_removed=lambda member_id: member_id in membership.removed,
        on_removed=on_removed,
        logger=logger,
    )
    for url in network.bind(config.listen_peer_urls):
        logger.info("listening for peers", address=url)
    return network


def _timeout_s(flag: str, given_s: float, logger: Logger) -> float:
    """Return a timeout of peer connections, raised to the minimum as etcd does."""
    if given_s < TIMEOUT_S_MIN:
        logger.info(f"{flag} increased to minimum value: {TIMEOUT_S_MIN:g}s")
    return max(given_s, TIMEOUT_S_MIN)
