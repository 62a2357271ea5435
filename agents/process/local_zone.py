"""The local time zone, determined as Go does, for schedules without a zone.

    TZ unset            /etc/localtime
    TZ= or UTC          UTC
    TZ=Europe/Paris     that zone
    TZ=/usr/share/…     that file

A missing or invalid zone is UTC.
"""

import os
from collections.abc import Mapping
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_LOCAL: Final = Path("/etc/localtime")


def local_zone(environment: Mapping[str, str] = os.environ, local_file: Path = _LOCAL) -> tzinfo:
    """Return the zone."""
    name = environment.get("TZ")
    if name is None:
        return _zone_of_file(local_file)
    name = name.removeprefix(":")
    if name.startswith("/"):
        return _zone_of_file(Path(name))
    if name in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def _zone_of_file(path: Path) -> tzinfo:
    try:
        with path.open("rb") as file:
            return ZoneInfo.from_file(file, str(path))
    except (OSError, ValueError):
        return UTC
