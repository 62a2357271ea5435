"""--log-rotation-config-json: when a log file is put aside, and what is kept of those."""

import json
from typing import Final, NamedTuple

from kvstore.errors import ConfigError

_SIZE_DEFAULT_MIB: Final = 100
_MIB: Final = 1 << 20
_NUMBER_MAX: Final = 1 << 31
_FIELDS: Final = {"maxsize": int, "maxage": int, "maxbackups": int, "localtime": bool,
                  "compress": bool, "filename": str}  # fmt: skip


class Rotation(NamedTuple):
    """When to put a file aside, and what to keep of those."""

    size_max_bytes: int = _SIZE_DEFAULT_MIB * _MIB
    age_max_days: int = 0  # 0: any
    backups_max: int = 0  # 0: any number
    in_local_time: bool = False  # the time in a backup's name
    compress: bool = False


def parse_rotation(text: str) -> Rotation:
    """Read --log-rotation-config-json; ConfigError says what is wrong. Unknown fields are none."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"improperly formatted log rotation config: {error}") from None
    if not isinstance(given, dict):
        raise ConfigError("invalid log rotation config: it must be a JSON object")
    found: dict[str, object] = {}
    for name, value in given.items():
        kind = _FIELDS.get(name.lower())
        if kind is None or value is None:
            continue
        is_number = type(value) is int and 0 <= value <= _NUMBER_MAX
        if type(value) is not kind or (kind is int and not is_number):
            raise ConfigError(f"invalid log rotation config: {name} cannot be {value!r}")
        found[name.lower()] = value
    return Rotation(
        (int(str(found.get("maxsize", 0))) or _SIZE_DEFAULT_MIB) * _MIB,
        int(str(found.get("maxage", 0))),
        int(str(found.get("maxbackups", 0))),
        bool(found.get("localtime")),
        bool(found.get("compress")),
    )
