"""Requests to the client port's pages, in an order that makes their answers the same everywhere.

Each runs after those before it, on a member that was empty before the first. What etcd 3.7.1
answers stands in tests/golden/http/etcd-3.7.1.txt, which is data: no test makes it.
"""

import json
import re
from base64 import b64encode
from pathlib import Path
from typing import Any, Final, NamedTuple

GOLDEN: Final = Path(__file__).parents[2] / "golden" / "http" / "etcd-3.7.1.txt"


class Case(NamedTuple):
    name: str
    path: str
    body: str | None = None
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    in_3_5: bool = True  # etcd 3.5 answers a success alike


def _64(text: str) -> str:
    return b64encode(text.encode()).decode()


FOO: Final = _64("foo")
RANGE: Final = "/v3/kv/range"
_PUT: Final = json.dumps({"key": FOO, "value": _64("bar")})
_TXN: Final = {
    "compare": [{"key": FOO, "target": "VERSION", "version": "1", "result": "EQUAL"}],
    "success": [
        {"request_range": {"key": FOO}},
        {"requestPut": {"key": _64("<&>\u2028"), "value": _64("new"), "prev_kv": True}},
        {"request_delete_range": {"key": _64("none")}},
    ],
    "failure": [{"request_range": {"key": FOO}}],
}

