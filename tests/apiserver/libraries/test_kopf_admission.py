"""An operator made with kopf whose admission handlers are webhooks of the API server."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.apiserver.support.api_servers import ApiServer, cluster
from tests.apiserver.support.kube_files import make_namespace, write_kubeconfig
from tests.apiserver.support.requests import RefusedError, send
from tests.support.certificates import Authority
from tests.support.waiting import wait_for

pytest.importorskip("kopf")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.xdist_group("apiserver-libraries"),
]

OPERATOR = Path(__file__).with_name("operator_of_rules.py")
TIMEOUT_S = 120.0


def test_handlers_of_admission_are_asked(tmp_path: Path) -> None:
    with cluster(tmp_path) as stack:
        server = stack.server
        namespace = make_namespace(server, "rules")
        authority = Authority(tmp_path, "hook-ca")
        certificate, key = authority.issue("hook", host="")
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "KUBECONFIG": str(write_kubeconfig(tmp_path / "kubeconfig", server)),
            "HOOK_CERT": certificate,
            "HOOK_KEY": key,
            "HOOK_CA": authority.file,
        }
        command = [sys.executable, "-m", "kopf", "run", "--standalone", "-n", namespace]
        log = tmp_path / "operator.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, str(OPERATOR)], env=environment, stdout=output, stderr=output
            )
        try:
            _check(server, namespace, log)
        finally:
            process.terminate()
            process.wait(20)


def _check(server: ApiServer, namespace: str, log: Path) -> None:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    numbers = itertools.count(1)

    def is_marked() -> bool:
        metadata = {"name": f"m{next(numbers)}", "labels": {"checked": "yes"}}
        made = send(server, "POST", maps, {"metadata": metadata})
        return bool(made["metadata"]["labels"].get("marked") == "yes")

    wait_for(is_marked, lambda: log.read_text()[-4000:], TIMEOUT_S, every_s=0.1)
    bad = {"metadata": {"name": "bad", "labels": {"checked": "yes"}}, "data": {"bad": "x"}}
    with pytest.raises(RefusedError, match="denied the request: bad is bad") as refused:
        send(server, "POST", maps, bad)
    assert refused.value.code == 418
    plain = send(server, "POST", maps, {"metadata": {"name": "plain"}, "data": {"bad": "x"}})
    assert "labels" not in plain["metadata"]
