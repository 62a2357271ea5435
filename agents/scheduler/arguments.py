"""Arguments of plugins: fields by type, and checks of values.

    check_shape(args, {"weight": int}, "args")    ConfigurationError: unknown field "args.colour"
    raise invalid("args.weight", 0, "must be positive")

A shape is a type; an object's fields with their shapes; or a list with the shape of its items.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from kvstack.apimachinery.objects.durations import DurationError
from kvstack.apimachinery.objects.durations import parse as parse_duration
from kvstack.component.errors import ConfigError

Shape: TypeAlias = "type | Mapping[str, Shape] | list[Shape]"
Fields: TypeAlias = Mapping[str, Shape]

SHARE_MAX: Final = 100
SCORE_MAX: Final = 10
"""The maximum score of a point of a shape."""
RESOURCE: Final[Shape] = {"name": str, "weight": int}
POINT: Final[Shape] = {"utilization": int, "score": int}
"""A point of a shape: the score at a percentage of utilization."""


class ConfigurationError(ConfigError, ValueError):
    """A configuration that makes no sense; the message says where."""


class Duration:
    """The shape of a duration as Go writes it."""


class Anything:
    """The shape of what is not looked into."""


def check_shape(value: object, shape: Shape, path: str) -> None:
    """Check fields and types; raises ConfigurationError."""
    if value is None or shape is Anything:
        return
    if isinstance(shape, Mapping):
        if not isinstance(value, dict):
            raise ConfigurationError(f"{path or 'the configuration'}: must be an object")
        for name, each in value.items():
            at = f"{path}.{name}" if path else name
            if name not in shape:
                raise ConfigurationError(f'strict decoding error: unknown field "{at}"')
            check_shape(each, shape[name], at)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise ConfigurationError(f"{path}: must be a list")
        for number, each in enumerate(value):
            check_shape(each, shape[0], f"{path}[{number}]")
    elif shape is Duration:
        _check_duration(value, path)
    elif not _is_of(value, shape):
        raise ConfigurationError(f"{path}: must be of type {shape.__name__}, is {value!r}")


def _is_of(value: object, shape: type) -> bool:
    if isinstance(value, bool) and shape is not bool:
        return False
    return isinstance(value, (int, float) if shape is float else shape)


def _check_duration(value: object, path: str) -> None:
    try:
        parse_duration(str(value))
    except DurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def invalid(path: str, value: object, text: str) -> ConfigurationError:
    """Return the error of a value that a field cannot have."""
    return ConfigurationError(f"{path}: Invalid value: {value}: {text}")


def check_points(points: Any, path: str) -> None:  # noqa: ANN401
    """Check the points of a shape; raises ConfigurationError."""
    if not points:
        raise ConfigurationError(f"{path}: Required value: at least one point must be specified")
    last = -1
    for number, each in enumerate(points):
        share, score = each.get("utilization") or 0, each.get("score") or 0
        if not 0 <= share <= SHARE_MAX:
            raise invalid(f"{path}[{number}].utilization", share, "not in valid range [0-100]")
        if share <= last:
            raise invalid(
                f"{path}[{number}].utilization", share, "utilization values must be sorted"
            )
        if not 0 <= score <= SCORE_MAX:
            raise invalid(f"{path}[{number}].score", score, "not in valid range [0-10]")
        last = share
