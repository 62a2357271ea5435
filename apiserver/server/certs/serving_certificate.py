"""The serving certificate of this server: that of the flags, or a self-made one.

Without flags, `apiserver.crt` and `apiserver.key` of the certificate directory are used. If they
are missing, they are made with an authority of their own, and renewed. Files of others are never
changed. Files are read for every handshake, so that a new certificate takes effect at once.
"""

import socket
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from kvstack.apiserver.allocators.cluster_ips import AddressRange
from kvstack.apiserver.server.settings.options import ServingOptions
from kvstack.component.certs.cert_files import CertFiles
from kvstack.component.certs.certificates import Profile, ends_at, is_signed_by
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

AUTHORITY: Final = "apiserver-ca"
NAME: Final = "apiserver"
SERVICE_NAMES: Final = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


class ServingCertificate:
    """The paths of the certificate and its checks."""

    def __init__(
        self,
        serving: ServingOptions,
        advertised: str,
        ranges: Sequence[AddressRange],
        clock: Clock,
        logger: Logger,
    ) -> None:
        """Hold paths and settings; no file is read or written."""
        self._files: Final = CertFiles(Path(serving.cert_dir))
        self._is_shown: Final = serving.listens and not serving.is_plain
        self._clock: Final = clock
        self._logger: Final = logger
        is_named = bool(serving.cert_file)
        self.files: Final = (
            (Path(serving.cert_file), Path(serving.key_file))
            if is_named
            else (self._files.cert(NAME), self._files.key_file(NAME))
        )
        hosts = [serving.external_host, advertised, serving.bind_address]
        self._may_make: Final = not is_named
        self.profile: Final = Profile(
            "kube-apiserver", hosts=serving_hosts(hosts, ranges), serves=True
        )

    def ensure(self) -> None:
        """Make the certificate if it is missing, expired or for other names; raises ConfigError."""
        if not self._may_make or not self._is_shown or self._is_others():
            return
        now_s = self._clock.unix_ms() / 1000
        self._files.authority(AUTHORITY, "kvstack-apiserver", now_s)
        why = self._files.pair(NAME, AUTHORITY, self.profile, now_s)
        if why:
            self._logger.info("made a serving certificate", file=str(self.files[0]), why=why)

    def _is_others(self) -> bool:
        """Return whether the certificate was put there by others."""
        found, authority = self._files.read(NAME), self._files.read(AUTHORITY)
        if found is None or authority is None:
            return found is not None
        try:
            return not is_signed_by(authority.cert, found.cert)
        except ValueError:
            return False

    def fault(self) -> str:
        """Return what is wrong with the serving certificate; empty: nothing."""
        if not self._is_shown:
            return ""
        try:
            ends_s = ends_at(self.files[0].read_bytes())
        except (OSError, ValueError) as error:
            return f"{self.files[0]}: {error}"
        is_over = ends_s < self._clock.unix_ms() / 1000
        return f"{self.files[0]} is no longer valid" if is_over else ""


def serving_hosts(hosts: Sequence[str], ranges: Sequence[AddressRange]) -> tuple[str, ...]:
    """Return all names and addresses that clients use for an API server, without duplicates."""
    found = [each for each in hosts if each and not _is_unspecified(each)]
    found += ["localhost", "127.0.0.1", "::1", socket.gethostname().lower(), *SERVICE_NAMES]
    for each in ranges:
        found.append(first_address(each))
    return tuple(dict.fromkeys(found))


def first_address(block: AddressRange) -> str:
    """Return the first address of a range, which the Service `kubernetes` has."""
    from ipaddress import IPv4Address, IPv6Address

    make = IPv4Address if block.family == "IPv4" else IPv6Address
    return str(make(block.first))


def _is_unspecified(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
