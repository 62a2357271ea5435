"""A raft node driven to rest by hand: what it would save, send and apply, kept in lists."""

import random
from dataclasses import dataclass, field
from typing import Any

from kvstore.raft import confchange_codec
from kvstore.raft.config import Config
from kvstore.raft.model import (
    EMPTY_SNAPSHOT,
    ConfChange,
    Entry,
    EntryType,
    HardState,
    Message,
    SnapshotMetadata,
)
from kvstore.raft.rawnode import RawNode
from kvstore.raft.ready import InitialState, Ready


@dataclass(slots=True)
class Driven:
    """One node and everything its rounds asked for."""

    raft: RawNode
    hard_state: HardState = field(default_factory=HardState)
    snapshot: SnapshotMetadata = EMPTY_SNAPSHOT.metadata
    saved: list[Entry] = field(default_factory=list)
    applied: list[Entry] = field(default_factory=list)
    sent: list[Message] = field(default_factory=list)
    reads: list[tuple[int, bytes]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def round(self) -> Ready | None:
        """Do one round; None if there is nothing to do."""
        ready = self.raft.ready()
        if ready is not None:
            self.work(ready)
            self.raft.advance(ready)
        return ready

    def work(self, ready: Ready) -> None:
        """Do what a Ready asks for, all but advancing it."""
        self.sent += ready.messages_early + ready.messages_late
        if ready.snapshot is not None:
            self.snapshot, self.saved = ready.snapshot.metadata, []
        if ready.entries:
            first = ready.entries[0].index
            self.saved = [entry for entry in self.saved if entry.index < first] + ready.entries
        if ready.hard_state is not None:
            self.hard_state = ready.hard_state
        for entry in ready.committed:
            self.applied.append(entry)
            if entry.type != EntryType.NORMAL:
                self.raft.apply_conf_change(confchange_codec.decode(entry.type, entry.data))
        self.reads += ready.read_states
        self.warnings += ready.warnings

    def settle(self) -> list[Ready]:
        """Do rounds until there is nothing to do."""
        readies: list[Ready] = []
        while (ready := self.round()) is not None:
            readies.append(ready)
        return readies

    def take_sent(self) -> list[Message]:
        """Hand over what was sent since the last call."""
        sent, self.sent = self.sent, []
        return sent

    def data(self) -> list[bytes]:
        """The data of what was applied, without empty entries and configuration changes."""
        return [each.data for each in self.applied if each.type == EntryType.NORMAL and each.data]


def new_cluster(*member_ids: int, own_id: int, **settings: Any) -> Driven:
    """A member of a new cluster, its first entries applied."""
    driven = Driven(RawNode(Config(own_id, **settings), InitialState(), random.Random(own_id)))
    driven.raft.bootstrap([ConfChange(0, 0, member, b"") for member in member_ids])
    driven.settle()
    return driven


def lone_leader(**settings: Any) -> Driven:
    """A cluster of one, leading, with everything applied."""
    driven = new_cluster(1, own_id=1, **settings)
    driven.raft.campaign()
    driven.settle()
    return driven


class Group:
    """Members that hand each other every message at once, but for those cut off."""

    def __init__(self, *member_ids: int, **settings: Any) -> None:
        self.nodes = {
            member: new_cluster(*member_ids, own_id=member, **settings) for member in member_ids
        }
        self.cut: set[int] = set()

    def __getitem__(self, member: int) -> Driven:
        return self.nodes[member]

    def settle(self) -> None:
        """Rounds and deliveries until nothing is left to do; messages of the cut off are lost."""
        for _ in range(1000):
            busy = False
            for member, node in self.nodes.items():
                node.settle()
                for message in node.take_sent():
                    if not {member, message.to} & self.cut and message.to in self.nodes:
                        self.nodes[message.to].raft.step(message)
                        busy = True
            if not busy:
                return
        raise AssertionError("messages never cease")

    def elect(self, member: int) -> Driven:
        """Have a member elected; the others forget whom they followed."""
        for node in self.nodes.values():
            node.raft.forget_leader()
        self.nodes[member].raft.campaign()
        self.settle()
        assert self.nodes[member].raft.is_leader
        return self.nodes[member]

    def propose(self, member: int, *datas: bytes) -> None:
        """Propose and settle."""
        self.nodes[member].raft.propose(datas)
        self.settle()
