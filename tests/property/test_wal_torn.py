"""The log against a power cut, a truncation and flipped bytes, on random histories.

A save is acknowledged once it returned. Whatever a power cut may do to the sectors written since
the last sync, the log opens and holds every acknowledged entry; whatever else happens to its
bytes, it opens with all of them, or is cut only where no sync had been, or is refused by segment
and offset.
"""

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kvstore.errors import CorruptionError
from kvstore.raft.model import Entry, HardState
from kvstore.storage.wal.record import INITIAL_SNAPSHOT, SegmentReader
from kvstore.storage.wal.repair import SECTOR_BYTES
from kvstore.storage.wal.replay import Replay
from kvstore.storage.wal.scan import read_snapshots
from kvstore.storage.wal.wal import Wal
from tests.support.disks.fault_files import UnsyncedFiles

VOTE = 0x628ED94AD692E8A1  # ids are hashes of 64 bits
META = b"\x08\x01\x10\x02"
NAMES_PLACE = re.compile(r"-[0-9a-f]{16}\.wal: corrupt at offset \d+: ")

Save = tuple[list[bytes], bool]  # the data of its entries, and whether a state follows
SIZES = st.sampled_from([0, 1, 30, 300, 512, 1500])


def value(seed: int, size: int) -> bytes:
    """Bytes without a zero among them."""
    return bytes((seed * 131 + at * 7) % 255 + 1 for at in range(size))


saves = st.lists(
    st.tuples(
        st.lists(st.builds(value, st.integers(0, 250), SIZES), max_size=4),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


class Writer:
    """Applies saves to a log; a save without entries and with a state is not synced."""

    def __init__(self, directory: Path, segment_bytes: int) -> None:
        self.wal = Wal.create(directory, META, UnsyncedFiles(), segment_bytes)
        self.entries: list[Entry] = []
        self.state = HardState()

    def save(self, save: Save) -> None:
        values, with_state = save
        first = len(self.entries) + 1
        new = [Entry(0, 1, first + at, data) for at, data in enumerate(values)]
        commit = len(self.entries) if new else self.state.commit + 1
        state = HardState(1, VOTE, min(commit, len(self.entries))) if with_state else None
        self.wal.save(state, new, sync=False)
        self.entries += new
        self.state = state or self.state

    def tail(self) -> bytes:
        return self.wal.tail_path.read_bytes()


@contextmanager
def scratch() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="kvstore-wal-"))
    try:
        yield directory / "wal"
    finally:
        shutil.rmtree(directory)


def open_log(directory: Path) -> Replay:
    read_snapshots(directory)
    wal, replay = Wal.open(directory, INITIAL_SNAPSHOT, UnsyncedFiles(), 4096)
    wal.close()
    again, second = Wal.open(directory, INITIAL_SNAPSHOT, UnsyncedFiles())
    again.close()
    assert second.repair is None
    assert second.entries == replay.entries
    return replay


def attempt(directory: Path) -> Replay | str:
    """Open the log; a refusal is returned as its text."""
    try:
        return open_log(directory)
    except CorruptionError as error:
        return str(error)


@given(saves, st.integers(300, 9000))
@settings(max_examples=60, deadline=None)
def test_every_history_comes_back(history: list[Save], segment_bytes: int) -> None:
    with scratch() as directory:
        writer = Writer(directory, segment_bytes)
        for save in history:
            writer.save(save)
        writer.wal.close()
        replay = open_log(directory)
        assert replay.entries == writer.entries
        assert replay.hard_state == writer.state
        assert replay.repair is None


