"""HTTP request headers into a gRPC call's metadata and timeout, by grpc-gateway's rules.

    Authorization: x            → authorization: x
    Grpc-Metadata-Token: x      → token: x             (-Bin: base64, as bytes)
    Grpc-Timeout: 250m          → 0.25 s               (H M S m u n)
    Accept, Cookie, Origin, …   → grpcgateway-accept, … (not used here, so left out)

If a name occurs twice the first value counts, as in etcd. Names and values that gRPC could not
carry are left out.
"""

import base64
import binascii
import re
from typing import Final, NamedTuple

from kvstore.batch import HttpHeaders
from kvstore.errors import Code
from kvstore.runtime.local_client import CallRefusedError

_PREFIX: Final = "grpc-metadata-"
_TRANSPORTS_OWN: Final = frozenset({"tls-common-name"})  # set by the transport and trusted
_NAME: Final = re.compile(r"[0-9a-z._-]+")
_VALUE: Final = re.compile(r"[\x20-\x7e]*")
_TIMEOUT: Final = re.compile(r"([+-]?[0-9]+)([HMSmun])")
_UNIT_S: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_NUMBER_MAX: Final = 2**63 - 1
_TIMEOUT_MAX_S: Final = 365 * 24 * 3600.0  # longer than any call, short enough for a timer


class CallOptions(NamedTuple):
    """Metadata and timeout of a call."""

    metadata: dict[str, str]
    timeout_s: float | None  # above zero; None: no timeout


def call_options(headers: HttpHeaders) -> CallOptions:
    """Convert the headers; CallRefusedError if one is invalid."""
    metadata: dict[str, str] = {}
    timeout_s: float | None = None
    for name, value in headers:
        if name == "authorization":
            if _VALUE.fullmatch(value):
                metadata.setdefault(name, value)
        elif name == "grpc-timeout":
            if timeout_s is None and value:
                timeout_s = _timeout_s(value)
        elif name.startswith(_PREFIX) and _NAME.fullmatch(name, len(_PREFIX)):
            if name[len(_PREFIX) :] in _TRANSPORTS_OWN:
                continue
            text = _decode_binary(name, value) if name.endswith("-bin") else value
            if name.endswith("-bin") or _VALUE.fullmatch(value):
                metadata.setdefault(name[len(_PREFIX) :], text)
    if timeout_s is not None and timeout_s < 0:
        raise CallRefusedError(Code.DEADLINE_EXCEEDED, "context deadline exceeded")
    return CallOptions(metadata, timeout_s or None)


def _timeout_s(text: str) -> float:
    found = _TIMEOUT.fullmatch(text)
    if found is None or abs(int(found[1][:21])) > _NUMBER_MAX:
        raise CallRefusedError(Code.INVALID_ARGUMENT, f"invalid grpc-timeout: {text}")
    return min(int(found[1]) * _UNIT_S[found[2]], _TIMEOUT_MAX_S)


def _decode_binary(name: str, value: str) -> str:
    padded = value + "=" * (-len(value) % 4)
    try:
        return base64.b64decode(padded, validate=True).decode("latin-1")
    except (binascii.Error, ValueError):
        shown = "-".join([part.capitalize() for part in name.split("-")])
        raise CallRefusedError(
            Code.INVALID_ARGUMENT, f"invalid binary header {shown}: illegal base64 data"
        ) from None