CASES: Final = [
    Case("put", "/v3/kv/put", _PUT),
    Case("range", RANGE, f'{{"key":"{FOO}"}}'),
    Case("range, json names", RANGE, f'{{"key":"{FOO}","keysOnly":true,"sortOrder":"DESCEND"}}'),
    Case(
        "range, numbers as text",
        RANGE,
        f'{{"key":"{FOO}","limit":"1e2","revision":0.0}}',
        in_3_5=False,
    ),
    Case("range, unknown field", RANGE, f'{{"x":[{{"a":[]}}],"key":"{FOO}"}}'),
    Case("range, null", RANGE, f'{{"key":"{FOO}","limit":null}}', in_3_5=False),
    Case("range, unknown enum name", RANGE, f'{{"key":"{FOO}","sort_order":"NOPE"}}', in_3_5=False),
    Case("range, unknown enum number", RANGE, f'{{"key":"{FOO}","sort_order":7}}', in_3_5=False),
    Case("range, trailing", RANGE, f'{{"key":"{FOO}"}} trailing'),
    Case("range, missing", RANGE, '{"key":"bm9uZQ=="}'),
    Case("range, url base64", RANGE, '{"key":"_-8","range_end":"-_8="}', in_3_5=False),
    Case("empty body", RANGE, ""),
    Case("empty message", RANGE, "{}"),
    Case("txn", "/v3/kv/txn", json.dumps(_TXN)),
    Case(
        "txn, two of a oneof",
        "/v3/kv/txn",
        f'{{"compare":[{{"key":"{FOO}","version":"1","mod_revision":2}}]}}',
        in_3_5=False,
    ),
    Case("delete", "/v3/kv/deleterange", f'{{"key":"{FOO}","prev_kv":true}}'),
    Case("compact", "/v3/kv/compaction", '{"revision":"2","physical":true}'),
    Case("compact, future", "/v3/kv/compaction", '{"revision":"99"}'),
    Case("compacted", RANGE, f'{{"key":"{FOO}","revision":"1"}}'),
    Case("grant", "/v3/lease/grant", '{"TTL":600,"ID":"77"}'),
    Case("grant again", "/v3/lease/grant", '{"TTL":600,"ID":"77"}'),
    Case("put leased", "/v3/kv/put", json.dumps({"key": FOO, "lease": 77})),
    Case("leases", "/v3/lease/leases", "{}"),
    Case("leases, old path", "/v3/kv/lease/leases", "{}"),
    Case("keep alive", "/v3/lease/keepalive", '{"ID":77}\n {"ID":"78"}'),
    Case("keep alive, nothing", "/v3/lease/keepalive", ""),
    Case("revoke", "/v3/kv/lease/revoke", '{"ID":77}'),
    Case("revoke again", "/v3/lease/revoke", '{"ID":77}'),
    Case("time to live", "/v3/lease/timetolive", '{"ID":77,"keys":true}'),
    Case("alarms", "/v3/maintenance/alarm", '{"action":"GET"}'),
    Case("defragment", "/v3/maintenance/defragment", "{}"),
    Case("defragment, no body", "/v3/maintenance/defragment", None),
    Case("auth status", "/v3/auth/status", "{}", in_3_5=False),
    Case(
        "watch, deadline",
        "/v3/watch",
        '{"create_request":{"key":"Zm8="}}',
        headers=(("Grpc-Timeout", "150m"),),
        in_3_5=False,
    ),
    Case(
        "watch, nothing, deadline",
        "/v3/watch",
        "",
        headers=(("Grpc-Timeout", "150m"),),
        in_3_5=False,
    ),
    Case("range, over at once", RANGE, f'{{"key":"{FOO}"}}', headers=(("Grpc-Timeout", "-1S"),)),
    Case("range, bad timeout", RANGE, f'{{"key":"{FOO}"}}', headers=(("Grpc-Timeout", "1x"),)),
    Case("range, no timeout", RANGE, f'{{"key":"{FOO}"}}', headers=(("Grpc-Timeout", "0S"),)),
    Case("wrong method", RANGE, method="GET", in_3_5=False),
    Case("unknown path", "/v3/nope", "{}"),
    Case("path with a slash too much", RANGE + "/", "{}"),
    Case("root of the gateway", "/v3/", "{}"),
    Case("old prefix", "/v3beta/kv/range", f'{{"key":"{FOO}"}}'),
    Case("escaped path", "/v3/kv/r%61nge", f'{{"key":"{FOO}"}}'),
    Case("query is ignored", RANGE + "?key=eA==&limit=zz", f'{{"key":"{FOO}"}}'),
    Case(
        "form, override",
        RANGE,
        f'{{"key":"{FOO}"}}',
        headers=(
            ("X-HTTP-Method-Override", "post"),
            ("Content-Type", "application/x-www-form-urlencoded"),
        ),
    ),
    Case(
        "form, override to get",
        RANGE,
        "{}",
        headers=(
            ("X-HTTP-Method-Override", "get"),
            ("Content-Type", "application/x-www-form-urlencoded"),
        ),
        in_3_5=False,
    ),
    # What is no message.
    Case("cut off", RANGE, f'{{"key":"{FOO}"'),
    Case("no JSON", RANGE, "xx"),
    Case("quote", RANGE, "'"),
    Case("control character", RANGE, "\x01"),
    Case("high byte", RANGE, "é"),
    Case("key without quotes", RANGE, "{key:1}"),
    Case("key without value", RANGE, '{"key"}'),
    Case("two values", RANGE, '{"a":1 "b":2}'),
    Case("wrong bracket", RANGE, '{"a":[1}'),
    Case("trailing comma", RANGE, '{"a":1,}'),
    Case("trailing comma in list", RANGE, '{"a":[1,]}'),
    Case("bad literal", RANGE, '{"a":nul}'),
    Case("bad number", RANGE, '{"a":-}'),
    Case("bad fraction", RANGE, '{"a":1.}'),
    Case("bad exponent", RANGE, '{"a":1e}'),
    Case("leading zero", RANGE, '{"a":01}'),
    Case("bad escape", RANGE, '{"a":"\\x"}'),
    Case("bad unicode escape", RANGE, '{"a":"\\u00g0"}'),
    Case("line end in text", RANGE, '{"a":"\n"}'),
    Case("lone surrogate", RANGE, '{"a":"\\ud800abcdef"}'),
    Case("lone surrogate at the end", RANGE, '{"a":"\\ud800"}'),
    Case("two high surrogates", RANGE, '{"a":"\\ud800\\ud800"}'),
    Case("not UTF-8", RANGE, '\n{ "a":\n\udcff"\udcff"}'.replace("\udcff", "", 1)),
    Case("list", RANGE, "[]"),
    Case("null", RANGE, "null"),
    Case("number", RANGE, "5"),
    Case("text", RANGE, '"a\\u0062"'),
    Case("wrong type", RANGE, '{"key":5}'),
    Case("object for bytes", RANGE, '{"key":{}}'),
    Case("list for bytes", RANGE, '{"key":[]}'),
    Case("bad base64", RANGE, '{"key":"@@"}'),
    Case("bad base64 length", RANGE, '{"key":"Zm9vY"}'),
    Case("mixed base64", RANGE, '{"key":"+-aa"}'),
    Case("base64 with line ends", RANGE, '{"key":"Zm\\n9v"}'),
    Case("base64 padded twice", RANGE, '{"key":"Zg==Zg=="}'),
    Case("text for a number", RANGE, '{"limit":"x"}'),
    Case("space around a number", RANGE, '{"limit":" 5"}'),
    Case("fraction", RANGE, '{"limit":1.5}'),
    Case("too large", RANGE, '{"limit":9223372036854775808}'),
    Case("far too large", RANGE, '{"limit":1e400000000000}'),
    Case("largest", RANGE, f'{{"key":"{FOO}","limit":"9223372036854775807"}}'),
    Case("negative for unsigned", "/v3/maintenance/alarm", '{"memberID":-1}'),
    Case("too large for unsigned", "/v3/maintenance/alarm", '{"memberID":"18446744073709551616"}'),
    Case("number for a flag", RANGE, '{"keys_only":1}'),
    Case("text for a flag", RANGE, '{"keys_only":"true"}'),
    Case("bool for an enum", RANGE, '{"sort_order":true}'),
    Case("fraction for an enum", RANGE, '{"sort_order":1.5}'),
    Case("number for text", "/v3/auth/user/get", '{"name":7}'),
    Case("text for a list", "/v3/kv/txn", '{"compare":"x"}'),
    Case("null in a list", "/v3/kv/txn", '{"compare":[null]}'),
    Case("number in a list", "/v3/kv/txn", '{"compare":[\n\t7]}'),
    Case("text for a message", "/v3/kv/txn", '{"success":[{"request_put":"x"}]}'),
    Case("given twice", RANGE, f'{{"key":"{FOO}","key":"{FOO}"}}', in_3_5=False),
    Case("given twice, both names", RANGE, '{"keys_only":true, "keysOnly":null}'),
    Case("snapshot, no message", "/v3/maintenance/snapshot", "[]"),
    # Other pages.
    Case("health", "/health", method="GET"),
    Case("health, posted", "/health", "x"),
    Case("health, serializable", "/health?serializable=true", method="GET"),
    Case("livez", "/livez", method="GET", in_3_5=False),
    Case("livez, verbose", "/livez?verbose", method="GET", in_3_5=False),
    Case(
        "livez, none left", "/livez?exclude=serializable_read&verbose", method="GET", in_3_5=False
    ),
    Case("livez check", "/livez/serializable_read?verbose", method="GET", in_3_5=False),
    Case("livez, unknown check", "/livez/nope", method="GET"),
    Case("readyz", "/readyz", method="GET", in_3_5=False),
    Case("readyz, verbose", "/readyz?verbose", method="GET", in_3_5=False),
    Case(
        "readyz, excluded",
        "/readyz?exclude=data_corruption&exclude=nope&verbose",
        method="GET",
        in_3_5=False,
    ),
    Case("readyz, posted", "/readyz", "x", in_3_5=False),
    Case("version", "/version", method="GET", in_3_5=False),
    Case("version, posted", "/version", "x"),
    Case("version, head", "/version", method="HEAD"),
    Case("options", "/v3/kv/put", method="OPTIONS"),
    Case("nothing there", "/nope", method="GET"),
    Case("root", "/", method="GET"),
    Case("redirect", "/v3", method="GET", in_3_5=False),
    Case("redirect, cleaned", "//v3/../version?x=1&y='", method="GET", in_3_5=False),
    Case("redirect, posted", "//version", "x", in_3_5=False),
    Case("escaped slash", "/v3%2fkv/range", f'{{"key":"{FOO}"}}', in_3_5=False),
    # Alarms, last.
    Case(
        "raise no space",
        "/v3/maintenance/alarm",
        '{"action":"ACTIVATE","memberID":"1","alarm":"NOSPACE"}',
    ),
    Case("no space: health", "/health", method="GET"),
    Case("no space: health without", "/health?exclude=NOSPACE", method="GET"),
    Case("no space: readyz", "/readyz?verbose", method="GET", in_3_5=False),
    Case("no space: put", "/v3/kv/put", _PUT),
    Case(
        "raise corrupt",
        "/v3/maintenance/alarm",
        '{"action":"ACTIVATE","memberID":"1","alarm":"CORRUPT"}',
    ),
    Case("corrupt: health", "/health?exclude=NOSPACE", method="GET"),
    Case("corrupt: readyz", "/readyz", method="GET", in_3_5=False),
    Case("corrupt: check", "/readyz/data_corruption", method="GET", in_3_5=False),
    Case("corrupt: put", "/v3/kv/put", _PUT),
]

