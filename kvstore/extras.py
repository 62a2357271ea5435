"""Optional dependencies: the packages that `pip install 'kvstack[NAME]'` adds.

    require("tracing", "--enable-distributed-tracing")
        → ConfigError: --enable-distributed-tracing needs packages that are not installed (…): …

A module of an extra is imported where it is used, after `require`. The extra `explain` has no row:
documents are served without it. docs/dependencies.md lists all dependencies.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from kvstack.component.errors import ConfigError

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "tracing": ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.grpc"),
}
"""The modules that an extra is needed for."""


def require(extra: str, flag: str) -> None:
    """Raise ConfigError, which names flag and extra, if packages of the extra are missing."""
    missing = [module for module in EXTRAS[extra] if not _is_installed(module)]
    if missing:
        raise ConfigError(
            f"{flag} needs packages that are not installed ({', '.join(missing)}): "
            f"pip install 'kvstack[{extra}]'"
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that the module is in
        return False
