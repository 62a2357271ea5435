"""The serial numbers of a certificate revocation list, PEM or DER.

    CertificateList  SEQUENCE { tbs SEQUENCE { version?, algorithm, issuer, thisUpdate, nextUpdate?,
                                               revoked SEQUENCE OF { serial INTEGER, … }?, … }, … }

Neither the signature nor the dates are checked: etcd, too, looks only for the serial number.
"""

import base64
import binascii
from collections.abc import Iterator
from typing import Final

from kvstore.wire.varint import WireError

_BEGIN: Final = b"-----BEGIN X509 CRL-----"
_END: Final = b"-----END X509 CRL-----"
_INTEGER: Final = 0x02
_SEQUENCE: Final = 0x30
_TIMES: Final = (0x17, 0x18)


def revoked_serials(data: bytes) -> set[int]:
    """Return the serial numbers of a list; WireError if data is not one."""
    tbs_kind, tbs = _first(_only_sequence(_der(data)))
    if tbs_kind != _SEQUENCE:
        raise WireError("revocation list without a body")
    fields = list(_elements(tbs))
    if fields and fields[0][0] == _INTEGER:
        fields = fields[1:]
    # algorithm, issuer, one or two times; the next sequence, if any, holds the revoked ones
    if len(fields) < 3 or fields[2][0] not in _TIMES:
        raise WireError("revocation list without a date")
    after = 4 if len(fields) > 3 and fields[3][0] in _TIMES else 3
    if len(fields) <= after or fields[after][0] != _SEQUENCE:
        return set()
    return {_serial(entry) for _, entry in _elements(fields[after][1])}


def _der(data: bytes) -> bytes:
    begin = data.find(_BEGIN)
    if begin < 0:
        return data
    end = data.find(_END, begin)
    if end < 0:
        raise WireError("revocation list whose PEM block has no end")
    try:
        return base64.b64decode(data[begin + len(_BEGIN) : end])
    except binascii.Error as error:
        raise WireError(f"revocation list: {error}") from None


def _serial(entry: bytes) -> int:
    kind, body = _first(entry)
    if kind != _INTEGER:
        raise WireError("revoked certificate without a serial number")
    return int.from_bytes(body, "big", signed=True)


def _only_sequence(data: bytes) -> bytes:
    kind, body = _first(data)
    if kind != _SEQUENCE:
        raise WireError(f"revocation list of {len(data)} bytes is not an ASN.1 sequence")
    return body


def _first(data: bytes) -> tuple[int, bytes]:
    for element in _elements(data):
        return element
    raise WireError("empty ASN.1 sequence in a revocation list")


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (tag, content) of consecutive elements in data."""
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            raise WireError(f"ASN.1 element cut off at offset {at}")
        tag, size = data[at], data[at + 1]
        at += 2
        if size & 0x80:
            width = size & 0x7F
            if not 1 <= width <= 4 or at + width > len(data):
                raise WireError(f"ASN.1 length of {width} bytes at offset {at}")
            size = int.from_bytes(data[at : at + width], "big")
            at += width
        if at + size > len(data):
            raise WireError(f"ASN.1 element of {size} bytes at offset {at} ends after {len(data)}")
        yield tag, data[at : at + size]
        at += size
