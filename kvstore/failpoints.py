"""Failpoints: where a test may make this server sleep, stop or fail, under etcd's names.

    failpoints.hit("raftBeforeSave")        at the failpoint; one test while none is armed
    if failpoints.armed: …                  where even that call costs too much, once a batch
    failpoints.arm("raftBeforeSave", action)   action is called at every hit

The action of an armed failpoint comes from outside (`kvstore.server.failpoints`), so the code with
failpoints stays pure. They are disabled unless the operator enables them by environment. Most are
in the turn: a sleep there stops everything, like a slow disk.

NAMES are all failpoints; no other name can be armed.
"""

from collections.abc import Callable
from typing import Final

VARIABLES: Final = ("GOFAIL_FAILPOINTS", "GOFAIL_HTTP")  # the environment that enables them
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

Action = Callable[[], object]  # what hit() returns: None, or the value of a return("…")

armed: Final[dict[str, Action]] = {}


def hit(name: str) -> object:
    """Run the action of a failpoint if it is armed."""
    if not armed:
        return None
    action = armed.get(name)
    return None if action is None else action()


def arm(name: str, action: Action) -> None:
    """Arm a failpoint; KeyError for an unknown name."""
    if name not in NAMES:
        raise KeyError(name)
    armed[name] = action


def disarm(name: str) -> bool:
    """Disarm a failpoint; return whether it was armed."""
    return armed.pop(name, None) is not None
