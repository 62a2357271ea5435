import pytest

from kvstack.apiserver.apply.go_print import float_text, plain, syntax, type_name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-1.0, "-1"),
        (80.0, "80"),
        (123456.0, "123456"),
        (1234567.0, "1.234567e+06"),
        (1e6, "1e+06"),
        (2.1e7, "2.1e+07"),
        (1e21, "1e+21"),
        (1.5, "1.5"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (123456789.125, "1.23456789125e+08"),
        (-2.5e10, "-2.5e+10"),
        (1e100, "1e+100"),
    ],
)
def test_floats(value: float, text: str) -> None:
    assert float_text(value) == text


@pytest.mark.parametrize(
    ("value", "plainly", "as_syntax", "type_"),
    [
        (None, "<nil>", "interface {}(nil)", "<nil>"),
        (True, "true", "true", "bool"),
        (7, "7", "7", "int64"),
        (1.5, "1.5", "1.5", "float64"),
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
