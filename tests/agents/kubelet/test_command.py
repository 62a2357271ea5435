"""`kvstack kubelet` as a program."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

END_S = 20.0


@pytest.mark.slow
def test_a_node_that_waits_for_its_certificate_ends_when_it_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # which never says anything
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "a", "cluster": {"server": f"https://127.0.0.1:{server.getsockname()[1]}"}}
            ],
            "users": [{"name": "a", "user": {"token": "abcdef.0123456789abcdef"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        }
        file = tmp_path / "bootstrap.conf"
        file.write_text(yaml.safe_dump(config))
        flags = (
            f"--bootstrap-kubeconfig={file}",
            f"--kubeconfig={tmp_path / 'kubelet.conf'}",
            f"--root-dir={tmp_path / 'node'}",
            "--hostname-override=node-a",
        )
        with subprocess.Popen([sys.executable, "-m", "kvstack", "kubelet", *flags]) as process:
            try:
                server.settimeout(END_S)
                with server.accept()[0]:
                    process.send_signal(signal.SIGTERM)
                    assert process.wait(END_S) == 0
            finally:
                process.kill()
