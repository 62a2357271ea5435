"""Golden scripts of raft: several nodes in one process, every message delivered by the script.

    nodes 3 [learners=4] [pre_vote=0 …]  members 1…3 with a common log; settings as in Config
    add 4                              a member that has nothing yet
    campaign 1 · tick 1 [count=3] · propose 1 foo bar · read 1 ctx · transfer 1 to=2 · forget 2
    change 1 v4 r2 l5 [transition=explicit|implicit] · leave 1
    compact 1 index=5 · unreachable 1 member=2 · sent 1 member=2 ok=0
    ready 1           one round of node 1: what it wants done
    deliver 2 [from=1] [type=APP] [last=1] [again=1]   hand over what is on its way to node 2; once
                      more later
    drop 2 [from=1] [type=APP]   lose it
    settle [1 2] [quiet=1]       rounds and deliveries until nothing is left to do
    restart 2                    forget all but what was saved
    status · progress 1 · log 1 · wire

Entries are written term/index "data"; an append `after 1/3` follows entry 3 of term 1.
"""

import random
from collections.abc import Iterable
from typing import Any

from kvstore.raft import confchange_codec
from kvstore.raft.config import Config
from kvstore.raft.model import (
    ConfChange,
    ConfChangeSingle,
    ConfChangeType,
    ConfChangeV2,
    ConfState,
    Entry,
    EntryType,
    HardState,
    Message,
    MessageType,
    Role,
)
from kvstore.raft.progress import ProgressKind
from kvstore.raft.rawnode import RawNode
from kvstore.raft.ready import InitialState, ProposeResult, Ready
from kvstore.raft.status import ProgressStatus
from tests.support.golden import Block
from tests.support.raft.node import Driven

ROUNDS_MAX = 200
_SETTING_NAMES = frozenset(Config.__slots__)
_CHANGES = {
    "v": ConfChangeType.ADD_NODE,
    "r": ConfChangeType.REMOVE_NODE,
    "u": ConfChangeType.UPDATE_NODE,
    "l": ConfChangeType.ADD_LEARNER_NODE,
}
_TRANSITIONS = {"auto": 0, "implicit": 1, "explicit": 2}


