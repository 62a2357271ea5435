"""Results in etcdutl's output formats: simple, fields, json, table.

    simple   1772d135, 7, 4, 25 kB, 3.7.0
    fields   "Hash" : 393400629
    json     {"hash":393400629,"revision":7,…}
    table    a frame around the values, headings in capitals

A result is a list of columns, each with its name in every format. Like etcdutl, the tool accepts
`protobuf` as a format and then refuses it for every result.
"""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

FORMATS: Final = ("fields", "json", "protobuf", "simple", "table")

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


class Column(NamedTuple):
    """One value of a result: its names in a table, in fields and in JSON, and its text."""

    heading: str
    field: str
    key: str
    value: int | str
    shown: str  # in simple and table


def render(columns: Sequence[Column], output: str) -> str:
    """Return a result in one of FORMATS except protobuf, with a newline."""
    if output == "json":
        found = {column.key: column.value for column in columns}
        return json.dumps(found, separators=(",", ":"), ensure_ascii=False) + "\n"
    if output == "fields":
        return "".join(f'"{column.field}" : {column.value}\n' for column in columns)
    if output == "table":
        return _table(columns)
    return ", ".join(column.shown for column in columns) + "\n"


def human_bytes(count: int) -> str:
    """Return a size in units of 1000 with two digits, as etcdutl does: 25 kB, 1.2 MB."""
    if count < 10:
        return f"{count} B"
    unit, scaled = 0, float(count)
    while scaled >= 1000 and unit < len(_UNITS) - 1:
        scaled /= 1000
        unit += 1
    tenths = int(scaled * 10 + 0.5) / 10
    digits = 1 if tenths < 10 else 0
    return f"{tenths:.{digits}f} {_UNITS[unit]}"


def _table(columns: Sequence[Column]) -> str:
    heads = [column.heading.upper() for column in columns]
    widths = [
        max(len(head), len(column.shown)) for head, column in zip(heads, columns, strict=True)
    ]
    lines = [f" {head:^{width}} " for head, width in zip(heads, widths, strict=True)]
    values = [f" {each.shown:>{width}} " for each, width in zip(columns, widths, strict=True)]
    rules = ["─" * (width + 2) for width in widths]
    return (
        f"┌{'┬'.join(rules)}┐\n│{'│'.join(lines)}│\n├{'┼'.join(rules)}┤\n"
        f"│{'│'.join(values)}│\n└{'┴'.join(rules)}┘\n"
    )
