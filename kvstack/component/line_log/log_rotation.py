"""--log-rotation-config-json: when a log file is rotated, and which backups are kept."""

import json
from typing import Final, NamedTuple

from kvstack.component.errors import ConfigError

_SIZE_DEFAULT_MIB: Final = 100
_MIB: Final = 1 << 20
_NUMBER_MAX: Final = 1 << 31
_FIELDS: Final = {"maxsize": int, "maxage": int, "maxbackups": int, "localtime": bool,
                  "compress": bool, "filename": str}  # fmt: skip


class Rotation(NamedTuple):
    """The settings of log rotation."""

    size_max_bytes: int = _SIZE_DEFAULT_MIB * _MIB
    age_max_days: int = 0  # 0: no limit
    backups_max: int = 0  # 0: no limit
    in_local_time: bool = False  # the time in a backup's name is local time
    compress: bool = False


def parse_rotation(text: str) -> Rotation:
    """Parse --log-rotation-config-json; ConfigError if it is invalid. Ignores unknown fields."""
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"improperly formatted log rotation config: {error}") from None
    if not isinstance(settings, dict):
        raise ConfigError("invalid log rotation config: it must be a JSON object")
    numbers: dict[str, int] = {}
    switches: dict[str, bool] = {}
    for name, value in settings.items():
        kind = _FIELDS.get(name.lower())
        if kind is None or value is None:
            continue
        if type(value) is not kind or (type(value) is int and not 0 <= value <= _NUMBER_MAX):
            raise ConfigError(f"invalid log rotation config: {name} cannot be {value!r}")
        if isinstance(value, bool):
            switches[name.lower()] = value
        elif isinstance(value, int):
            numbers[name.lower()] = value
    return Rotation(
        (numbers.get("maxsize", 0) or _SIZE_DEFAULT_MIB) * _MIB,
        numbers.get("maxage", 0),
        numbers.get("maxbackups", 0),
        switches.get("localtime", False),
        switches.get("compress", False),
    )
