"""Requests to a cluster, as its administrator."""

import json
import ssl
import urllib.request
from typing import Any

from kvstack.agents.standalone.in_memory.background import BackgroundCluster


def call(cluster: BackgroundCluster, method: str, path: str, body: Any = None) -> Any:
    """Return the answer, as JSON."""
    context = ssl.create_default_context(cafile=cluster.ca_file)
    pki = cluster.ca_file.parent
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        cluster.url + path, data, {"Content-Type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request, context=context, timeout=60) as answer:
        return json.load(answer)
