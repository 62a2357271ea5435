"""Content negotiation: the representation that a client accepts.

    negotiate("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", OBJECTS)
    → Representation(JSON, as_="Table", version="v1")

An Accept header is a list of clauses, tried by quality and then in order; the first that the
endpoint can serve wins. What an endpoint can serve is an `Offer`. Outcomes are cached by header.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from kvstack.apiserver.verbs.forms.bodies import JSON, MEDIA_TYPES, PROTOBUF, YAML

TABLE: Final = "Table"
PARTIAL: Final = "PartialObjectMetadata"
PARTIAL_LIST: Final = "PartialObjectMetadataList"
AGGREGATED: Final = "APIGroupDiscoveryList"
DISCOVERY: Final = "apidiscovery.k8s.io"
META: Final = "meta.k8s.io"

_META_VERSIONS: Final = frozenset(("v1", "v1beta1"))
_ACCEPT_MAX: Final = 1024


class Representation(NamedTuple):
    """The representation of an answer."""

    media_type: str = JSON
    as_: str = ""
    """TABLE, PARTIAL, PARTIAL_LIST or AGGREGATED; empty: the object itself."""
    version: str = "v1"
    """Version of meta.k8s.io in which TABLE and the partial forms are written."""
    pretty: bool = False
    """Whether the client asks for indented JSON in the header."""
    profile: str = ""


@dataclass(frozen=True, eq=False)
class Offer:
    """What an endpoint can answer with; compared by identity."""

    media_types: tuple[str, ...] = MEDIA_TYPES
    is_routed: bool = True
    """Whether a header without any of the media types is refused before all other checks."""
    transforms: bool = True
    """Whether objects can be returned as Tables and as metadata only."""
    has_table: bool = True
    """Whether Tables are supported, if it transforms."""
    aggregates: bool = False
    """Whether it answers with aggregated discovery, and nothing else."""
    is_stream: bool = False
    unstreamed: tuple[str, ...] = ()
    """Media types that can be negotiated but not streamed: a client that prefers one is refused."""
    plain_types: tuple[str, ...] = MEDIA_TYPES
    """The media types in which complete objects can be returned."""
    also_routed: tuple[str, ...] = ()
    """Also named in the error when a header has none of the media types."""


OBJECTS: Final = Offer()
LISTS: Final = Offer(also_routed=(f"{JSON};stream=watch", f"{PROTOBUF};stream=watch"))
WITHOUT_TABLE: Final = Offer(has_table=False)
CUSTOM_OBJECTS: Final = Offer(is_routed=False, plain_types=(JSON, YAML))
PLAIN: Final = Offer(transforms=False)
STREAM: Final = Offer(
    media_types=(JSON, PROTOBUF), is_routed=False, is_stream=True, unstreamed=(YAML,)
)
DISCOVERY_ROOT: Final = Offer(is_routed=False, transforms=False, aggregates=True)
JSON_ONLY: Final = Offer(media_types=(JSON,), transforms=False)

DEFAULT: Final = Representation()


class NotAcceptableError(Exception):
    """The endpoint can write none of the accepted media types."""

    def __init__(self, text: str) -> None:
        """text: the message of the 406."""
        super().__init__(text)
        self.text = text


class Clause(NamedTuple):
    """One media range of an Accept header."""

    type: str
    subtype: str
    quality: float
    parameters: tuple[tuple[str, str], ...]


def negotiate(accept: str, offer: Offer) -> Representation:
    """Return the representation of an answer; raises NotAcceptableError."""
    found = _cached(accept, offer) if len(accept) <= _ACCEPT_MAX else _negotiate(accept, offer)
    if isinstance(found, str):
        raise NotAcceptableError(found)
    return found


@lru_cache(maxsize=1024)
def _cached(accept: str, offer: Offer) -> Representation | str:
    return _negotiate(accept, offer)


def _negotiate(accept: str, offer: Offer) -> Representation | str:
    """Return the representation, or the text of the refusal."""
    if not accept:
        return DEFAULT._replace(media_type=offer.media_types[0])
    if offer.is_routed and not _is_routed(accept, offer):
        available = ", ".join((*offer.media_types, *offer.also_routed))
        return f"406: Not Acceptable\n\nAvailable representations: {available}"
    found = _first_accepted(accept, offer)
    if found is not None and found.media_type not in offer.unstreamed:
        return found
    suffix = ";stream=watch" if offer.is_stream else ""
    named = ", ".join(f"{each}{suffix}" for each in offer.media_types)
    return f"only the following media types are accepted: {named}"


def _first_accepted(accept: str, offer: Offer) -> Representation | None:
    for clause in parse_accept(accept):
        for media_type in (*offer.media_types, *offer.unstreamed):
            if _accepts(clause, media_type):
                found = _with_parameters(clause, media_type, offer)
                if found is not None:
                    return found
    return None


def _is_routed(accept: str, offer: Offer) -> bool:
    ranges = {each.partition(";")[0].strip() for each in accept.split(",")}
    return "*/*" in ranges or not ranges.isdisjoint(offer.media_types)


def parse_accept(accept: str) -> list[Clause]:
    """Return the clauses of a header, best first."""
    clauses = [found for each in accept.split(",") if (found := _clause(each)) is not None]
    clauses.sort(key=lambda each: (-each.quality, each.type == "*", each.subtype == "*"))
    return clauses


def _clause(text: str) -> Clause | None:
    range_, *rest = text.split(";")
    type_, slash, subtype = range_.strip().partition("/")
    if not slash:
        if type_ != "*":
            return None
        subtype = "*"
    quality, parameters = 1.0, list[tuple[str, str]]()
    for each in rest:
        name, _, value = each.partition("=")
        name, value = name.strip(), value.strip()
        if name == "q":
            try:
                quality = float(value)
            except ValueError:
                quality = 1.0
        elif name:
            parameters.append((name, value))
    return Clause(type_, subtype, quality, tuple(parameters))


def _accepts(clause: Clause, media_type: str) -> bool:
    type_, _, subtype = media_type.partition("/")
    return clause.type in (type_, "*") and clause.subtype in (subtype, "*")


def _with_parameters(clause: Clause, media_type: str, offer: Offer) -> Representation | None:
    """Return the representation that a clause requests; None: the endpoint does not have it."""
    parameters: dict[str, str] = dict(clause.parameters)
    if parameters.get("stream", "watch") not in ("", "watch"):
        return None
    if parameters.get("sv", "v1") not in ("", "v1"):
        return None
    pretty = parameters.get("pretty") == "1"
    if not parameters.keys() & {"as", "g", "v"}:
        if offer.aggregates or media_type not in offer.plain_types:
            return None
        return Representation(media_type, pretty=pretty)
    kind, group, version = (parameters.get(name, "") for name in ("as", "g", "v"))
    if offer.aggregates:
        if (kind, group, version) == (AGGREGATED, DISCOVERY, "v2"):
            profile = parameters.get("profile", "")
            return Representation(media_type, kind, version, pretty, profile)
        return None
    if not offer.transforms or group != META or version not in _META_VERSIONS:
        return None
    if kind == TABLE and offer.has_table and media_type in (JSON, YAML):
        return Representation(media_type, kind, version, pretty)
    if kind in (PARTIAL, PARTIAL_LIST):
        return Representation(media_type, kind, version, pretty)
    return None
