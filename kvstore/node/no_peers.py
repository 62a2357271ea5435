"""The links of a member that has no others."""

from collections.abc import Mapping, Sequence

from kvstore.raft.model import Message


class NoPeers:
    """`PeerLinks` to nobody: for one member alone, which never has anything to send."""

    def send(self, messages: Sequence[Message]) -> None:
        """See PeerLinks."""

    def send_snapshot(self, message: Message) -> None:
        """See PeerLinks."""

    def set_members(self, peers: Mapping[int, Sequence[str]]) -> None:
        """See PeerLinks."""

    def rest(self, rest_ns: int) -> None:
        """See PeerLinks."""

    def active_since_ns(self, member_id: int) -> int | None:
        """See PeerLinks."""
        del member_id
        return None
