"""--bootstrap-defrag-threshold-megabytes: defragments the database before the member serves.

If that fails (no space for the copy), the member logs it and starts with the database as it is.
"""

import time
from typing import Final

from kvstack.component.logger import Logger
from kvstore.backend import Backend
from kvstore.errors import DefragmentError

_MEGABYTE: Final = 1 << 20
_PAUSE_S: Final = 0.005


def defragment_at_start(backend: Backend, threshold_megabytes: int, logger: Logger) -> None:
    """Defragment if that frees at least the threshold (0: never)."""
    if threshold_megabytes == 0 or backend.pending_ops() > 0:
        return  # of a database that is being made
    size_bytes, in_use_bytes = backend.size_bytes(), backend.size_in_use_bytes()
    about = {
        "current_db_size_bytes": size_bytes,
        "current_db_size_in_use_bytes": in_use_bytes,
        "bootstrap_defrag_threshold_bytes": threshold_megabytes * _MEGABYTE,
    }
    if size_bytes - in_use_bytes < threshold_megabytes * _MEGABYTE:
        logger.info("Skipping defragmentation", **about)
        return
    logger.info("starting defragment", **about)
    try:
        backend.start_defragment()
        while not backend.step_defragment():
            time.sleep(_PAUSE_S)
    except DefragmentError as error:
        logger.warning("failed to defragment", error=str(error))
    else:
        logger.info("finished defragment", db_size_bytes=backend.size_bytes())
