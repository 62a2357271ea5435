"""The HTTP interface of a farm: JSON in, JSON out.

    POST   /clusters                      {"nodes": 3, "clock": "virtual", …}      201
    GET    /clusters  /clusters/c17
    DELETE /clusters/c17                                                           200
    GET    /clusters/c17/settled?timeout=10s&within=1s      200; 504: what still moves
    GET    /clusters/c17/clock
    POST   /clusters/c17/clock            {"advance": "24h"}, {"rate": 100}

Who asks over TCP has the token: `Authorization: Bearer …`. Over a unix socket the mode of its file
says who may.
"""

import hmac
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import orjson

from kvstack.agents.standalone.in_memory.clock_change import ADVANCE, RATE, clock_change
from kvstack.agents.standalone.in_memory.cluster_time import ClusterTimeError
from kvstack.apimachinery.objects import durations
from kvstack.clusters.farm.farm import (
    ANSWER_S_MAX,
    TTL_S,
    Asked,
    Farm,
    FarmError,
    FullError,
    Ready,
    UnknownClusterError,
)
from kvstack.clusters.farm.messages import Message
from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.request import Request

BODY_BYTES_MAX: Final = 64 << 10
SETTLED_S: Final = 10.0
WITHIN_S: Final = 1.0
_FIELDS: Final[dict[str, type | tuple[type, ...]]] = {
    "from": str,
    "nodes": int,
    "without": list,
    "ttl": str,
    "clock": str,
    "seed": int,
    "owner": int,
}
_HEADERS: Final = (("Content-Type", "application/json"), ("X-Content-Type-Options", "nosniff"))


class Answered(NamedTuple):
    """An answer."""

    status: int
    body: Message


class _BadRequestError(Exception):
    """A malformed request; the text says how."""


class Routes:
    """Answers requests."""

    def __init__(self, farm: Farm, token: str) -> None:
        """token: empty: anybody who can connect may use the farm."""
        self._farm: Final = farm
        self._token: Final = token

    async def handle(self, request: Request, answer: Answer) -> None:
        """Answer one."""
        if not self._may(request):
            found = Answered(401, {"error": "the token of the farm is required"})
        else:
            found = await self._answered(request)
        answer.send(found.status, _HEADERS, orjson.dumps(found.body) + b"\n")

    def _may(self, request: Request) -> bool:
        given = request.header("authorization").encode()
        return not self._token or hmac.compare_digest(given, f"Bearer {self._token}".encode())

    async def _answered(self, request: Request) -> Answered:
        try:
            return await self._routed(request)
        except _BadRequestError as error:
            return Answered(400, {"error": str(error)})
        except UnknownClusterError as error:
            return Answered(404, {"error": str(error)})
        except FullError as error:
            return Answered(429, {"error": str(error)})
        except FarmError as error:
            return Answered(422, {"error": str(error)})

    async def _routed(self, request: Request) -> Answered:
        target = urlsplit(request.target)
        query = parse_qs(target.query)
        match request.method, target.path.strip("/").split("/"):
            case "GET", ["healthz"]:
                return Answered(200, {"status": "ok"})
            case "GET", ["clusters"]:
                return Answered(200, {"clusters": [each._asdict() for each in self._farm.clusters]})
            case "POST", ["clusters"]:
                made: Ready = await self._farm.create(asked_of(await _body(request)))
                return Answered(201, made._asdict())
            case "GET", ["clusters", name]:
                return Answered(200, self._farm.get(name)._asdict())
            case "DELETE", ["clusters", name]:
                await self._farm.delete(name)
                return Answered(200, {"deleted": name})
            case "GET", ["clusters", name, "settled"]:
                return await self._settled(name, query)
            case "GET", ["clusters", name, "clock"]:
                return Answered(200, await self._farm.ask(name, {}))
            case "POST", ["clusters", name, "clock"]:
                return Answered(200, await self._farm.ask(name, clock_of(await _body(request))))
            case _:
                return Answered(404, {"error": f"{request.method} {target.path} does not exist"})

    async def _settled(self, name: str, query: dict[str, list[str]]) -> Answered:
        timeout_s = _duration("timeout", query.get("timeout", [f"{SETTLED_S:g}s"])[0])
        within_s = _duration("within", query.get("within", [f"{WITHIN_S:g}s"])[0])
        if timeout_s > ANSWER_S_MAX / 2:
            raise _BadRequestError(f"timeout {timeout_s:g} s: at most {ANSWER_S_MAX / 2:g} s")
        state = await self._farm.ask(name, {"settled": timeout_s, "within": within_s})
        return Answered(504 if state["moving"] else 200, state)


async def _body(request: Request) -> dict[str, Any]:
    """Return the body, an object of JSON; BodyTooLargeError, _BadRequestError."""
    data = await request.read(BODY_BYTES_MAX)
    try:
        found = orjson.loads(data or b"{}")
    except orjson.JSONDecodeError as error:
        raise _BadRequestError(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise _BadRequestError("the body is not a JSON object")
    return found


def asked_of(body: dict[str, Any]) -> Asked:
    """Return the cluster that a body asks for; _BadRequestError, FarmError."""
    for name, value in body.items():
        type_ = _FIELDS.get(name)
        if type_ is None:
            raise _BadRequestError(f"{name}: one of {', '.join(_FIELDS)}")
        if not isinstance(value, type_) or isinstance(value, bool):
            raise _BadRequestError(f"{name}: {value!r} is of another type")
    without = body.get("without", [])
    if not all(isinstance(each, str) for each in without):
        raise _BadRequestError("without: a list of texts")
    ttl_s = _duration("ttl", body["ttl"]) if "ttl" in body else TTL_S
    return Asked(
        body.get("from", ""),
        body.get("nodes", 1),
        tuple(without),
        ttl_s,
        body.get("clock", "real"),
        body.get("seed", 0),
        body.get("owner", 0),
    )


def clock_of(body: dict[str, Any]) -> Message:
    """Return what a body asks of a clock, as `cluster` takes it; _BadRequestError."""
    try:
        change = clock_change(body)
    except ClusterTimeError as error:
        raise _BadRequestError(str(error)) from None
    if change.rate is not None:
        return {RATE: change.rate}
    return {ADVANCE: change.advance_s}


def _duration(name: str, text: str) -> float:
    try:
        seconds = durations.parse(text) / 1e9
    except ValueError as error:
        raise _BadRequestError(f"{name} {text!r}: a length of time, as 10s") from error
    if seconds < 0:
        raise _BadRequestError(f"{name} {text!r}: it is negative")
    return seconds
