"""Raft among five members: loss, delay, repetition, partitions, crashes, changes of members.

The invariants are in tests/support/raft/world. The canaries prove that a broken disk, or an entry
that counts as saved before it is, would be noticed.
"""

import pytest

from kvstore.raft import reads
from kvstore.raft.model import RaftError
from kvstore.raft.rawnode import RawNode
from kvstore.raft.read_index import ReadRequest
from kvstore.raft.ready import Ready
from kvstore.raft.state import State
from tests.support.raft.world import Member, World

STEPS = 5000


@pytest.mark.parametrize("seed", range(40))
def test_invariants_hold_and_progress_resumes(seed: int) -> None:
    """The properties of the Raft paper's figure 3, and that progress resumes after all faults."""
    world = World(seed)
    world.run(STEPS)
    assert world.counts["stranded"] or world.counts["applied"]


def test_the_seeds_see_enough() -> None:
    """The worlds together elect, crash, change members and send snapshots."""
    total = dict.fromkeys(World(0).counts, 0)
    for seed in range(100, 115):
        world = World(seed)
        world.run(STEPS)
        total = {name: total[name] + count for name, count in world.counts.items()}
    assert total["leaders"] > 30
    assert total["crashes"] > 100
    assert total["changes"] > 100
    assert total["snapshots"] > 10
    assert total["deferred"] > 200
    assert total["notified"] > 20
    assert total["stranded"] <= 3


def test_same_seed_same_life() -> None:
    """A world is its seed."""
    lives = []
    for _ in range(2):
        world = World(7)
        world.run(STEPS)
        lives.append((world.counts, world.agreed))
    assert lives[0] == lives[1]


def test_canary_lost_entries_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that loses an entry it had synced breaks an invariant within a few worlds."""
    honest = Member.crash

    def crash(member: Member) -> None:
        honest(member)
        disk = member.disk
        disk.entries = disk.entries[:-1]
        last = disk.offset + len(disk.entries)
        disk.hard_state = disk.hard_state._replace(commit=min(disk.hard_state.commit, last))

    monkeypatch.setattr(Member, "crash", crash)
    assert _noticed(range(30))


def test_canary_answers_before_saving_are_noticed() -> None:
    """A member that answers before it has saved breaks an invariant within a few worlds."""
    assert _noticed(range(40), answers_before_saving=True)


def test_canary_deferred_entries_that_count_as_saved_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A leader that counts entries whose save it deferred breaks an invariant when it crashes."""
    honest = RawNode.ready

    def ready(raft: RawNode, *, may_save: bool = True) -> Ready | None:
        made = honest(raft, may_save=may_save)
        if not may_save and raft.can_defer_save:
            log = raft._state.log
            log.stable = log.last_index
        return made

    monkeypatch.setattr(RawNode, "ready", ready)
    assert _noticed(range(40), crash_every=50)


def test_canary_unconfirmed_reads_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that answers reads without asking a quorum gives a stale one within a few worlds."""

    def add(state: State, request: ReadRequest) -> None:
        state.read_states.append((state.log.committed, request.context))

    monkeypatch.setattr(reads, "add", add)
    assert _noticed(range(40))


def _noticed(
    seeds: range, *, answers_before_saving: bool = False, crash_every: int | None = None
) -> int:
    noticed = 0
    for seed in seeds:
        world = World(seed)
        world.crash_every = crash_every or world.crash_every
        if answers_before_saving:
            world.answers_before_saving = True
            world.crash_every = 50
        try:
            world.run(STEPS)
        except (AssertionError, RaftError):
            noticed += 1
    return noticed
