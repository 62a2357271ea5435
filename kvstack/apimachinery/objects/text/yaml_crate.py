"""YAML read by the crate: values and errors of `yaml_reader`, mostly without Python's lock.

The crate is an argument here, so that it is loaded where a text is read first. There are texts that
its parser cannot read (kvstore/native/src/yaml says which); `yaml_reader` reads them. What is wrong
with a text of up to REREAD_BYTES_MAX is said by `yaml_reader`, too: where several things are wrong
at the end of one, the crate may find another first. Longer ones are not read twice.
"""

from collections.abc import Callable
from typing import Final

from kvstack.apimachinery.objects.text import yaml_reader
from kvstack.apimachinery.objects.text.json_syntax import DEPTH_MAX
from kvstack.apimachinery.objects.text.json_text import Json
from kvstack.apimachinery.objects.text.value_limit import VALUES_MAX, TooManyValuesError
from kvstack.apimachinery.objects.text.yaml_reader import DIRECTIVES_MAX, REPEATED_BYTES_MAX, Read
from kvstack.apimachinery.objects.text.yaml_scalars import (
    Scalar,
    YamlError,
    go_syntax,
    unsupported_key,
)

Refusal = tuple[str, str] | tuple[str, int] | tuple[str, Json] | tuple[str, Scalar, Json]
ReadYaml = Callable[
    [bytes, tuple[int, int, int, int]],
    tuple[Json, list[tuple[int, Scalar]], Refusal | None],
]

REREAD_BYTES_MAX: Final = 64 << 10
_LIMITS: Final = (DEPTH_MAX, VALUES_MAX, REPEATED_BYTES_MAX, DIRECTIVES_MAX)


def reader(read_yaml: ReadYaml) -> Callable[[bytes], Read]:
    """Return a reader as `yaml_reader.read` is one, of the crate's function."""

    def read(data: bytes) -> Read:
        value, repeated, refusal = read_yaml(data, _LIMITS)
        if refusal is None:
            return Read(value, repeated)
        if refusal[0] == "unread" or len(data) <= REREAD_BYTES_MAX:
            return yaml_reader.read(data)
        raise _refused(*refusal)

    return read


def _refused(reason: str, subject: Json, value: Json = None) -> ValueError:
    """Return the error for a text that is refused."""
    if reason == "count":
        return TooManyValuesError(subject)
    if reason == "key":
        return YamlError(f"yaml: invalid map key: {go_syntax(subject)}")
    return unsupported_key(subject, value) if reason == "name" else YamlError(subject)
