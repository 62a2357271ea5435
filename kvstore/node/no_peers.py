"""The links of a member that is alone."""

from collections.abc import Mapping, Sequence

from kvstore.raft.model import Message


class NoPeers:
    """`PeerLinks` without peers."""

    def send(self, messages: Sequence[Message]) -> None:
        """See PeerLinks."""

    def send_snapshot(self, message: Message) -> None:
        """See PeerLinks."""

    def set_members(self, peers: Mapping[int, Sequence[str]]) -> None:
        """See PeerLinks."""

    def defer_wakeups(self, for_ns: int) -> None:
        """See PeerLinks."""

    def active_since_ns(self, member_id: int) -> int | None:
        """See PeerLinks."""
        del member_id
        return None
