"""Places where a test may make this server sleep, stop or fail: named as etcd's failpoints are.

    failpoints.hit("raftBeforeSave")        at the place itself; costs one look while none is armed
    if failpoints.armed: …                  where even that call is too much, once a batch
    failpoints.arm("raftBeforeSave", act)   act is called at every hit

What an armed one does comes from outside (`kvstore.server.failpoints`), so the code around the
places stays pure. Off unless the operator asks for them by environment. Most places are in the
turn: a sleep there holds everything up, as a slow disk would.

NAMES is every place there is; a name that is not in it cannot be armed.
"""

from collections.abc import Callable
from typing import Final

VARIABLES: Final = ("GOFAIL_FAILPOINTS", "GOFAIL_HTTP")  # what a start arms them by
NAMES: Final = frozenset(
    {
        "raftBeforeSave",
        "raftAfterSave",
        "raftBeforeLeaderSend",
        "raftBeforeFollowerSend",
        "raftBeforeApplySnap",
        "raftAfterApplySnap",
        "raftBeforeAdvance",
        "raftBeforeSaveSnap",
        "raftAfterSaveSnap",
        "raftAfterWALRelease",
        "raftBeforeWALSaveSnaphot",
        "raftDropHeartbeat",
        "walBeforeSync",
        "walAfterSync",
        "beforeCommit",
        "afterCommit",
        "commitBeforePreCommitHook",
        "commitAfterPreCommitHook",
        "beforeStartDBTxn",
        "afterStartDBTxn",
        "beforeApplyOneEntryNormal",
        "beforeApplyOneConfChange",
        "applyBeforeOpenSnapshot",
        "applyAfterOpenSnapshot",
        "compactBeforeCommitScheduledCompact",
        "compactAfterCommitScheduledCompact",
        "compactBeforeSetFinishedCompact",
        "compactAfterSetFinishedCompact",
        "compactBeforeCommitBatch",
        "compactAfterCommitBatch",
        "compactAfterAcquiredBatchTxLock",
        "defragBeforeCopy",
        "defragBeforeRename",
        "defragOpenFileError",
        "defragdbFail",
        "beforeSendWatchResponse",
        "beforeSyncWatchers",
        "beforeRangeStreamChunk",
        "beforePublishing",
        "beforeLookupWhenLeaseTimeToLive",
        "beforeLookupWhenForwardLeaseTimeToLive",
        "beforeServeHTTPLeaseRenew",
        "beforeCheckpointInLeaseRenew",
    }
)

Act = Callable[[], object]  # what hit() returns: None, or the value of a return("…")

armed: Final[dict[str, Act]] = {}


def hit(name: str) -> object:
    """Do what is armed at a place, if anything is."""
    if not armed:
        return None
    act = armed.get(name)
    return None if act is None else act()


def arm(name: str, act: Act) -> None:
    """Arm a place; KeyError if there is no such place."""
    if name not in NAMES:
        raise KeyError(name)
    armed[name] = act


def disarm(name: str) -> bool:
    """Disarm a place; tell whether it was armed."""
    return armed.pop(name, None) is not None
