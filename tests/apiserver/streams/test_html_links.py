"""Links of pages that are passed on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apiserver.streams.html_links import rewrite_links


def moved(url: str) -> str:
    """Return a URL below another path."""
    return f"/p{url}" if url.startswith("/") else url


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ('<a href="/x?a=1&amp;b=2">k</a>', '<a href="/p/x?a=1&amp;b=2">k</a>'),
        ("<img alt='/no' src='/i.png'>", "<img alt='/no' src=\"/p/i.png\">"),
        ("<A HREF=/x>/y</A>", '<A HREF="/p/x">/y</A>'),
        ('<a title=">" href="/x">', '<a title=">" href="/p/x">'),
        ('<link rel=x\n href = "/a.css"/>', '<link rel=x\n href = "/p/a.css"/>'),
        ('<form action="f"><p href="/x">', '<form action="f"><p href="/x">'),
        ('<!-- <a href="/x"> --><a name="/x">', '<!-- <a href="/x"> --><a name="/x">'),
        ("<script src='/s'>'<a href=/x>'</script>", "<script src=\"/p/s\">'<a href=/x>'</script>"),
        ('\n\n  <a\nhref="/x">\n<a href="/y">', '\n\n  <a\nhref="/p/x">\n<a href="/p/y">'),
        ("plain text", "plain text"),
    ],
)  # fmt: skip
def test_links_are_found(page: str, expected: str) -> None:
    assert rewrite_links(page.encode(), moved).decode() == expected


def test_bytes_of_any_character_set_stay() -> None:
    page = '<a href="/x">\xe9\u20ac</a>'.encode()
    assert rewrite_links(page, moved) == '<a href="/p/x">\xe9\u20ac</a>'.encode()
    assert rewrite_links(b'<a href="/&#8364;">', moved) == b'<a href="/p/&#8364;">'


@given(st.binary())
def test_a_page_stays_as_it_is_where_no_link_changes(page: bytes) -> None:
    assert rewrite_links(page, lambda url: url) == page


@pytest.mark.parametrize(
    "piece",
    ["<", "<a ", "<!--", '<a href="', "<a href='/x' ", "<script>", "<![if", "</a", "<a\t=", "=<a/"],
)
def test_the_time_grows_with_the_page(piece: str) -> None:
    """A page of a megabyte, and no regular expression that looks at its end again and again."""
    page = (piece * (1 << 20))[: 1 << 20].encode()
    assert rewrite_links(page, lambda url: url) == page


@given(st.text(alphabet="<>a/ =\"'href!-\n&;", max_size=60))
def test_any_text_can_be_read(page: str) -> None:
    assert isinstance(rewrite_links(page.encode(), moved), bytes)
