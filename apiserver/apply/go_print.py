"""JSON values as Go prints them, for errors about wrong types.

    plain({"b": 1, "a": [True, None]})    map[a:[true <nil>] b:1]                     (%v)
    syntax({"a": "x"})                    map[string]interface {}{"a":"x"}            (%#v)
    type_name([])                         []interface {}                              (%T)

Members of maps are sorted by name.
"""

from typing import Final

from kvstack.apimachinery.objects.text.go_floats import format_float
from kvstack.apimachinery.objects.text.go_text import quote

_TYPE_NAMES: Final = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    dict: "map[string]interface {}",
    list: "[]interface {}",
    type(None): "<nil>",
}


def type_name(value: object) -> str:
    """Return the name of the Go type that holds the value."""
    return _TYPE_NAMES[type(value)]


def plain(value: object) -> str:
    """Return the value as %v prints it."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case float():
            return format_float(value)
        case list():
            return f"[{' '.join([plain(each) for each in value])}]"
        case dict():
            return f"map[{' '.join([f'{name}:{plain(value[name])}' for name in sorted(value)])}]"
        case _:
            return str(value)


def syntax(value: object) -> str:
    """Return the value as %#v prints it."""
    match value:
        case None:
            return "interface {}(nil)"
        case str():
            return quote(value)
        case list():
            return f"[]interface {{}}{{{', '.join([syntax(each) for each in value])}}}"
        case dict():
            members = [f"{quote(name)}:{syntax(value[name])}" for name in sorted(value)]
            return f"map[string]interface {{}}{{{', '.join(members)}}}"
        case _:
            return plain(value)
