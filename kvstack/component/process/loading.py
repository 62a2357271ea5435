"""Loads modules without looking for dead cycles among what they make, which stays.

with loading():
    import everything
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Let no collection delay what is loaded meanwhile, and none look at it later."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