class Script:
    """The nodes and messages of one script."""

    def __init__(self) -> None:
        self.nodes: dict[int, Driven] = {}
        self.wire: list[Message] = []
        self.settings: dict[str, Any] = {}

    def handle(self, block: Block) -> str:
        """Carry out one command and print what it shows."""
        method = getattr(self, f"do_{block.command}")
        return "\n".join(method(block))

    # Members.

    def do_nodes(self, block: Block) -> Iterable[str]:
        named = block.named
        self.settings = {
            name: int(value) for name, value in named.items() if name in _SETTING_NAMES
        }
        voters = tuple(range(1, int(block.words[0]) + 1))
        learners = tuple(int(each) for each in named.get("learners", "").split(",") if each)
        for member in (*voters, *learners):
            self.nodes[member] = self._node(member, common_log(voters, learners))
        yield f"voters={list(voters)} learners={list(learners)} log to 1/{len(voters + learners)}"

    def do_add(self, block: Block) -> Iterable[str]:
        member = int(block.words[0])
        self.nodes[member] = self._node(member, InitialState())
        yield f"{member} knows nothing"

    def do_restart(self, block: Block) -> Iterable[str]:
        member = int(block.words[0])
        old = self.nodes[member]
        status = old.raft.status()
        boundary = status.first_index - 1
        state = InitialState(
            hard_state=old.hard_state,
            conf_state=old.raft.conf_state,
            snapshot_index=boundary,
            snapshot_term=old.raft.term_at(boundary) or 0,
            entries=[entry for entry in old.saved if entry.index > boundary],
            applied=status.applied,
        )
        self.nodes[member] = self._node(member, state)
        yield from self._status(member)

    def _node(self, member: int, state: InitialState) -> Driven:
        raft = RawNode(Config(member, **self.settings), state, random.Random(member))
        return Driven(raft, hard_state=state.hard_state, saved=list(state.entries))

    # Wishes.

    def do_campaign(self, block: Block) -> Iterable[str]:
        self._of(block).raft.campaign()
        yield from self._status(int(block.words[0]))

    def do_tick(self, block: Block) -> Iterable[str]:
        raft = self._of(block).raft
        for _ in range(int(block.named.get("count", "1"))):
            raft.tick()
        if "lump" in block.named:
            raft.tick_many(int(block.named["lump"]))
        yield from self._status(raft.id)

    def do_propose(self, block: Block) -> Iterable[str]:
        datas = [word.encode() for word in block.words[1:]]
        yield show_result(self._of(block).raft.propose(datas))

    def do_change(self, block: Block) -> Iterable[str]:
        singles = tuple(ConfChangeSingle(_CHANGES[w[0]], int(w[1:])) for w in block.words[1:])
        transition = block.named.get("transition")
        raft = self._of(block).raft
        if len(singles) == 1 and transition is None:
            kind, node_id = singles[0]
            yield show_result(raft.propose_conf_change(ConfChange(1, kind, node_id)))
        else:
            change = ConfChangeV2(_TRANSITIONS[transition or "auto"], singles)
            yield show_result(raft.propose_conf_change(change))

    def do_leave(self, block: Block) -> Iterable[str]:
        yield show_result(self._of(block).raft.propose_conf_change(ConfChangeV2()))

    def do_read(self, block: Block) -> Iterable[str]:
        asked = self._of(block).raft.read_index(block.words[1].encode())
        yield "asked" if asked else "no leader"

    def do_transfer(self, block: Block) -> Iterable[str]:
        raft = self._of(block).raft
        raft.transfer_leader(int(block.named["to"]))
        yield f"transferee={raft.transferee}"

    def do_forget(self, block: Block) -> Iterable[str]:
        self._of(block).raft.forget_leader()
        yield from self._status(int(block.words[0]))

    def do_compact(self, block: Block) -> Iterable[str]:
        raft = self._of(block).raft
        raft.compact(int(block.named["index"]))
        yield f"log from {raft.first_index} to {raft.last_index}"

    def do_unreachable(self, block: Block) -> Iterable[str]:
        self._of(block).raft.report_unreachable(int(block.named["member"]))
        return self.do_progress(block)

    def do_sent(self, block: Block) -> Iterable[str]:
        ok = block.named["ok"] == "1"
        self._of(block).raft.report_snapshot(int(block.named["member"]), ok=ok)
        return self.do_progress(block)

    # Rounds and messages.

    def do_ready(self, block: Block) -> Iterable[str]:
        yield from self._round(int(block.words[0])) or ["nothing to do"]

    def _round(self, member: int) -> list[str]:
        node = self.nodes[member]
        ready = node.round()
        if ready is None:
            return []
        self.wire += node.take_sent()
        return list(show_ready(ready, node))

    def do_deliver(self, block: Block) -> Iterable[str]:
        taken = self._take(block)
        if "again" in block.named:
            self.wire += taken
        return self._deliver(taken) or ["nothing on its way"]

    def _deliver(self, taken: list[Message]) -> list[str]:
        for message in taken:
            self.nodes[message.to].raft.step(copied(message))
        return [show_message(message) for message in taken]

    def do_drop(self, block: Block) -> Iterable[str]:
        return [show_message(message) for message in self._take(block)] or ["nothing on its way"]

    def do_settle(self, block: Block) -> Iterable[str]:
        members = [int(word) for word in block.words] or sorted(self.nodes)
        lines: list[str] = []
        for _ in range(ROUNDS_MAX):
            before = len(lines)
            for member in members:
                shown = self._round(member)
                lines += [f"{member} does", *(f"  {line}" for line in shown)] if shown else []
            for member in members:
                shown = self._deliver(self._take_all(member))
                lines += [f"{member} gets", *(f"  {line}" for line in shown)] if shown else []
            if len(lines) == before:
                return ["done"] if block.named.get("quiet") else lines
        raise AssertionError("the nodes do not come to rest")

    def do_wire(self, block: Block) -> Iterable[str]:
        return [show_message(message) for message in self.wire]

    def _take_all(self, to: int) -> list[Message]:
        taken = [message for message in self.wire if message.to == to]
        self.wire = [message for message in self.wire if message.to != to]
        return taken

    def _take(self, block: Block) -> list[Message]:
        to, named = int(block.words[0]), block.named
        from_ = int(named["from"]) if "from" in named else None
        kind = MessageType[named["type"]] if "type" in named else None
        taken = [
            message
            for message in self.wire
            if message.to == to
            and from_ in (None, message.from_)
            and kind in (None, MessageType(message.type))
        ]
        if "last" in named:
            taken = taken[-int(named["last"]) :]
        self.wire = [message for message in self.wire if all(message is not each for each in taken)]
        return taken

    # What is seen.

    def do_status(self, block: Block) -> Iterable[str]:
        members = [int(word) for word in block.words] or sorted(self.nodes)
        return [line for member in members for line in self._status(member)]

    def _status(self, member: int) -> list[str]:
        each = self.nodes[member].raft.status()
        line = (
            f"{member}: {Role(each.role).name} term={each.term} vote={each.vote} lead={each.lead}"
            f" last={each.last_index} commit={each.commit} applied={each.applied}"
            f" {show_configuration(each.conf_state)}"
        )
        return [line]

    def do_progress(self, block: Block) -> Iterable[str]:
        progress = self._of(block).raft.status().progress
        return [f"{member}: {show_progress(each)}" for member, each in progress.items()]

    def do_log(self, block: Block) -> Iterable[str]:
        node = self._of(block)
        yield f"from {node.raft.first_index} to {node.raft.last_index}"
        for index in range(node.raft.first_index, node.raft.last_index + 1):
            yield f"{node.raft.term_at(index)}/{index}"

    def _of(self, block: Block) -> Driven:
        return self.nodes[int(block.words[0])]


