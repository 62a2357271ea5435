"""Answers as messages of dnspython, from the records of a name."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import dns.rdtypes.ANY.CNAME
import dns.rdtypes.ANY.NS
import dns.rdtypes.ANY.PTR
import dns.rdtypes.ANY.SOA
import dns.rdtypes.ANY.TXT
import dns.rdtypes.IN.A
import dns.rdtypes.IN.AAAA
import dns.rdtypes.IN.SRV
from dns.message import Message
from dns.name import Name, from_text
from dns.rcode import NXDOMAIN
from dns.rdata import Rdata
from dns.rdataclass import IN
from dns.rdatatype import AAAA, CNAME, NS, PTR, SOA, SRV, TXT, A, RdataType
from dns.rrset import RRset

from kvstack.agents.dns.cluster import Record
from kvstack.agents.dns.prepared import authoritative
from kvstack.agents.dns.query import labels_of

_ANY, _INTERNET = dns.rdtypes.ANY, dns.rdtypes.IN
_DATA: Final[Mapping[RdataType, Callable[..., Rdata]]] = {
    A: _INTERNET.A.A,
    AAAA: _INTERNET.AAAA.AAAA,
    CNAME: _ANY.CNAME.CNAME,
    NS: _ANY.NS.NS,
    PTR: _ANY.PTR.PTR,
    SOA: _ANY.SOA.SOA,
    SRV: _INTERNET.SRV.SRV,
    TXT: _ANY.TXT.TXT,
}
_NAMES: Final[Mapping[RdataType, Collection[int]]] = {
    CNAME: (0,),
    NS: (0,),
    PTR: (0,),
    SOA: (0, 1),
    SRV: (3,),
}
"""The values of a record that are names."""


def message(
    name: bytes,
    kind: int,
    answers: Sequence[Record],
    additional: Sequence[Record] = (),
    *,
    soa: Record | None = None,
    exists: bool = True,
    followed: Iterable[RRset] = (),
) -> Message:
    """Return an answer; name: as on the wire; soa: where there is nothing to answer.

    followed: what others said of the name that the last answer points to.
    """
    answer = authoritative()
    asked = Name((*labels_of(name), b""))
    answer.question.append(RRset(asked, IN, RdataType.make(kind)))
    answer.answer.extend(_sets(asked, answers))
    answer.answer.extend(followed)
    answer.additional.extend(_sets(asked, additional))
    if soa is not None:
        answer.authority.extend(_sets(asked, (soa,)))
    if not exists:
        answer.set_rcode(NXDOMAIN)
    return answer


def _sets(asked: Name, records: Iterable[Record]) -> list[RRset]:
    """Return records, those of one name and type together."""
    found: dict[tuple[str, RdataType], RRset] = {}
    for each in records:
        key = (each.owner, each.kind)
        if key not in found:
            found[key] = RRset(from_text(each.owner) if each.owner else asked, IN, each.kind)
        found[key].add(_data(each), each.ttl_s)
    return list(found.values())


def _data(record: Record) -> Rdata:
    names = _NAMES.get(record.kind, ())
    told = [from_text(str(it)) if at in names else it for at, it in enumerate(record.data)]
    return _DATA[record.kind](IN, record.kind, *told)
