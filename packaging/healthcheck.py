"""Health check of the image: exit code 0 if the command of the container answers its health page.

    python healthcheck.py

KVSTACK_HEALTH_URL names the page. Without it the page is that of the command that process 1 runs,
at its default address on loopback. Commands without a page (gateway, grpc-proxy, certs, …) are
healthy while they run. Certificates are not verified: the check only asks whether the process
answers.
"""

import os
import ssl
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

TIMEOUT_S = 4.0
PROGRAMS = ("kvstack", "kvstore", "kvstore-util")
PAGES = {
    "kvstore": "http://127.0.0.1:2379/health",
    "up": "https://127.0.0.1:6443/readyz",
    "apiserver": "https://127.0.0.1:6443/readyz",
    "controller-manager": "https://127.0.0.1:10257/healthz",
    "scheduler": "https://127.0.0.1:10259/healthz",
    "kubelet": "http://127.0.0.1:10248/healthz",
    "hollow-nodes": "https://127.0.0.1:10248/healthz",
    "metrics": "https://127.0.0.1:10252/healthz",
}


def url_of(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the page of a process with this command line; an empty text: it has none."""
    named = environment.get("KVSTACK_HEALTH_URL")
    if named:
        return named
    names = [Path(word).name for word in words]
    for index, name in enumerate(names):
        if name in PROGRAMS:
            first = names[index + 1] if index + 1 < len(names) else ""
            if name == "kvstore" and (not first or words[index + 1].startswith("-")):
                return PAGES["kvstore"]
            return PAGES.get(first, "") if name == "kvstack" else ""
    return ""


def main() -> int:
    """Ask the page; return the exit code."""
    words = Path("/proc/1/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    url = url_of(words, os.environ)
    if not url:
        return 0
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S, context=context):
            return 0
    except OSError as error:
        print(f"{url}: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
