"""Who may write the rules of Services of this machine: one test at a time.

    with service_rules():                       # waits for the tests of other processes
        ... run `kvstack up` ...

A network namespace has one proxy that writes rules. A second one serves node ports alone,
and its pods reach neither a cluster IP nor DNS. Tests in a namespace of their own need no turn.
"""

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_LOCK: Final = Path(tempfile.gettempdir()) / "kvstack-tests-service-rules.lock"
_held: Final[list[Path]] = []


@contextmanager
def service_rules() -> Iterator[None]:
    """Hold the turn of this process; it may be taken again by whoever has it."""
    with _LOCK.open("w") as lock:
        if not _held:
            fcntl.flock(lock, fcntl.LOCK_EX)
        _held.append(_LOCK)
        try:
            yield
        finally:
            _held.pop()
