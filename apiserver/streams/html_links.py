"""Rewriting of links in forwarded HTML pages.

    rewrite_links(b'<a href="/x">', lambda url: f"/prefix{url}")   → b'<a href="/prefix/x">'

Only start tags are parsed; scripts, comments and text are unchanged, and so is the rest of a tag.
The time is linear in the size of the page, which is untrusted.
"""

import html
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Final

Rewrite = Callable[[str], str]

LINKS: Final[Mapping[str, frozenset[str]]] = {
    tag: frozenset(names.split())
    for tag, names in {
        "a": "href",
        "applet": "codebase",
        "area": "href",
        "audio": "src",
        "base": "href",
        "blockquote": "cite",
        "body": "background",
        "button": "formaction",
        "command": "icon",
        "del": "cite",
        "embed": "src",
        "form": "action",
        "frame": "longdesc src",
        "head": "profile",
        "html": "manifest",
        "iframe": "longdesc src",
        "img": "longdesc src usemap",
        "input": "src usemap formaction",
        "ins": "cite",
        "link": "href",
        "object": "classid codebase data usemap",
        "q": "cite",
        "script": "src",
        "source": "src",
        "video": "poster src",
    }.items()
}
"""The link attributes of tags."""
_NONE: Final[frozenset[str]] = frozenset()

_TEXT_ONLY: Final = {
    name: re.compile(f"</{name}", re.IGNORECASE)
    for name in ("script", "style", "textarea", "title", "iframe", "noembed", "noframes", "xmp")
}
"""Elements without markup inside, and their end tags."""
_NAME: Final = re.compile(r"[A-Za-z][^\s/>]*+")
_ATTRIBUTE: Final = re.compile(
    r"""[\s/]*+(?P<name>[^\s=/>]++)(?:\s*+=\s*+(?P<value>"[^"]*+"|'[^']*+'|[^\s>]*+))?+"""
)
_REST: Final = re.compile(r"[\s/=]*+")


def rewrite_links(page: bytes, rewrite: Rewrite) -> bytes:
    """Return a page with its links rewrite_links."""
    text = page.decode("latin-1")  # any character set: tags are ASCII
    done: list[str] = []
    end = 0
    for start, stop in _links(text):
        new = _replaced(text[start:stop], rewrite)
        if new is not None:
            done += [text[end:start], new]
            end = stop
    return "".join([*done, text[end:]]).encode("latin-1", "xmlcharrefreplace")


def _links(text: str) -> Iterator[tuple[int, int]]:
    """Return the positions of link values, including their quotes."""
    position = text.find("<")
    while position >= 0:
        if text.startswith("<!--", position):
            position = text.find("-->", position + 4)
            if position < 0:
                return
        else:
            name = _NAME.match(text, position + 1)
            position += 1
            if name is not None:
                tag = name[0].lower()
                position = yield from _of_tag(text, name.end(), LINKS.get(tag, _NONE))
                if position < 0:
                    return
                if tag in _TEXT_ONLY:
                    close = _TEXT_ONLY[tag].search(text, position)
                    if close is None:
                        return
                    position = close.end()
        position = text.find("<", position)


def _of_tag(
    text: str, position: int, links: frozenset[str]
) -> Generator[tuple[int, int], None, int]:
    """Add the positions of a tag's links; return the end of the tag, negative: there is none."""
    while True:
        attribute = _ATTRIBUTE.match(text, position)
        if attribute is None:
            rest = _REST.match(text, position)
            position = position if rest is None else rest.end()
            if text.startswith(">", position):
                return position + 1
            if position >= len(text):
                return -1
            continue
        if attribute["value"] and attribute["name"].lower() in links:
            yield attribute.span("value")
        position = attribute.end()


def _replaced(value: str, rewrite: Rewrite) -> str | None:
    """Return the replacement of a value; None: unchanged."""
    bare = value[1:-1] if value[0] in "\"'" and value[-1] == value[0] else value
    url = html.unescape(bare)
    new = rewrite(url)
    return None if new == url else f'"{html.escape(new)}"'
