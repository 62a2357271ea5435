"""A DNS server of the test's own: SRV records, on a loopback UDP port."""

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
from dns.rdatatype import SRV

Records = Mapping[str, Sequence[str]]  # name → "priority weight port target."


@contextmanager
def dns_server(records: Records) -> Iterator[str]:
    """Answer for records until the block ends; any other name does not exist. Gives host:port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        host, port = bound.getsockname()
        thread = threading.Thread(target=_answer, args=(bound, records))
        thread.start()
        try:
            yield f"{host}:{port}"
        finally:
            bound.sendto(b"", (host, port))
            thread.join()


def _answer(bound: socket.socket, records: Records) -> None:
    while True:
        data, sender = bound.recvfrom(65535)
        if not data:
            return
        query = dns.message.from_wire(data)
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        question = query.question[0]
        found = records.get(str(question.name).rstrip("."), ())
        if found and question.rdtype == SRV:
            response.answer.append(dns.rrset.from_text(question.name, 60, "IN", "SRV", *found))
        else:
            response.set_rcode(dns.rcode.NXDOMAIN)
        bound.sendto(response.to_wire(), sender)
