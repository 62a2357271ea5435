"""Logs and terminals of containers that run, on a node of processes."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agents.dashboard.conftest import Cluster, go, shows
from tests.support.browser import Page
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("dashboard")]

HOSTILE = (
    "printf '<script>document.title=1</script>\\n';"
    "printf '\\033[31mred\\033[0m \\033]0;title\\007\\342\\200\\256txt.exe\\n';"
    " head -c 1000000 /dev/zero | tr '\\0' x; echo; seq 1 3000; echo the-end; exec sleep 1000000"
)
TEXT = "document.getElementById('terminal').innerText"


def container(name: str, script: str) -> dict[str, Any]:
    return {"name": name, "image": "host:latest", "command": ["sh", "-c", script]}


@pytest.fixture(scope="module")
def pods(cluster: Cluster, real_node: str) -> str:
    """Pods that write, and one that crashes; return the node."""
    spec: dict[str, Any] = {
        "nodeSelector": {"kubernetes.io/hostname": real_node},
        "terminationGracePeriodSeconds": 0,
    }
    labels = {"app": "talks"}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            **spec,
            "containers": [
                container("one", "echo i-am-one; exec sleep 1000000"),
                container("two", "i=0; while true; do i=$((i+1)); echo two-$i; sleep 0.2; done"),
            ],
        },
    }
    crash = "echo about-to-crash; exit 3"
    cluster.apply(
        {
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "talks", "namespace": "default"},
            "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
        },
        *(
            {
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {**spec, "containers": [container("c", script)]},
            }
            for name, script in (("noise", HOSTILE), ("crash", crash))
        ),
    )  # fmt: skip
    cluster.kubectl("rollout", "status", "deployment/talks", "--timeout=50s")
    cluster.kubectl("wait", "pod/noise", "--for=condition=Ready", "--timeout=50s")
    return real_node


@pytest.mark.usefixtures("pods")
def test_all_containers_of_a_deployment_are_followed(page: Page) -> None:
    go(page, "#/object/apps/v1/deployments/default/talks/logs")
    page.until("document.getElementById('log-state')?.textContent.includes('4 of 4 open')")
    log = "document.getElementById('log').innerText"
    page.until(f"({log}.match(/one i-am-one/g) || []).length === 2")
    last = int(page.run(f"Math.max(...[...{log}.matchAll(/two-(\\d+)/g)].map((each) => each[1]))"))
    page.until(f"{log}.includes('two-{last + 3}')")  # it goes on by itself
    page.run("document.getElementById('filter').value = 'one'")
    page.run("document.getElementById('filter').dispatchEvent(new Event('input'))")
    page.until(f"!{log}.includes('two-') && {log}.includes('i-am-one')")
    page.run("document.getElementById('container').value = 'one'")
    page.run("document.getElementById('container').dispatchEvent(new Event('change'))")
    page.until("document.getElementById('log-state').textContent.includes('2 of 2 open')")


@pytest.mark.usefixtures("pods")
def test_lines_of_logs_are_text_and_bounded(page: Page) -> None:
    go(page, "#/object/-/v1/pods/default/noise/logs")
    page.until("document.getElementById('span')")
    page.run("document.getElementById('span').value = 'from the beginning'")
    page.run("document.getElementById('span').dispatchEvent(new Event('change'))")
    shows(page, "the-end", "#log")
    text = str(page.run("document.getElementById('log').textContent"))
    assert "<script>document.title=1</script>" in text
    assert "red ⟨U+202E⟩txt.exe" in text
    assert "characters more)" in text
    assert "\x1b" not in text
    assert len(text) < 200_000
    assert page.run("document.querySelectorAll('#log script').length") == 0
    assert page.run("document.title") != "1"


@pytest.mark.usefixtures("pods")
def test_a_crash_loop_is_reported_with_its_last_lines(cluster: Cluster, page: Page) -> None:
    shows(page, "default/crash", "#stuck")
    shows(page, "about-to-crash", "#stuck")
    shows(page, "exit code 3", "#stuck")
    # Only what was started again has a previous log.
    again = "{.status.containerStatuses[0].lastState.terminated.exitCode}"
    cluster.kubectl("wait", "pod/crash", f"--for=jsonpath={again}=3", "--timeout=50s")
    go(page, "#/object/-/v1/pods/default/crash/logs")
    page.until("document.getElementById('previous')")
    page.run("document.getElementById('previous').click()")
    shows(page, "about-to-crash", "#log")
    go(page, "#/object/-/v1/pods/default/crash")
    shows(page, "last: Error (3)")


@pytest.mark.usefixtures("pods")
def test_a_terminal_is_opened_with_the_users_token(cluster: Cluster, page: Page) -> None:
    go(page, "#/object/-/v1/pods/default/noise/terminal")
    page.until("document.getElementById('terminal-state')?.textContent === 'Open in c.'")
    page.until("document.activeElement.id === 'terminal'")
    page.until(f"{TEXT}.trim().length > 0")  # a prompt

    def type_(text: str) -> None:
        for character in text:
            page.press(character)
        page.press("Enter")

    type_("echo $((6*7))-answers; tput cols")
    page.until(f"{TEXT}.includes('42-answers')")
    page.until(f"/\\n\\s*\\d{{2,3}}\\s*\\n/.test({TEXT})")  # it knows its size
    type_("printf '\\033[31m<b>red</b>\\033[0m\\033]0;taken\\007\\n'")
    page.until(
        "[...document.querySelectorAll('#terminal span')].some((each) => each.style.color"
        " && each.textContent.includes('<b>red</b>'))"
    )
    assert page.run("document.querySelectorAll('#terminal b').length") == 0
    assert page.run("document.title") != "taken"
    # Keys are the program's: Escape does not leave the view.
    page.press("Escape")
    page.press("g")
    assert page.run("location.hash").endswith("/terminal")
    page.press("c", is_control=True)
    # A flood ends, and the page is there.
    type_("seq 1 200000; echo done-$((1+1))")
    page.until(f"{TEXT}.includes('done-2')")
    assert page.run("document.querySelectorAll('.terminal-row').length") < 1000
    type_("exit")
    page.until("/has ended|exit code/.test(document.getElementById('terminal-state').textContent)")
    sockets = [
        each["params"] for each in page.events if each["method"] == "Network.webSocketCreated"
    ]
    (socket,) = sockets
    assert socket["url"].startswith(cluster.url.replace("https", "wss"))
    assert cluster.token not in socket["url"]
    shaken = [
        each["params"]
        for each in page.events
        if each["method"] == "Network.webSocketHandshakeResponseReceived"
    ]
    headers = {name.lower(): value for name, value in shaken[0]["response"]["headers"].items()}
    # The token is among those that were offered, and the other one was chosen.
    assert headers["sec-websocket-protocol"] == "v5.channel.k8s.io"
    asked = json.dumps(shaken[0]["response"].get("requestHeaders", {}))
    assert "base64url.bearer.authorization.k8s.io." in asked or not shaken[0]["response"].get(
        "requestHeaders"
    )
    assert page.complaints() == []


@pytest.mark.usefixtures("pods")
def test_who_may_not_open_terminals_sees_why(cluster: Cluster, page: Page) -> None:
    """And so is who meets a command that is not there."""
    go(page, "#/object/-/v1/pods/default/noise/terminal")
    page.until("document.getElementById('terminal-state')?.textContent === 'Open in c.'")
    page.run("document.getElementById('command').value = 'exit 7'")
    page.run("document.getElementById('open').click()")
    page.until("/exit code 7/.test(document.getElementById('terminal-state').textContent)")
    cluster.kubectl(
        "create", "role", "views", "--verb=get,list,watch", "--resource=pods", "-n", "default"
    )
    cluster.kubectl(
        "create",
        "rolebinding",
        "views",
        "--role=views",
        "--serviceaccount=default:views",
        "-n",
        "default",
    )
    token = cluster.account("views")
    page.call("Page.reload")
    page.until("document.getElementById('token')")
    page.run(f"document.getElementById('token').value = {json.dumps(token)}")
    page.run("document.querySelector('form.login').requestSubmit()")
    page.until(
        "/You may not open terminals/.test(document.getElementById('terminal-state')?.textContent)"
    )


@pytest.mark.usefixtures("pods")
def test_keys_lead_to_logs_and_a_terminal_and_a_log_is_saved(page: Page, tmp_path: Path) -> None:
    go(page, "#/in/default/kind/-/v1/pods")
    page.until("document.querySelectorAll('.grid-row').length > 0")
    page.press("/")
    page.write("noise")
    page.until("document.querySelector('#count').textContent.startsWith('1 of')")
    page.press("ArrowDown")
    page.press("d")
    page.until("location.hash.endsWith('/object/-/v1/pods/default/noise/summary')")
    shows(page, "Events")
    page.press("s")
    page.until("location.hash.endsWith('/pods/default/noise/terminal')")
    page.until("document.getElementById('terminal-state')?.textContent.startsWith('Open in')")
    go(page, "#/object/apps/v1/deployments/default/talks")
    shows(page, "Events")
    page.press("s")  # a Deployment has no terminal
    page.press("l")
    page.until("location.hash.endsWith('/deployments/default/talks/logs')")
    page.until("document.getElementById('log-state')?.textContent.includes('4 of 4 open')")
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.run("document.getElementById('save-log').click()")
    file = tmp_path / "talks.log"
    wait_for(file.exists, "the log is saved")
    saved = file.read_text()
    assert saved.count(" one <==\ni-am-one\n") == 2
    assert saved.count(" two <==\ntwo-1\n") == 2
