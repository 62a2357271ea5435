"""Container image names: `registry.example:5000/team/app:v1@sha256:…`.

    name       [domain[:port]/]path[/path…]        lower case, except for the domain
    tag        letters, digits, `_`, `.`, `-`, at most 128
    digest     algorithm:hex

A name without domain belongs to the default registry.
"""

import re
from functools import lru_cache
from typing import Final

_DOMAIN_PART: Final = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN: Final = rf"(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_PATH_PART: Final = "[a-z0-9]+(?:(?:[._]|__|[-]+)[a-z0-9]+)*"
_NAME: Final = rf"(?:{_DOMAIN}/)?{_PATH_PART}(?:/{_PATH_PART})*"
_TAG: Final = r"\w[\w.-]{0,127}"
_DIGEST: Final = "[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_REFERENCE: Final = re.compile(
    rf"(?P<name>{_NAME})(?::(?P<tag>{_TAG}))?(?:@(?P<digest>{_DIGEST}))?\Z", re.ASCII
)
_IDENTIFIER: Final = re.compile(r"[a-f0-9]{64}\Z")
_NAME_MAX: Final = 255
_DIGEST_LENGTHS: Final = {"sha256": 64, "sha384": 96, "sha512": 128}
_DEFAULT_DOMAIN: Final = "docker.io"
_OFFICIAL: Final = "library"


@lru_cache(maxsize=1024)
def tag_of_image(image: str) -> str:
    """Return the tag: `latest` if there is neither tag nor digest, "" if there is only a digest.

    An invalid name has no tag either.
    """
    if _IDENTIFIER.match(image):
        return ""
    domain, path = _split_domain(image)
    if path.partition(":")[0] != path.partition(":")[0].lower():
        return ""
    found = _REFERENCE.match(f"{domain}/{path}")
    if found is None or len(found["name"]) - len(domain) - 1 > _NAME_MAX:
        return ""
    tag, digest = found["tag"] or "", found["digest"] or ""
    if digest:
        algorithm, _, number = digest.partition(":")
        is_known = _DIGEST_LENGTHS.get(algorithm) == len(number) and number == number.lower()
        return tag if is_known else ""
    return tag or "latest"


def _split_domain(image: str) -> tuple[str, str]:
    domain, slash, path = image.partition("/")
    is_domain = slash and (
        "." in domain or ":" in domain or domain == "localhost" or domain != domain.lower()
    )
    if not is_domain:
        domain, path = _DEFAULT_DOMAIN, image
    elif domain == "index.docker.io":
        domain = _DEFAULT_DOMAIN
    if domain == _DEFAULT_DOMAIN and "/" not in path:
        path = f"{_OFFICIAL}/{path}"
    return domain, path
