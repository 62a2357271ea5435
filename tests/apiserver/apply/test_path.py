import pytest

from kvstack.apiserver.apply.path import (
    PathElementError,
    canonical,
    in_order,
    key_element,
    path_text,
    value_element,
)


@pytest.mark.parametrize(
    ("keys", "element"),
    [
        ([("name", "a")], 'k:{"name":"a"}'),
        ([("port", 80), ("protocol", "TCP")], 'k:{"port":80,"protocol":"TCP"}'),
        ([("name", "")], 'k:{"name":""}'),
        ([("name", None)], 'k:{"name":null}'),
        ([("on", True)], 'k:{"on":true}'),
        ([("name", 'a"b<é>')], 'k:{"name":"a\\"b\\u003cé\\u003e"}'),
        ([("port", 80.0)], 'k:{"port":80}'),
        ([("port", 1.5)], 'k:{"port":1.5}'),
    ],
)
def test_the_element_of_an_item_with_keys(keys: list[tuple[str, object]], element: str) -> None:
    assert key_element(keys) == element
    assert canonical(element) == element


@pytest.mark.parametrize(
    ("value", "element"),
    [
        ("e.com/hold", 'v:"e.com/hold"'),
        (7, "v:7"),
        (2.0, "v:2"),
        (False, "v:false"),
        ("a&b", 'v:"a\\u0026b"'),
    ],
)
def test_the_element_of_an_item_of_a_set(value: object, element: str) -> None:
    assert value_element(value) == element
    assert canonical(element) == element


@pytest.mark.parametrize(
    ("text", "element"),
    [
        ("f:a", "f:a"),
        ("f:", "f:"),
        ("f:a.b/c:d", "f:a.b/c:d"),
        ('k:{"b": 1, "a": 2.0}', 'k:{"a":2,"b":1}'),
        ("k:null", "k:{}"),
        ('v:{"b":1,"a":[1.0,{"d":1,"c":2}]}', 'v:{"a":[1,{"c":2,"d":1}],"b":1}'),
        ('v: "a"', 'v:"a"'),
        ('v:"\\u0061"', 'v:"a"'),
        ("i:3", "i:3"),
        ("i:+3", "i:3"),
        ("i:-1", "i:-1"),
        ("x:what", None),
    ],
)
def test_a_text_that_a_client_wrote_differently(text: str, element: str | None) -> None:
    assert canonical(text) == element


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "key must be 2 characters long:"),
        ("f", "key must be 2 characters long:"),
        ("name", "missing colon: name"),
        ("k:[1]", "not an object: [1]"),
        ("i:x", 'strconv.Atoi: parsing "x": invalid syntax'),
        ('v:"a', 'unexpected end of data: line 1 column 3 (char 2): "a'),
    ],
)
def test_what_is_no_element(text: str, why: str) -> None:
    with pytest.raises(PathElementError) as error:
        canonical(text)
    assert str(error.value) == why


@pytest.mark.parametrize(
    "ordered",
    [
        [".", "f:a", "f:a.b", "f:b", "f:é"],
        ["f:z", 'k:{"a":1}', "v:1", "i:0"],
        ['k:{"port":80}', 'k:{"port":80,"protocol":"SCTP"}', 'k:{"port":80,"protocol":"TCP"}'],
        ['k:{"port":8}', 'k:{"port":80}', 'k:{"port":443}', 'k:{"port":"8"}'],
        ["v:-1", "v:1", "v:1.5", "v:12", 'v:""', 'v:"1"', "v:false", "v:true", "v:[1]", "v:null"],
        ["v:[1]", "v:[1,2]", 'v:{"a":1}', 'v:{"a":2}', "v:null"],
        ["i:2", "i:10"],
    ],
)
def test_elements_have_an_order(ordered: list[str]) -> None:
    assert in_order(reversed(ordered)) == ordered


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("f:spec", "f:replicas"), ".spec.replicas"),
        (("f:a", 'k:{"name":"c\\n"}', "f:image"), '.a[name="c\\n"].image'),
        (("f:p", 'k:{"port":80,"protocol":"TCP"}'), '.p[port=80,protocol="TCP"]'),
        (("f:p", 'k:{"id":1234567}'), ".p[id=1.234567e+06]"),
        (("f:p", 'k:{"on":true,"off":null}'), ".p[on=true,off=null]"),
        (("f:finalizers", 'v:"e.com/a"'), '.finalizers[="e.com/a"]'),
        (("f:a", 'v:[1,"x"]'), '.a[=[1,"x"]]'),
        (("f:a", "i:3"), ".a[3]"),
    ],
)
def test_paths_are_printed(path: tuple[str, ...], text: str) -> None:
    assert path_text(path) == text