_VARYING: Final = re.compile(r'"(cluster_id|member_id|raft_term|authRevision)":"[0-9]+"')


class Answer(NamedTuple):
    status: int
    headers: tuple[str, ...]  # those that mean something, "name: value"
    body: str


def normal(status: int, headers: dict[str, str], body: bytes) -> Answer:
    """Return an answer without what differs from member to member."""
    names = (
        "allow",
        "content-type",
        "location",
        "x-content-type-options",
        "access-control-allow-origin",
        "grpc-metadata-content-type",
    )
    text = body.decode(errors="surrogateescape").replace("\u00a0", " ")
    text = _VARYING.sub(r'"\1":"*"', "\n".join([_compact(line) for line in text.split("\n")]))
    if text.startswith(("[+]", "[-]")):  # etcd runs the checks in any order
        text = "\n".join(sorted(text.split("\n")))
    shown = [f"{name}: {headers[name]}" for name in names if name in headers]
    return Answer(status, tuple(shown), text)


def _compact(line: str) -> str:
    """Drop the spaces that some builds of etcd write after commas."""
    if not line.startswith("{"):
        return line
    try:
        value: Any = json.loads(line)
    except ValueError:
        return line
    if json.dumps(value, ensure_ascii=False, separators=(", ", ":")) != line:
        return line
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write_golden(answers: dict[str, Answer]) -> None:
    GOLDEN.write_text(
        "".join(
            [
                json.dumps([name, *answer], ensure_ascii=False) + "\n"
                for name, answer in answers.items()
            ]
        )
    )


def read_golden() -> dict[str, Answer]:
    lines = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    return {name: Answer(status, tuple(headers), body) for name, status, headers, body in lines}
