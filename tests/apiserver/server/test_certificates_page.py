"""When certificates end: which files are told of, and what is said of bad ones."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import orjson

from kvstack.apiserver.http.answers import Reply
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.server import certificates_page
from kvstack.apiserver.server.certificates_page import CertificatesPage
from kvstack.apiserver.server.settings.options import Options
from kvstack.component.certs.cert_files import CertFiles
from kvstack.component.certs.certificates import Profile
from tests.apiserver.support.sites import Api, KeptAnswer
from tests.apiserver.support.virtual_time import run

NOW_S = 1_700_000_000.0


def ask_page(page: CertificatesPage) -> list[Mapping[str, Any]]:
    """Return what the page tells."""

    async def story() -> KeptAnswer:
        kept = KeptAnswer()
        request = Api.request("GET", certificates_page.PATH, None, "", {})
        reply = Reply(request, kept.answer, "audit")
        await page(RequestContext(request, reply, cast("Any", None), 0))
        return kept

    found: list[Mapping[str, Any]] = run(story()).json["certificates"]
    return found


def options(client_ca_file: Path) -> Options:
    """Return settings that name an authority of clients."""
    plain = Options()
    named = replace(plain.authentication, client_ca_file=str(client_ca_file))
    return replace(plain, authentication=named)


def test_all_of_a_directory_and_what_is_named_are_reported_the_first_to_end_first(
    tmp_path: Path,
) -> None:
    files = CertFiles(tmp_path)
    files.authority("ca", "tests", NOW_S)
    files.pair("server", "ca", Profile("a server"), NOW_S)
    page = CertificatesPage(options(client_ca_file=files.cert("ca")), str(files.cert("server")))
    page.add(tmp_path)
    page.add(tmp_path / "none")
    server, authority = ask_page(page)
    assert (server["name"], server["issuer"], authority["name"]) == ("a server", "tests", "tests")
    assert server["notAfter"] < authority["notAfter"]
    assert (server["isAuthority"], server["isRenewed"]) == (False, True)
    assert (authority["isAuthority"], authority["isRenewed"]) == (True, False)
    assert authority["file"] == str(files.cert("ca"))
    assert "PRIVATE" not in orjson.dumps([server, authority]).decode()


def test_what_cannot_be_read_comes_first_and_says_why(tmp_path: Path) -> None:
    files = CertFiles(tmp_path)
    files.authority("ca", "tests", NOW_S)
    (tmp_path / "bad.crt").write_text("nothing")
    with (tmp_path / "large.crt").open("wb") as large:
        large.truncate(certificates_page.BYTES_MAX + 1)
    page = CertificatesPage(options(client_ca_file=tmp_path / "gone.crt"), "")
    page.add(tmp_path)
    found = ask_page(page)
    errors = {Path(each["file"]).name: each["error"] for each in found if "error" in each}
    assert errors.keys() == {"bad.crt", "gone.crt", "large.crt"}
    assert "PEM" in errors["bad.crt"]
    assert "No such file" in errors["gone.crt"]
    assert str(certificates_page.BYTES_MAX) in errors["large.crt"]
    assert found[-1]["name"] == "tests"
