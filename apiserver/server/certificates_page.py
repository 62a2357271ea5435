"""Expiry of certificates: `/debug/certificates`, as JSON, the first to expire first.

    page = CertificatesPage(options, serving_file)
    page.add(directory)                       all *.crt of it, renewed automatically

    {"certificates": [{"file": "…/apiserver.crt", "name": "kube-apiserver", "issuer": "kubernetes",
                       "notAfter": TIME, "isAuthority": false, "isRenewed": true}, …]}

Files are read on each request, in a thread. Each certificate of a file is listed. A file that
cannot be read has an `error` instead. Keys are never read.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from kvstack.apimachinery.objects.times import format_time
from kvstack.apiserver.http.pages.debug_pages import ROOT, send_json
from kvstack.apiserver.http.pages.page_set import check_get
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.server.settings.options import Options
from kvstack.component.certs.ca_bundles import BundleError, certificates_of

PATH: Final = f"{ROOT}/certificates"
FILES_MAX: Final = 200
CERTIFICATES_MAX: Final = 500
BYTES_MAX: Final = 1 << 20
"""Limit of one file."""

Row = dict[str, Any]


class CertificatesPage:
    """The certificates that a server presents, trusts and issues."""

    def __init__(self, options: Options, serving: str) -> None:
        """serving: the file of the serving certificate; empty: there is none."""
        authentication = options.authentication
        named = [
            serving,
            *(each.cert_file for each in options.serving.others),
            authentication.client_ca_file,
            authentication.proxy_ca_file,
            options.kubelets.cert_file,
            options.kubelets.ca_file,
            options.proxy_certificate.cert_file,
            options.store.cert_file,
            options.store.ca_file,
        ]
        self._files: Final = [Path(each) for each in named if each]
        self._directories: Final[list[Path]] = []

    def add(self, directory: Path) -> None:
        """Also list all *.crt of a directory that is renewed automatically."""
        self._directories.append(directory)

    async def __call__(self, context: RequestContext) -> None:
        """Answer with the page."""
        check_get(context.request)
        send_json(context, {"certificates": await asyncio.to_thread(self._read)})

    def _read(self) -> list[Row]:
        renewed = {each.absolute(): False for each in self._files}
        for directory in self._directories:
            renewed |= {each.absolute(): True for each in sorted(directory.glob("*.crt"))}
        found: list[Row] = []
        for file in list(renewed)[:FILES_MAX]:
            found += _certificates(file, is_renewed=renewed[file])
        found.sort(key=lambda each: each.get("notAfter", ""))  # unreadable files come first
        return found[:CERTIFICATES_MAX]


def _certificates(file: Path, *, is_renewed: bool) -> Iterator[Row]:
    try:
        with file.open("rb") as opened:
            data = opened.read(BYTES_MAX + 1)
        if len(data) > BYTES_MAX:
            yield {"file": str(file), "error": f"more than {BYTES_MAX} bytes"}
            return
        certificates = certificates_of(data)
    except (OSError, BundleError) as error:
        yield {"file": str(file), "error": getattr(error, "strerror", None) or str(error)}
        return
    for position, der in enumerate(certificates):
        cert = x509.load_der_x509_certificate(der)
        is_authority = _is_authority(cert)
        if position and is_authority:
            continue  # the issuer of the first one, which is listed by its own file
        yield {
            "file": str(file),
            "name": _name(cert.subject),
            "issuer": _name(cert.issuer),
            "notAfter": format_time(cert.not_valid_after_utc.timestamp()),
            "isAuthority": is_authority,
            "isRenewed": is_renewed and not is_authority,
        }


def _is_authority(cert: x509.Certificate) -> bool:
    try:
        return bool(cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except (x509.ExtensionNotFound, ValueError):
        return False


def _name(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else name.rfc4514_string()
