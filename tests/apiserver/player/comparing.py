"""Compares a recorded answer with the one of the server under test, strictly.

Everything must be equal but for values that cannot be: these must have the same form, stand for the
same recorded value wherever they occur, and times must be near the clock. What a request has chosen
must come back as it is. Orders that come from maps are sorted on both sides.

    comparison = Comparison(learned, mask)
    comparison.answers(recorded, got)
    comparison.found → [Found("json/spec/replicas", 3, 2)]
"""

import base64
import binascii
import json
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from typing_extensions import override

from tests.apiserver.player.documents import (
    Tree,
    body_of,
    is_plain_bookmark,
    managed_fields,
    managed_messages,
    openapi_structure,
    plain_table,
    plain_yaml_table,
    yaml_parts,
)
from tests.apiserver.player.filling import PORT_KEYS
from tests.apiserver.player.learned import Learned, News
from tests.apiserver.player.values import VOLATILE, Part, is_near_now, split

KEPT_HEADERS = {
    "content-type", "content-length", "warning", "retry-after", "location", "www-authenticate",
    "allow", "cache-control", "etag", "vary", "x-content-type-options", "connection", "upgrade",
    "sec-websocket-protocol", "sec-websocket-accept",
}  # fmt: skip
LENGTH = "content-length"
REVISION_FIELDS = ("/6", "/2", "/3")  # of ObjectMeta, ListMeta and preconditions
MARKS = {"UID", "RANDOM", "KID", "N"}  # of answers that were shortened
UNORDERED = {"causes", "resourceRules", "nonResourceRules"}
FIXED_ADDRESSES = {"10.0.0.0", "10.0.0.1"}  # not given, and that of the API server itself
NODE_PORTS = range(30_000, 32_768)
OLDEST_S = 1_577_836_900  # of times within protobuf: 2020
NEWEST_S = 4_102_444_800  # and 2100
_KEYS_PAGE = re.compile(r".*/keys/\d+/(n|kid)")
_SERVER_WORD = re.compile(r"(?<![A-Z])SERVER-(IP|PORT)")
_LIST_SEPARATORS = re.compile(r", |\[|\]")


class Absent:
    """Stands where one side has nothing."""

    @override
    def __repr__(self) -> str:
        return "nothing"


ABSENT = Absent()


class FieldDifference(NamedTuple):
    """One difference: a JSON pointer below the answer, or `status`."""

    path: str
    recorded: Any
    got: Any


