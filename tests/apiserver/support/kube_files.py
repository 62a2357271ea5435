"""A kubeconfig for client libraries, and a namespace they can play in."""

import json
from pathlib import Path
from typing import Any

from tests.apiserver.support.api_servers import ADMIN_TOKEN, ApiServer
from tests.apiserver.support.requests import send


def write_kubeconfig(
    path: Path, server: ApiServer, *, namespace: str = "default", authority: str = ""
) -> Path:
    """Write a kubeconfig of the admin.

    authority: file of who signed the server's certificate; the server itself if not given.
    """
    authority = authority or str(server.directory / "certs" / "apiserver-ca.crt")
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "test",
                "cluster": {"server": server.url, "certificate-authority": authority},
            }
        ],
        "users": [{"name": "admin", "user": {"token": ADMIN_TOKEN}}],
        "contexts": [
            {
                "name": "test",
                "context": {"cluster": "test", "user": "admin", "namespace": namespace},
            }
        ],
        "current-context": "test",
    }
    path.write_text(json.dumps(config))
    return path


def make_namespace(server: ApiServer, name: str) -> str:
    """Make a namespace with the service account that its pods would use."""
    send(server, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    send(server, "POST", accounts, {"metadata": {"name": "default"}})
    return name
