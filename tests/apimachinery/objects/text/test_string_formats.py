"""Which texts have which formats."""

from typing import Final

import pytest

from kvstack.apimachinery.objects.text.string_formats import has_format, is_known, is_text_format

LONG: Final = ".".join(["a" * 63] * 4)

GOOD: Final = {
    "bsonobjectid": ["507f1f77bcf86cd799439011"],
    "byte": ["YQ==", "YWI=", "YWJj"],
    "cidr": ["10.0.0.0/8", "fd00::/8"],
    "creditcard": ["4111 1111 1111 1111"],
    "date": ["2026-02-28", "2024-02-29"],
    "date-time": ["2026-01-02T03:04:05Z", "2026-01-02t03:04:05.123+01:00"],
    "duration": ["1h30m", "22 ns", "3 days", "1.5s"],
    "email": ["a@b.c", "A <a@b.c>", '"a b"@c', ". <a@ b>", "a@[10.0.0.1]", "a@b (c)"],
    "hexcolor": ["#fff", "ABCDEF"],
    "hostname": ["a", "example.com", "1.com", LONG],
    "ipv4": ["10.0.0.1", "010.0.0.1"],
    "ipv6": ["::1", "fd00::1", "::ffff:10.0.0.1"],
    "isbn": ["0321751043", "978-0321751041"],
    "isbn10": ["0321751043", "043942089X"],
    "isbn13": ["978-0321751041"],
    "k8s-long-name": ["a.b-c.d"],
    "k8s-short-name": ["a-b", "a" * 63],
    "mac": ["01:23:45:67:89:ab", "01-23-45-67-89-AB", "0123.4567.89ab"],
    "password": ["", "anything"],
    "rgbcolor": ["rgb(0, 128,255)"],
    "ssn": ["123-45-6789"],
    "uri": ["https://a/b?c", "/a", "mailto:x"],
    "uuid": ["A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc999c0b4ef8bb6d6bb9bd380a11"],
    "uuid3": ["a0eebc99-9c0b-3ef8-bb6d-6bb9bd380a11"],
    "uuid4": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "uuid5": ["a0eebc99-9c0b-5ef8-bb6d-6bb9bd380a11"],
}

BAD: Final = {
    "bsonobjectid": ["", "507f1f77bcf86cd79943901g", "507f"],
    "byte": ["", "YQ", "Y Q=", "YQ=="[:-1]],
    "cidr": ["10.0.0.0", "10.0.0.0/33"],
    "creditcard": ["4111 1111 1111 1112", "1"],
    "date": ["2026-02-30", "2026-2-3", "2026-02-28T00:00:00Z", ""],
    "date-time": ["2026-01-02", "2026-01-02T24:00:00Z", "2026-01-02T03:04:60Z", "T", ""],
    "duration": ["", "1", "x", "1 y", "99999999999999999999 d"],
    "email": ["", "a", "@b", "a@", "A a@b.c>", "a@[10.0.0]", "a..b@c"],
    "hexcolor": ["#ffff", "ggg"],
    "hostname": ["", "-a", "a_b", f"{LONG}.a", "a" * 64],
    "ipv4": ["::1", "10.0.0.256", "10.0.0"],
    "ipv6": ["10.0.0.1", "fd00:::1", "::ffff:010.0.0.1"],
    "isbn": ["0321751044", "978-0321751042"],
    "isbn10": ["978-0321751041", "X321751043"],
    "isbn13": ["0321751043"],
    "k8s-long-name": ["A.b", "a..b", "a" * 254],
    "k8s-short-name": ["a.b", "-a", "a" * 64, "a\n"],
    "mac": ["", "01:23:45:67:89", "01:23:45:67:89:ag", "01:23-45:67:89:ab", "0:1"],
    "rgbcolor": ["rgb(0,0,256)", "rgb(0,0)"],
    "ssn": ["123456789", "123-45-678"],
    "uri": ["", "a b", "a", "%zz"],
    "uuid": ["", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1"],
    "uuid3": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "uuid4": ["a0eebc99-9c0b-4ef8-cb6d-6bb9bd380a11"],
    "uuid5": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in GOOD.items() for text in texts]
)
def test_good_texts(name: str, text: str) -> None:
    """They have the format."""
    assert has_format(name, text)


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in BAD.items() for text in texts]
)
def test_bad_texts(name: str, text: str) -> None:
    """They do not have the format."""
    assert not has_format(name, text)


def test_every_format_is_looked_at() -> None:
    """There are 26 of them; only a password may be any text."""
    assert len(GOOD) == 26
    assert GOOD.keys() - BAD.keys() == {"password"}
    assert all(map(is_text_format, GOOD))


@pytest.mark.parametrize(
    ("name", "type_name", "expected"),
    [
        ("date-time", "string", True),
        ("datetime", "", True),
        ("int32", "integer", True),
        ("int32", "string", False),
        ("double", "number", True),
        ("date", "integer", False),
        ("date", "object", False),
        ("bogus", "string", False),
        ("", "string", False),
    ],
)
def test_known_formats(name: str, type_name: str, *, expected: bool) -> None:
    """A format is of texts or of numbers."""
    assert is_known(name, type_name) is expected