@given(saves, st.lists(st.booleans(), max_size=4), saves, st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_any_sectors_since_the_last_sync_may_be_lost(
    history: list[Save], states: list[bool], torn: list[Save], rng: object
) -> None:
    assert hasattr(rng, "random")
    with scratch() as directory:
        writer = Writer(directory, 1 << 18)
        for save in history:
            writer.save(save)
        writer.wal._sync()
        before, acknowledged = writer.tail(), list(writer.entries)
        for _ in states:
            writer.save(([], True))
        writer.save(torn[0])  # written, its sync never returned
        after, path = writer.tail(), writer.wal.tail_path
        writer.wal._release_handles()
        image = bytearray(before)
        for start in range(0, len(after), SECTOR_BYTES):
            sector = slice(start, start + SECTOR_BYTES)
            if before[sector] != after[sector] and rng.random() < 0.5:
                image[sector] = after[sector]
        path.write_bytes(image)
        replay = open_log(directory)
        assert replay.entries[: len(acknowledged)] == acknowledged
        assert replay.entries == writer.entries[: len(replay.entries)]


@given(saves, st.integers(300, 9000), st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_a_truncated_tail_is_cut_or_refused(
    history: list[Save], segment_bytes: int, where: float
) -> None:
    with scratch() as directory:
        writer = Writer(directory, segment_bytes)
        for save in history:
            writer.save(save)
        path, end = writer.wal.tail_path, writer.wal.tail_offset
        writer.wal.close()
        before = path.read_bytes()
        path.write_bytes(before[: int(where * end)])
        replay = attempt(directory)
        if isinstance(replay, str):
            assert NAMES_PLACE.search(replay)
            assert path.read_bytes() == before[: int(where * end)]  # refused means untouched
        else:
            assert replay.entries == writer.entries[: len(replay.entries)]
            assert len(replay.entries) >= replay.hard_state.commit


@given(saves, st.integers(300, 9000), st.floats(0, 1, exclude_max=True), st.integers(1, 255))
@settings(max_examples=300, deadline=None)
def test_a_flipped_byte_never_drops_a_middle(
    history: list[Save], segment_bytes: int, where: float, flip: int
) -> None:
    with scratch() as directory:
        writer = Writer(directory, segment_bytes)
        for save in history:
            writer.save(save)
        end = writer.wal.tail_offset
        tail = writer.wal.tail_path
        writer.wal.close()
        images = [(path, path.read_bytes()) for path in sorted(directory.iterdir())]
        images = [(path, data[:end] if path == tail else data) for path, data in images]
        at = int(where * sum(len(data) for _, data in images))
        for path, data in images:
            if at < len(data):
                flip_byte(path, at, flip)
                break
            at -= len(data)
        replay = attempt(directory)
        if isinstance(replay, str):
            assert NAMES_PLACE.search(replay)
            return
        assert replay.entries == writer.entries[: len(replay.entries)]
        lost = len(writer.entries) - len(replay.entries)
        last = [len(values) for values, _ in history if values][-1:] or [0]
        assert lost == 0 or (replay.repair is not None and lost <= last[0])


def flip_byte(path: Path, at: int, flip: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes((byte ^ flip,)))


def test_a_flipped_bit_in_every_byte_of_a_small_log() -> None:
    with scratch() as directory:
        writer = Writer(directory, 1 << 13)
        for size in (20, 520, 0, 530):
            writer.save(([value(size, size), bytes(size)], True))
            writer.save(([], True))
        end, path = writer.wal.tail_offset, writer.wal.tail_path
        writer.wal.close()
        image = path.read_bytes()
        kinds = {offset + 9 for offset, _, _ in SegmentReader(image, len(image), 0)}
        for at in range(end + 16):
            for bit in range(8) if at in kinds else (at % 8,):
                path.write_bytes(image)
                flip_byte(path, at, 1 << bit)
                check_flipped(directory, writer)


def check_flipped(directory: Path, writer: Writer) -> None:
    replay = attempt(directory)
    if isinstance(replay, str):
        assert NAMES_PLACE.search(replay)
        return
    assert replay.entries == writer.entries[: len(replay.entries)]
    assert replay.repair is not None or replay.hard_state == writer.state
    lost = len(writer.entries) - len(replay.entries)
    assert lost == 0 or (replay.repair is not None and lost <= 2)  # at most the last save