def common_log(voters: tuple[int, ...], learners: tuple[int, ...] = ()) -> InitialState:
    """A start every member shares: the members' own entries in term 1, applied."""
    changes = [ConfChange(0, ConfChangeType.ADD_NODE, member) for member in voters]
    changes += [ConfChange(0, ConfChangeType.ADD_LEARNER_NODE, member) for member in learners]
    return InitialState(
        hard_state=HardState(1, 0, len(changes)),
        conf_state=ConfState(voters, learners),
        entries=[
            Entry(EntryType.CONF_CHANGE, 1, index, confchange_codec.encode(change))
            for index, change in enumerate(changes, 1)
        ],
        applied=len(changes),
    )


def copied(message: Message) -> Message:
    """A message as it would come off the wire."""
    return Message(
        message.type,
        message.to,
        message.from_,
        message.term,
        message.log_term,
        message.index,
        list(message.entries),
        message.commit,
        message.snapshot,
        message.reject,
        message.reject_hint,
        message.context,
    )


def show_ready(ready: Ready, node: Driven) -> Iterable[str]:
    """Print what a round asked for."""
    if ready.soft_state is not None:
        yield f"{Role(ready.soft_state.role).name} lead={ready.soft_state.lead}"
    if ready.messages_early:
        yield "send at once"
        yield from (f"  {show_message(message)}" for message in ready.messages_early)
    if ready.snapshot is not None:
        metadata = ready.snapshot.metadata
        configuration = show_configuration(metadata.conf_state)
        yield f"restore {metadata.term}/{metadata.index} {configuration}"
    sync = " and sync" if ready.must_sync else ""
    if ready.entries or ready.hard_state is not None:
        parts = [*(show_entry(entry) for entry in ready.entries)]
        if ready.hard_state is not None:
            term, vote, commit = ready.hard_state
            parts.append(f"(term={term} vote={vote} commit={commit})")
        yield f"save{sync} {' '.join(parts)}"
    if ready.messages_late:
        yield "send"
        yield from (f"  {show_message(message)}" for message in ready.messages_late)
    if ready.committed:
        yield f"apply {' '.join(show_entry(entry) for entry in ready.committed)}"
        if any(entry.type != EntryType.NORMAL for entry in ready.committed):
            yield f"  {show_configuration(node.raft.conf_state)}"
    for index, context in ready.read_states:
        yield f"read {context.decode()} at {index}"
    yield from (f"warning: {text}" for text in ready.warnings)


