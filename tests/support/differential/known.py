"""Where etcd 3.7.1 answers otherwise than the etcd compared with, all in one table.

This project's server follows 3.7.1. Each difference is named here once; the comparison may treat
an answer specially only under such a name, and asks `Peer.has` first. Against a 3.7 peer the table
is empty, but for the few defects of 3.7 that are not followed. That the differences are real is
shown in tests/conformance/differential/test_known.py.
"""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True)
class Difference:
    before: str  # what 3.5.1 does
    now: str  # what 3.7.1 does
    treatment: str  # how the comparison handles it


KNOWN_DIFFERENCES: Final[dict[str, Difference]] = {
    "keys-only lease": Difference(
        "a keys_only range shows the keys' leases",
        "answers from the key index, which knows no leases, unless it sorts by value",
        "leases are erased from such answers of the peer",
    ),
    "hash revision": Difference(
        "HashKV does not say which revision it hashed",
        "hash_revision: the requested revision, or the current one for 0",
        "filled into the peer's answer",
    ),
    "compaction hashes": Difference(
        "HashKV at a compacted revision computes or refuses",
        "the hashes of the last ten compactions are kept and answered with the compaction before",
        "HashKV at a revision that was compacted at is not compared, but must be answered",
    ),
    "tombstone at the compacted revision": Difference(
        "a compaction removes a deletion made at its very revision",
        "keeps it until the next compaction, so that a watch from there still sees it",
        "watches do not start at a compacted revision that deleted something",
    ),
    "negative watch revision": Difference(
        "taken for a revision long compacted",
        "refused: created and canceled at once, watch id -1",
        "the peer is not asked; the answer must be 3.7's",
    ),
    "progress without watchers": Difference(
        "a progress request on a stream without watchers is answered",
        "is not",
        "shown once; watch examples always have a watcher",
    ),
    "progress of future watchers": Difference(
        "a progress request is answered whatever the watchers wait for",
        "is not answered while a watcher waits for a future revision",
        "the peer's answer is dropped while there is such a watcher",
    ),
    "status fields": Difference(
        "no storageVersion, dbSizeQuota, downgradeInfo",
        "has them",
        "compared with a 3.7 peer only",
    ),
    "range stream": Difference(
        "unknown method",
        "the answer of Range in pieces",
        "compared with our own Range",
    ),
    "order of checks in a transaction": Difference(
        "the leases and previous values of all puts are checked before any range's revision",
        "operations are checked in their order",
        "two refusals of such a transaction are equal, whatever each complains about",
    ),
    "sort options": Difference(
        "unknown sort orders and targets are taken, negative ones end the server",
        "invalid sort option",
        "played against a 3.7 peer only",
    ),
    "cost of nested transactions": Difference(
        "under a NOSPACE alarm puts inside nested transactions pass",
        "are refused as other puts are",
        "played against a 3.7 peer only",
    ),
    "paths that are no methods": Difference(
        "RESOURCE_EXHAUSTED",
        "UNIMPLEMENTED, with the same text",
        "the code is not compared",
    ),
    "protobuf library": Difference(
        "malformed requests are refused with gogo's words",
        "with those of the Go protobuf library",
        "only the code is compared",
    ),
}


# Where this server does not follow 3.7.1 but what etcd did before.
DEFECTS_NOT_FOLLOWED: Final[dict[str, Difference]] = {
    "deleted and put again in one transaction": Difference(
        "possible (a range_end of one zero byte escapes the check), and the key is there",
        "a compaction at that revision drops the key's record but not the key: the next read of it "
        "ends the server, and HashKV leaves the key out of what it keeps",
        "such transactions are not played on 3.7",
    ),
    "progress beside a compacted watcher": Difference(
        "a progress request is answered",
        "a watcher that a compaction ended counts as one behind, until its id is canceled: the "
        "stream is told no progress any more",
        "answers to such progress requests are dropped",
    ),
    "range stream in another order": Difference(
        "there are no range streams",
        "with sort order NONE and a target other than KEY each chunk is sorted by itself and the "
        "next one begins after its last key: keys come twice, and more and count are wrong",
        "compared with our own Range only",
    ),
}


@dataclass(frozen=True)
class Peer:
    """The etcd to compare with."""

    binary: Path
    version: tuple[int, int, int]

    @classmethod
    def of(cls, binary: Path) -> "Peer":
        """Ask a binary for its version."""
        said = subprocess.run(
            [str(binary), "--version"], capture_output=True, text=True, check=True, timeout=60
        ).stdout
        found = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", said)
        assert found, f"{binary} --version said {said!r}"
        major, minor, patch = map(int, found.groups())
        return cls(binary, (major, minor, patch))

    def has(self, difference: str) -> bool:
        """Tell whether the peer differs from 3.7.1 in this way."""
        assert difference in KNOWN_DIFFERENCES, f"not in the table: {difference}"
        return self.version < (3, 7, 0)

    def has_defect(self, defect: str) -> bool:
        """Tell whether the peer fails in this way."""
        assert defect in DEFECTS_NOT_FOLLOWED, f"not in the table: {defect}"
        return self.version >= (3, 5, 16)