class Comparison:
    """Compares one answer; collects what differs and what was learned."""

    def __init__(
        self, learned: Learned, mask: Callable[[str], str], *, shortened: bool = False
    ) -> None:
        self._learned = learned
        self._mask = mask
        self._shortened = shortened
        self.news = News()
        self.found: list[FieldDifference] = []

    # whole answers

    def answers(
        self,
        recorded: dict[str, Any],
        got: dict[str, Any],
        *,
        method: str = "GET",
        path: str = "",
        bookmarks: bool = False,
    ) -> None:
        """Compare status, headers, body and events; `bookmarks`: also those of no set time."""
        if recorded["status"] == 0 and self._shortened and got["status"] == 415:
            return  # the recorded server crashed there
        if recorded["status"] != got["status"]:
            self._differ("status", recorded["status"], got["status"])
        self._headers(recorded, got, length=method == "HEAD" and urlsplit(path).path != "/api")
        if method != "HEAD":
            self._bodies(recorded, got, "")
        if "events" in recorded or "events" in got:
            self._events(recorded, got, bookmarks=bookmarks)

    def _headers(self, recorded: dict[str, Any], got: dict[str, Any], *, length: bool) -> None:
        ours = {k: v for k, v in recorded.get("headers", {}).items() if length or k != LENGTH}
        theirs = {
            key: ours[key] if self._shortened and ours.get(key) in MARKS else value
            for key, value in got.get("headers", {}).items()
            if key in ours or (key in KEPT_HEADERS and key != LENGTH)
        }
        shortened, self._shortened = self._shortened, False
        self.compare(ours, theirs, "headers")
        self._shortened = shortened

    def _bodies(self, recorded: dict[str, Any], got: dict[str, Any], path: str) -> None:
        if self._shortened and not {"json", "text", "base64"} & recorded.keys():
            return
        (kind, body), (own_kind, own) = body_of(recorded), body_of(got)
        if kind != own_kind:
            self._differ(f"{path}body", body, own)
        elif kind == "text" and "kind: Table" in own:
            self.compare(plain_yaml_table(body), plain_yaml_table(own), path + kind)
        elif kind == "text" and not self.is_same_text(body, own):
            self.compare(yaml_parts(body), yaml_parts(own), path + kind)
        elif kind == "json" and self._shortened and "openapi" in body:
            self.compare(openapi_structure(body), openapi_structure(own), path + kind)
        elif kind == "protobuf":
            self._trees(body, own, path + kind)
        elif kind:
            self.compare(body, own, path + kind)

    def _events(self, recorded: dict[str, Any], got: dict[str, Any], *, bookmarks: bool) -> None:
        ours, theirs = (
            [each for each in side.get("events", []) if bookmarks or not is_plain_bookmark(each)]
            for side in (recorded, got)
        )
        if len(ours) != len(theirs):
            self._differ("events", ours, theirs)
        for number, (event, own) in enumerate(zip(ours, theirs, strict=False)):
            if event.get("opcode") != own.get("opcode"):
                self._differ(f"events/{number}/opcode", event.get("opcode"), own.get("opcode"))
            self._bodies(event, own, f"events/{number}/")

    # documents

    def compare(self, recorded: Any, got: Any, path: str = "") -> None:
        """Compare two values of JSON."""
        key = path.rsplit("/", 1)[-1]
        if recorded == "SERVER-PORT" and isinstance(got, int):
            got = self._mask(f":{got}")[1:]
        if isinstance(recorded, str) and isinstance(got, str):
            self._texts(recorded, got, path, key)
        elif type(recorded) is not type(got):
            self._differ(path, recorded, got)
        elif isinstance(recorded, dict):
            self._objects(recorded, got, path)
        elif isinstance(recorded, list):
            self._lists(recorded, got, path, key)
        elif recorded != got and not self._is_own_port(recorded, got, key):
            self._differ(path, recorded, got)

    def _is_own_port(self, recorded: Any, got: Any, key: str) -> bool:
        if key not in PORT_KEYS or not recorded or self._learned.is_given(str(recorded)):
            return False
        part = Part("port", str(recorded))
        return got in NODE_PORTS and self._learned.same(part, str(got), self.news)

    def _texts(self, recorded: str, got: str, path: str, key: str) -> None:
        if key == "resourceVersion" and recorded.isdigit() and got.isdigit():
            if not self._is_same_part(Part("rv", recorded), got):
                self._differ(path, recorded, got)
        elif key == "continue" and recorded and got:
            self._continue_tokens(recorded, got, path)
        elif (self._shortened and recorded in MARKS and got) or _KEYS_PAGE.fullmatch(path):
            return
        elif not self.is_same_text(recorded, got) and (
            key != "message" or self._pieces(recorded) != self._pieces(got)
        ):
            self._differ(path, recorded, got)

    def _continue_tokens(self, recorded: str, got: str, path: str) -> None:
        """Where a list goes on must be the same; the revision is this server's own."""
        self.news.own.setdefault(recorded, got)
        ours, theirs = _inside(recorded), _inside(got)
        if ours is None or theirs is None:
            self._differ(path, recorded, got)
        else:
            revision = {"rv": 0}
            self.compare(ours | revision, theirs | revision, path)

    def _pieces(self, text: str) -> list[str]:
        """A message without the order of its lists, which come from maps."""
        return sorted(_LIST_SEPARATORS.split(self.form(text)))

    def is_same_text(self, recorded: str, got: str) -> bool:
        """Tell whether two texts differ in nothing but values that must."""
        if _SERVER_WORD.search(recorded):
            got = self._mask(got)
        generated = self._learned.generated
        if recorded == got and generated is None and not VOLATILE.search(recorded):
            return True
        form, parts = split(recorded, generated)
        own_form, own_parts = split(got, generated)
        if form != own_form:
            return False
        same = [
            self._is_same_part(part, own.value) for part, own in zip(parts, own_parts, strict=True)
        ]
        return all(same)

    def _is_same_part(self, part: Part, own: str) -> bool:
        kind, recorded = part
        if kind == "time":
            chosen = self._learned.has_chosen(recorded)
            return recorded == own or not (chosen or not is_near_now(own))
        if recorded == "0" or (kind != "token" and self._learned.is_given(recorded)):
            return recorded == own
        if kind == "ip" and recorded != own and {recorded, own} & FIXED_ADDRESSES:
            return False
        if kind == "token":  # tokens with a broken signature come from good ones
            self.news.own.setdefault(recorded.rsplit(".", 1)[0], own.rsplit(".", 1)[0])
        return self._learned.same(part, own, self.news)

    def form(self, value: Any) -> str:
        """Return a value as text without what cannot be the same twice."""
        text = value if isinstance(value, str) else _dumped(value)
        return split(text, self._learned.generated)[0]

    def _objects(self, recorded: dict[str, Any], got: dict[str, Any], path: str) -> None:
        if recorded.get("kind") == "Table" and all(
            "columnDefinitions" in x for x in (recorded, got)
        ):
            recorded, got = plain_table(recorded), plain_table(got)
        managed = "managedFields"
        if isinstance(recorded.get(managed), list) and isinstance(got.get(managed), list):
            recorded = {**recorded, managed: managed_fields(recorded[managed])}
            got = {**got, managed: managed_fields(got[managed])}
        missing = [key for key in recorded if key not in got]
        extra = [key for key in got if key not in recorded]
        for key in list(missing):  # a key may be volatile, too
            other = next((each for each in extra if self.is_same_text(key, each)), None)
            if other is not None:
                missing.remove(key)
                extra.remove(other)
                self.compare(recorded[key], got[other], f"{path}/{key}")
        for key, value in recorded.items():
            if key in missing:
                self._differ(f"{path}/{key}", value, ABSENT)
            elif key in got:
                self.compare(value, got[key], f"{path}/{key}")
        if not self._shortened:
            for key in extra:
                self._differ(f"{path}/{key}", ABSENT, got[key])

    def _lists(self, recorded: list[Any], got: list[Any], path: str, key: str) -> None:
        if key in UNORDERED:
            recorded, got = sorted(recorded, key=self.form), sorted(got, key=self.form)
        if len(recorded) != len(got):
            self._differ(path, recorded, got)
            return
        for number, (value, own) in enumerate(zip(recorded, got, strict=True)):
            self.compare(value, own, f"{path}/{number}")

    def _trees(self, recorded: Tree | Any, got: Tree | Any, path: str) -> None:
        """Compare messages of protobuf that were taken apart without a schema."""
        (recorded, managed), (got, own_managed) = managed_messages(recorded), managed_messages(got)
        if managed or own_managed:
            self.compare(managed_fields(managed), managed_fields(own_managed), f"{path}/managed")
        if isinstance(recorded, list) and isinstance(got, list) and len(recorded) == len(got):
            for (field, value), (own_field, own) in zip(recorded, got, strict=True):
                if field != own_field:
                    self._differ(path, f"field {field}", f"field {own_field}")
                    return
                self._trees(value, own, f"{path}/{field}")
        elif isinstance(recorded, int) and isinstance(got, int):
            if recorded != got and not self._is_own_number(recorded, got):
                self._differ(path, recorded, got)
        elif isinstance(recorded, str) and isinstance(got, str):
            numbers = recorded.isdigit() and got.isdigit()
            if numbers and path.endswith(REVISION_FIELDS) and not self._learned.is_given(recorded):
                return
            if not self.is_same_text(recorded, got):
                self._differ(path, recorded, got)
        else:
            self._differ(path, recorded, got)

    def _is_own_number(self, recorded: int, got: int) -> bool:
        if OLDEST_S < recorded < NEWEST_S and is_near_now_s(got):
            return True
        ports = recorded in NODE_PORTS and got in NODE_PORTS
        return ports and not self._learned.is_given(str(recorded))

    def _differ(self, path: str, recorded: Any, got: Any) -> None:
        self.found.append(FieldDifference(path, recorded, got))


def is_near_now_s(seconds: int) -> bool:
    """Tell whether seconds since 1970 are of today."""
    return abs(seconds - time.clock_gettime(time.CLOCK_REALTIME)) < 86_400


def _dumped(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _inside(token: str) -> dict[str, Any] | None:
    """What a continue token holds; None if it is none."""
    padded = token + "=" * (-len(token) % 4)
    try:
        inside = json.loads(base64.urlsafe_b64decode(padded))
    except (ValueError, binascii.Error):
        return None
    return inside if isinstance(inside, dict) else None
