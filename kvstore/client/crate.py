"""The crate's half for clients, if it was built for this interpreter.

Client     the thread with its HTTP/2 connections    None without the crate
Decoder    answers into values                       None without the crate
"""

from typing import TYPE_CHECKING

MISSING = ""  # why the crate cannot be loaded
if TYPE_CHECKING:
    from kvstore.transport._native import Client as NativeClient
    from kvstore.transport._native import Decoder as NativeDecoder

Client: "type[NativeClient] | None" = None
Decoder: "type[NativeDecoder] | None" = None
try:
    from kvstore.transport import _native
except ImportError as error:
    MISSING = str(error)
else:
    Client, Decoder = _native.Client, _native.Decoder


def is_available() -> bool:
    """Tell whether the crate was built for this interpreter."""
    return Client is not None
