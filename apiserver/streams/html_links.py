"""Links of HTML pages that are passed on, so that they lead to where the page came from.

    rewritten(b'<a href="/x">', lambda url: f"/prefix{url}")   → b'<a href="/prefix/x">'

Only start tags are looked at; scripts, comments and text stay as they are, and so does the rest of
a tag. The time grows with the page and no faster, whatever is in it: it comes from anybody.
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
"""The attributes of tags that are links."""
_NONE: Final[frozenset[str]] = frozenset()

_TEXT_ONLY: Final = {
    name: re.compile(f"</{name}", re.IGNORECASE)
    for name in ("script", "style", "textarea", "title", "iframe", "noembed", "noframes", "xmp")
}
"""What has no tags inside, and where it ends."""
_NAME: Final = re.compile(r"[A-Za-z][^\s/>]*+")
_ATTRIBUTE: Final = re.compile(
    r"""[\s/]*+(?P<name>[^\s=/>]++)(?:\s*+=\s*+(?P<value>"[^"]*+"|'[^']*+'|[^\s>]*+))?+"""
)
_REST: Final = re.compile(r"[\s/=]*+")


def rewritten(page: bytes, rewrite: Rewrite) -> bytes:
    """Return a page with its links rewritten."""
    text = page.decode("latin-1")  # of any character set: tags are ASCII
    done: list[str] = []
    end = 0
    for start, stop in _links(text):
        new = _replaced(text[start:stop], rewrite)
        if new is not None:
            done += [text[end:start], new]
            end = stop
    return "".join([*done, text[end:]]).encode("latin-1", "xmlcharrefreplace")


def _links(text: str) -> Iterator[tuple[int, int]]:
    """Give where the values of links are, with their quotes."""
    place = text.find("<")
    while place >= 0:
        if text.startswith("<!--", place):
            place = text.find("-->", place + 4)
            if place < 0:
                return
        else:
            name = _NAME.match(text, place + 1)
            place += 1
            if name is not None:
                tag = name[0].lower()
                place = yield from _of_tag(text, name.end(), LINKS.get(tag, _NONE))
                if place < 0:
                    return
                if tag in _TEXT_ONLY:
                    close = _TEXT_ONLY[tag].search(text, place)
                    if close is None:
                        return
                    place = close.end()
        place = text.find("<", place)


def _of_tag(text: str, place: int, links: frozenset[str]) -> Generator[tuple[int, int], None, int]:
    """Give where the links of a tag are; return where the tag ends, negative: nowhere."""
    while True:
        attribute = _ATTRIBUTE.match(text, place)
        if attribute is None:
            rest = _REST.match(text, place)
            place = place if rest is None else rest.end()
            if text.startswith(">", place):
                return place + 1
            if place >= len(text):
                return -1
            continue
        if attribute["value"] and attribute["name"].lower() in links:
            yield attribute.span("value")
        place = attribute.end()


def _replaced(value: str, rewrite: Rewrite) -> str | None:
    """Return what stands for a value; None: it stays."""
    bare = value[1:-1] if value[0] in "\"'" and value[-1] == value[0] else value
    url = html.unescape(bare)
    new = rewrite(url)
    return None if new == url else f'"{html.escape(new)}"'
