"""The crate (kvstore/native), if it was built for this interpreter: its only importer.

    Server, HttpServer          see `transport.native` and `kvstack.component.http.serving.native`
    Client, Decoder             see `kvstore.client.channels` and `kvstore.client.codec`
    encode_entries, ROW_SUMS    as in `kvstore.storage`, several times as fast
    KERNELS, PlainCalls         codec work on whole batches: see `kvstore.wire.columns`, and
                                `kvstore.node.plain_calls`
    read_yaml                   see `kvstack.apimachinery.objects.text.yaml_crate`

Each is None without the crate, and MISSING says why. A library that was built from other sources
is an error, not a reason to run without it: its calls may take other arguments than those here.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

ABI: Final = 3  # raised, as in kvstore/native/src/python/module.rs, when an interface changes

if TYPE_CHECKING:
    from kvstack.apimachinery.objects.text.yaml_crate import ReadYaml
    from kvstack.component import _native
    from kvstack.component._native import HttpServer as HttpServer

MISSING = ""  # why the crate cannot be loaded
Server: "type[_native.Server] | None" = None
Client: "type[_native.Client] | None" = None
Decoder: "type[_native.Decoder] | None" = None
encode_entries: Callable[..., tuple[bytes, int]] | None = None  # of entries and a state
KERNELS: "_native.Kernels | None" = None
PlainCalls: "type[_native.PlainCalls] | None" = None
ROW_SUMS: "_native.RowSums | None" = None
read_yaml: "ReadYaml | None" = None  # of bytes and limits


class CrateMismatchError(ImportError):
    """The library was built from other sources than these modules."""


def check_abi(abi: int | None, path: str) -> None:
    """Raise CrateMismatchError unless the library at path has this ABI; None: no number."""
    if abi != ABI:
        raise CrateMismatchError(
            f"{path} has ABI {abi}, these sources need {ABI}: rebuild it with "
            f"'python packaging/crate.py {path}', or remove it to do without"
        )


try:
    from kvstack.component import _native as _library
except ImportError as error:
    MISSING = str(error)
    if not TYPE_CHECKING:
        HttpServer = None
else:
    check_abi(getattr(_library, "ABI", None), str(_library.__file__))
    Server, Client, Decoder = _library.Server, _library.Client, _library.Decoder
    encode_entries, ROW_SUMS = _library.encode_entries, _library.RowSums()
    KERNELS, PlainCalls = _library.Kernels(), _library.PlainCalls
    read_yaml = _library.read_yaml
    if not TYPE_CHECKING:
        HttpServer = _library.HttpServer


def is_available() -> bool:
    """Return whether the crate was built for this interpreter."""
    return Server is not None
