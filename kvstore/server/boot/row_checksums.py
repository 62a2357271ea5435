"""Gives the rows of a database of the older format their checksums, before the member serves.

That copies the database once, into a file that takes the old one's place when it is synced. If
there is no space for the copy, the member logs it and serves the rows without checksums; the next
start tries again.
"""

from kvstack.component.logger import Logger
from kvstore.backend import Backend
from kvstore.errors import DefragmentError
from kvstore.storage.lmdb.backend import LmdbBackend


def add_row_checksums(backend: Backend, logger: Logger) -> None:
    """Add the checksums that are missing; the backend has just been opened."""
    if not isinstance(backend, LmdbBackend) or backend.has_checksums:
        return
    logger.info("adding checksums to the rows", db_size_bytes=backend.size_bytes())
    try:
        rows = backend.add_checksums()
    except DefragmentError as error:
        logger.warning(
            "the rows have no checksums: damage to them is not detected", error=str(error)
        )
    else:
        logger.info("added checksums to the rows", rows=rows, db_size_bytes=backend.size_bytes())
