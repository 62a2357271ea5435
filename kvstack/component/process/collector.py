"""Settings of Python's cyclic garbage collector: collections stay short with many keys.

By default a full collection walks all live objects each time the heap has grown by a quarter. With
some hundred thousand keys in the index that takes a tenth of a second or more, in which nothing is
answered. The store's objects have no cycles and are freed by reference counting. So the survivors
of a full collection are frozen, and each later one walks only the objects made since.

    young objects ── 10 000 ──► survivors ── 3 times ──► older ── 3 times ──► full, then frozen

The price: a cycle that is alive at a full collection is not collected before `collect_frozen`.
Cycles come from exceptions, from tasks of the side loop, and from asyncio's connections (each
knows a method of itself); most are dead by then. While the server is loaded and boots, the
collector does not run (`cli` turns it off), because those objects stay alive.
"""

import gc
from typing import Final

_YOUNG_MAX: Final = 10_000  # objects; Python's default of 700 costs large batches some per cent
_TURNS: Final = 3  # collections of one generation before one of the next older
_FULL: Final = 2
FROZEN_MAX: Final = 300_000
"""Number of objects that are walked in a tenth of a second or two."""


def keep_collections_short() -> None:
    """Collect once now; later collections do not walk the survivors of the last full one.

    Turns the collector on. Call it again when many long-lived objects have been made.
    """
    gc.enable()
    gc.set_threshold(_YOUNG_MAX, _TURNS, _TURNS)
    gc.collect()
    gc.freeze()
    if _freeze_survivors not in gc.callbacks:
        gc.callbacks.append(_freeze_survivors)


def collect_frozen() -> None:
    """Collect dead cycles among frozen objects, too, and freeze the survivors.

    Nothing is done where that takes long: with more than FROZEN_MAX objects.
    """
    if _freeze_survivors in gc.callbacks and gc.get_freeze_count() <= FROZEN_MAX:
        gc.unfreeze()
        gc.collect()


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == _FULL:
        gc.freeze()
