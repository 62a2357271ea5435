"""Files with environment variables that containers of a pod share (fileKeyRef).

    NAME='value'    # a remark
    OTHER='of two
    lines'

A part of the shell's syntax: values stand in single quotes and are taken as they are. What follows
`=` without a quote is an empty value only if nothing but blanks and a remark does.
"""

from typing import Final

_BLANKS: Final = " \t"


class EnvFileError(ValueError):
    """A file that does not keep to the syntax; the text names the line."""


def parse_env_file(text: str) -> dict[str, str]:
    """Return the variables of a file; the first of a name counts. EnvFileError."""
    variables: dict[str, str] = {}
    lines = iter(enumerate(text.split("\n"), 1))
    for number, line in lines:
        stripped = line.strip(_BLANKS + "\r")
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, rest = line.lstrip(_BLANKS).partition("=")
        where = f"invalid environment variable format at line {number}"
        if not equals:
            raise EnvFileError(f"{where}: missing '='")
        if not name:
            raise EnvFileError(f"{where}: empty variable name")
        if name != name.rstrip(_BLANKS):
            raise EnvFileError(f"{where}: whitespace before '=' is not allowed")
        if rest[:1] in ("", " ", "\t", "\r"):  # as in a shell: nothing is assigned
            variables.setdefault(name, "")
            continue
        if not rest.startswith("'"):
            raise EnvFileError(f"{where}: value must be enclosed in single quotes")
        value, quote, after = rest[1:].partition("'")
        while not quote:
            _, following = next(lines, (0, None))
            if following is None:
                raise EnvFileError(f"{where}: unterminated single quote")
            more, quote, after = following.partition("'")
            value += f"\n{more}"
        left = after.strip(_BLANKS + "\r")
        if left and not left.startswith("#"):
            raise EnvFileError(f"{where}: unexpected content after the closing quote")
        variables.setdefault(name, value)
    return variables