def show_message(message: Message) -> str:
    """Print a message, without what is not set."""
    kind = MessageType(message.type)
    parts = [f"{message.from_}→{message.to} {kind.name} term={message.term}"]
    if kind in (MessageType.VOTE, MessageType.PRE_VOTE):
        parts.append(f"last {message.log_term}/{message.index}")
    elif kind is MessageType.APP:
        parts.append(f"after {message.log_term}/{message.index} commit={message.commit}")
    elif kind in (MessageType.HEARTBEAT, MessageType.TIMEOUT_NOW):
        parts.append(f"commit={message.commit}")
    elif kind in (MessageType.APP_RESP, MessageType.READ_INDEX_RESP):
        parts.append(f"index={message.index}")
    if message.reject:
        parts.append("reject")
        if kind is MessageType.APP_RESP:
            parts.append(f"hint {message.log_term}/{message.reject_hint}")
    if message.snapshot is not None:
        metadata = message.snapshot.metadata
        parts.append(f"{metadata.term}/{metadata.index} {show_configuration(metadata.conf_state)}")
    if message.context:
        is_count = kind in (MessageType.HEARTBEAT, MessageType.HEARTBEAT_RESP)
        context = message.context
        parts.append(
            f"read={int.from_bytes(context, 'little')}" if is_count else f"({context.decode()})"
        )
    parts += [show_entry(entry) for entry in message.entries]
    return " ".join(parts)


def show_entry(entry: Entry) -> str:
    """Print an entry as term/index and what it carries."""
    place = f"{entry.term}/{entry.index}"
    if entry.type == EntryType.NORMAL:
        return f'{place} "{entry.data.decode()}"'
    change = confchange_codec.decode(entry.type, entry.data)
    letters = {kind: letter for letter, kind in _CHANGES.items()}
    if isinstance(change, ConfChange):
        return f"{place} <{letters[ConfChangeType(change.type)]}{change.node_id}>"
    steps = " ".join(f"{letters[ConfChangeType(kind)]}{node}" for kind, node in change.changes)
    names = {number: name for name, number in _TRANSITIONS.items()}
    return f"{place} <{names[change.transition]}: {steps or 'leave'}>"


def show_configuration(state: ConfState) -> str:
    """Print who takes part, without what is empty."""
    parts = [f"voters={list(state.voters)}"]
    if state.voters_outgoing:
        parts.append(f"outgoing={list(state.voters_outgoing)}")
    if state.learners:
        parts.append(f"learners={list(state.learners)}")
    if state.learners_next:
        parts.append(f"learners_next={list(state.learners_next)}")
    return " ".join([*parts, *(["auto_leave"] if state.auto_leave else [])])


def show_progress(each: ProgressStatus) -> str:
    """Print what a leader knows of a member."""
    parts = [f"{ProgressKind(each.kind).name} match={each.match} next={each.next}"]
    parts += ["learner"] if each.is_learner else []
    parts += ["paused"] if each.is_paused else []
    parts += [f"snapshot={each.pending_snapshot}"] if each.pending_snapshot else []
    parts += [] if each.recent_active else ["inactive"]
    parts += [f"inflight={each.inflight}"] if each.inflight else []
    return " ".join(parts)


def show_result(result: ProposeResult) -> str:
    """Print what became of a proposal."""
    where = f" {result.term}/{result.first_index}" if result.first_index else ""
    reason = f": {result.reason}" if result.reason else ""
    return f"{result.outcome.name}{where}{reason}"
