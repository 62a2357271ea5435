"""Python's cyclic garbage collector, kept from stopping the world.

By itself it walks everything that lives each time the heap has grown by a quarter: with some
hundred thousand keys in the index a tenth of a second and more in which nothing is answered. What
the store keeps is free of cycles and is freed by counting. So whatever a full collection leaves
alive is taken out of all later ones: each walks only what has come since the one before.

    young objects ── 10 000 ──► survivors ── 3 times ──► older ── 3 times ──► full, then frozen

The price: a cycle that was alive at a full collection is never collected. What makes cycles here
(an exception, a task of the side loop) is dead long before, but for the few that happen to be open.
While the server is loaded and boots the collector does not run at all (`cli` turns it off): what
that makes stays.
"""

import gc
from typing import Final

_YOUNG_MAX: Final = 10_000  # objects; Python's own 700 costs large batches some per cent
_TURNS: Final = 3  # collections of one generation before the next older is looked at
_FULL: Final = 2


def keep_collections_short() -> None:
    """Collect once now; from now on no collection walks what was there at the last full one.

    Turns the collector on. May be called again, when much has been made that stays.
    """
    gc.enable()
    gc.set_threshold(_YOUNG_MAX, _TURNS, _TURNS)
    gc.collect()
    gc.freeze()
    if _freeze_survivors not in gc.callbacks:
        gc.callbacks.append(_freeze_survivors)


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == _FULL:
        gc.freeze()
