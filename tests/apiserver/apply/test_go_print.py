import pytest

from kvstack.apiserver.apply.go_print import plain, syntax, type_name


@pytest.mark.parametrize(
    ("value", "plainly", "as_syntax", "type_"),
    [
        (None, "<nil>", "interface {}(nil)", "<nil>"),
        (True, "true", "true", "bool"),
        (7, "7", "7", "int64"),
        (1.5, "1.5", "1.5", "float64"),
        (80.0, "80", "80", "float64"),
        (123456.0, "123456", "123456", "float64"),
        (1234567.0, "1.234567e+06", "1.234567e+06", "float64"),
        (0.00001, "1e-05", "1e-05", "float64"),
        ('a"b', 'a"b', '"a\\"b"', "string"),
        (
            ["x", [None, 1]],
            "[x [<nil> 1]]",
            '[]interface {}{"x", []interface {}{interface {}(nil), 1}}',
            "[]interface {}",
        ),
        (
            {"b": 1, "a": {"c": "d"}},
            "map[a:map[c:d] b:1]",
            'map[string]interface {}{"a":map[string]interface {}{"c":"d"}, "b":1}',
            "map[string]interface {}",
        ),
        ({}, "map[]", "map[string]interface {}{}", "map[string]interface {}"),
    ],
)
def test_values(value: object, plainly: str, as_syntax: str, type_: str) -> None:
    assert (plain(value), syntax(value), type_name(value)) == (plainly, as_syntax, type_)
