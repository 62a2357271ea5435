"""When a member may take another's data: what its log must say there."""

import pytest

from kvstore.errors import DataDirError
from kvstore.raft.model import Entry
from kvstore.server.boot.rebuild import Position, check
from kvstore.storage.wal.record import WalSnapshot
from kvstore.storage.wal.replay import Replay

LAST = WalSnapshot(10, 3)
# The log begins after 10, term 3, and holds 11 to 14.
REPLAY = Replay(entries=[Entry(0, term, 11 + at, b"") for at, term in enumerate((3, 3, 4, 4))])


@pytest.mark.parametrize(
    ("index", "term"), [(10, 3), (11, 3), (13, 4), (14, 4), (15, 4), (15, 9), (99, 5)]
)
def test_data_that_fits(index: int, term: int) -> None:
    check(Position(index, term, [], [], None), LAST, REPLAY)


@pytest.mark.parametrize(
    ("index", "term", "text"),
    [
        (9, 3, "the snapshot is at index 9, the log begins after 10"),
        (10, 2, "the log has term 3 there"),
        (12, 4, "the log has term 3 there"),
        (14, 5, "the log has term 4 there"),
    ],
)
def test_data_that_does_not_fit(index: int, term: int, text: str) -> None:
    with pytest.raises(DataDirError, match=text):
        check(Position(index, term, [], [], None), LAST, REPLAY)
