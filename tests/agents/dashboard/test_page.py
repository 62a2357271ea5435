"""The views of the page in a real browser, before a cluster of `kvstack up`."""

import json
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from tests.agents.dashboard.conftest import Cluster, click, encoded, go, shows, sign_in, signed_in
from tests.agents.standalone.test_ways_in import kubectl
from tests.support.browser import Browser, Page
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("dashboard")]

MANY = 500
HOLD = {"kvstack.test/hold": "x"}


def test_the_files_are_open_and_nothing_else_is(cluster: Cluster) -> None:
    code, headers, body = cluster.ask("/ui/")
    assert (code, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "script-src 'self'" in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"
    assert b"main.js" in body
    # By its address it is served to browsers that know nothing of it but this; by a name of its own
    # they are told to use TLS alone.
    assert "strict-transport-security" not in headers
    assert "strict-transport-security" not in cluster.ask("/ui/", Host="localhost:6443")[1]
    named = cluster.ask("/ui/main.js", Host="api.example:6443")[1]
    assert named["strict-transport-security"] == "max-age=31536000"
    assert cluster.ask("/ui")[2] == body  # by a redirect that holds below a prefix
    for path in (
        "/ui/../api/v1/secrets",
        "/ui/%2e%2e/pages.py",
        "/ui/x",
        "/ui/server/",
        "/ui/server",
    ):
        assert cluster.ask(path)[0] in (403, 404), path
    assert cluster.ask("/ui/", "POST", b"{}")[0] in (403, 405)
    for path in ("/api/v1/secrets", "/metrics", "/debug/watches", "/debug/scheduling", "/at"):
        assert cluster.ask(path)[0] == 403, path


def test_a_user_without_rights_sees_the_page_and_what_is_refused(
    cluster: Cluster, browser: Browser
) -> None:
    token = cluster.account("nobody")
    for path in ("/debug/certificates", "/debug/terminating", "/etcd/ui/data"):
        assert cluster.ask(path, Authorization=f"Bearer {token}")[0] == 403, path
    assert cluster.ask("/at", Authorization=f"Bearer {token}")[0] == 200
    page = signed_in(browser, cluster.url, token)
    shows(page, "cannot list resource")
    shows(page, "/debug/watches: ")
    go(page, "#/kind/-/v1/pods")
    page.until("document.getElementById('state')?.textContent.includes('cannot list resource')")
    page.close()


def test_the_observers_role_lets_users_see_what_the_server_knows(cluster: Cluster) -> None:
    token = cluster.account("observer")
    cluster.kubectl(
        "create", "clusterrolebinding", "observer", "--clusterrole=kvstack:cluster-observer",
        "--serviceaccount=default:observer",
    )  # fmt: skip
    for path in ("/debug/certificates", "/debug/scheduling", "/debug/watches", "/etcd/ui/data"):
        assert cluster.ask(path, Authorization=f"Bearer {token}")[0] == 200, path
    assert cluster.ask("/api/v1/pods", Authorization=f"Bearer {token}")[0] == 403


def test_a_wrong_token_is_reported_and_none_is_kept(cluster: Cluster, browser: Browser) -> None:
    page = browser.open(f"{cluster.url}/ui/")
    page.until("document.getElementById('token')")
    page.run("document.getElementById('token').value = 'wrong'")
    page.run("document.querySelector('form.login').requestSubmit()")
    page.until("document.getElementById('wrong').textContent.includes('Unauthorized')")
    sign_in(page, cluster.token)
    go(page, "#/nodes")
    shows(page, "requested")
    page.call("Page.reload")
    page.until("document.getElementById('token')")
    # The address is kept, the token is not.
    assert page.run("location.hash") == "#/nodes"
    sign_in(page, cluster.token)
    shows(page, "requested")
    page.run("document.getElementById('leave').click()")
    page.until("document.getElementById('token')")
    page.close()


def test_the_overview_says_what_is_stuck_and_why(cluster: Cluster, page: Page) -> None:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "400"}}}
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "huge", "namespace": "default"},
            "spec": {"containers": [container]},
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "held",
                "namespace": "default",
                "finalizers": ["kvstack.test/hold"],
            },
        },
    )
    shows(page, "The cluster is changing")
    shows(page, "default/huge", "#stuck")
    # The scheduler's own reasons, with plugin and nodes.
    shows(page, "Insufficient cpu (NodeResourcesFit)", "#stuck")
    shows(page, "h1, h2, h3", "#stuck")
    cluster.kubectl("delete", "configmap", "held", "--wait=false")
    shows(page, "configmaps default/held", "#stuck")
    shows(page, "kvstack.test/hold", "#stuck")
    for card in ("Store", "Watches", "Slow requests", "Certificates"):
        shows(page, card, "#cards")
    shows(page, "renewed by kvstack", "#cards")
    page.run("document.querySelector('#details details').open = true")
    shows(page, "streams, ", "#details")
    cluster.kubectl("patch", "configmap", "held", "-p", '{"metadata":{"finalizers":null}}')
    cluster.kubectl("delete", "pod", "huge", "--grace-period=0")
    page.until("!document.getElementById('stuck').innerText.includes('default/he')")
    page.until("!document.getElementById('stuck').innerText.includes('default/huge')")
    shows(page, "Pod default/huge", "#recent")
    shows(page, "gone", "#recent")


def test_a_list_is_live_and_long_and_keys_lead_through_it(cluster: Cluster, page: Page) -> None:
    cluster.kubectl("create", "namespace", "many")
    go(page, "#/kind/-/v1/configmaps")
    page.until("document.querySelector('#count')")
    cluster.apply(
        *(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"c{number}", "namespace": "many"},
            }
            for number in range(MANY)
        )
    )
    page.until(f"parseInt(document.querySelector('#count').textContent) >= {MANY}")
    drawn = page.run("document.querySelectorAll('.grid-row').length")
    assert 10 < drawn < 120, "only what is in sight is made"
    page.run("document.querySelector('.grid-body').focus()")
    page.press("End")
    page.until(
        f"document.querySelector('.grid-row.chosen')?.getAttribute('aria-rowindex') > {MANY - 1}"
    )
    page.press("/")
    page.until("document.activeElement.id === 'filter'")
    page.write(f"c{MANY - 1}")
    page.until("document.querySelector('#count').textContent.startsWith('1 of')")
    page.press("Enter")
    page.until("document.activeElement.classList.contains('grid-body')")
    page.press("y")
    shows(page, f"name: c{MANY - 1}", "#yaml")
    # In one namespace alone, by the picker; the address says so.
    go(page, "#/kind/-/v1/configmaps")
    page.until("document.querySelector('#namespace option[value=many]')")
    page.run("document.getElementById('namespace').value = 'many'")
    page.run("document.getElementById('namespace').dispatchEvent(new Event('change'))")
    page.until("location.hash === '#/in/many/kind/-/v1/configmaps'")
    page.until(f"parseInt(document.querySelector('#count').textContent) === {MANY} + 1")
    cluster.kubectl("delete", "namespace", "many", "--wait=false")
    page.until("parseInt(document.querySelector('#count').textContent) === 0")


def test_keys_are_enough(cluster: Cluster, page: Page) -> None:
    cluster.kubectl("create", "configmap", "by-keys")
    page.press("?")
    page.until("document.querySelector('dialog[open]')?.innerText.includes('choose a kind')")
    page.press("Escape")
    page.until("!document.querySelector('dialog')")
    page.press(":")
    page.until("document.activeElement.id === 'chooser'")
    page.write("cm")
    page.until("document.querySelector('#choices .chosen')?.textContent === 'configmaps'")
    page.press("Enter")
    page.until("location.hash === '#/kind/-/v1/configmaps'")
    page.until("document.activeElement.classList.contains('grid-body')")
    page.press("/")
    page.write("by-keys")
    page.until("document.querySelector('#count').textContent.startsWith('1 of')")
    page.press("ArrowDown")
    page.press("Enter")
    page.until("location.hash === '#/object/-/v1/configmaps/default/by-keys'")
    shows(page, "Events")
    page.press("e")
    page.until("document.activeElement.classList.contains('editor')")
    page.press("Escape")
    page.until("document.activeElement === document.body")
    for key, view in (("g", "#/"), ("n", "#/nodes"), ("c", "#/changes")):
        page.press(key)
        page.until(f"location.hash === {view!r}")
    page.press("t")
    page.until("document.activeElement.id === 'slider'")
    page.press("Escape")
    page.press("Escape")
    page.until("location.hash === '#/nodes'")
    go(page, "#/object/-/v1/configmaps/default/by-keys")
    shows(page, "Delete…")
    page.press("d", is_control=True)
    page.until("document.activeElement.tagName === 'SELECT'")
    page.run("document.getElementById('confirm').click()")
    page.until("location.hash === '#/kind/-/v1/configmaps'")
    assert "by-keys" not in cluster.kubectl("get", "configmaps", "-o", "name")


def test_yaml_is_tried_saved_and_refused_when_another_was_first(
    cluster: Cluster, page: Page
) -> None:
    cluster.kubectl("create", "configmap", "edited", "--from-literal=a=1", "--from-literal=b=1")
    go(page, "#/object/-/v1/configmaps/default/edited/yaml")
    page.until(
        "[...document.querySelectorAll('.line')].some((each) => each.innerText.includes("
        "'kubectl-create') && each.innerText.includes('a: \"1\"'))"
    )
    go(page, "#/object/-/v1/configmaps/default/edited/edit")
    page.until("document.querySelector('.editor')")
    value = "document.querySelector('.editor').value"

    def change(old: str, new: str) -> None:
        page.run(f"{value} = {value}.replace({json.dumps(old)}, {json.dumps(new)})")

    change('a: "1"', 'a: "2"')
    page.run("document.getElementById('try').click()")
    shows(page, "would take it", "#toasts")
    shows(page, '+   a: "2"', "#difference")
    get = ("get", "configmap", "edited", "-o")
    assert cluster.kubectl(*get, "jsonpath={.data.a}") == "1"
    cluster.kubectl("annotate", "configmap", "edited", "another=was-first")
    shows(page, "It has changed since it was read", "#changed-since")
    page.run("document.getElementById('save').click()")
    shows(page, "the object has been modified", "#problem")
    # What the other one wrote is shown, what this one wrote is kept, and nothing is overwritten.
    shows(page, "another: was-first", "#difference")
    assert 'a: "2"' in page.run(value)
    assert cluster.kubectl(*get, "jsonpath={.data.a}") == "1"
    page.run("document.getElementById('rebase').click()")
    shows(page, "another: was-first", "#difference")  # which this text would take away
    change("metadata:\n", "metadata:\n  annotations:\n    another: was-first\n")
    page.run("document.getElementById('save').click()")
    shows(page, "Saved", "#toasts")
    assert (
        cluster.kubectl(*get, "jsonpath={.data.a}{.metadata.annotations.another}") == "2was-first"
    )
    # Strictly: a field that does not exist is refused.
    page.until("document.querySelector('.editor').value.includes('was-first')")
    change("kind: ConfigMap\n", "kind: ConfigMap\nbogus: 1\n")
    page.run("document.getElementById('save').click()")
    shows(page, "bogus", "#problem")


def download(page: Page, name: str, directory: Path) -> str:
    """Save what the YAML tab shows; return what the file has, and leave no file behind."""
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(directory))
    page.run("document.getElementById('save-yaml').click()")
    file = directory / name
    wait_for(file.exists, f"{name} is saved")  # it has another name until it is whole
    text = file.read_text()
    file.unlink()
    assert list(directory.iterdir()) == []
    return text


def test_yaml_is_saved_as_kubectl_prints_it(cluster: Cluster, page: Page, tmp_path: Path) -> None:
    texts = {"b": "1", "a": "yes", "lines": "x\n  y\n", "mark": "<b>\u202e", "empty": ""}
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "saved", "namespace": "default", "labels": {"z": "1", "a": "2"}},
            "data": texts,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "saved:by the $(page)"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
        },
    )
    cases = (
        ("-/v1/configmaps/default", "configmap", "saved", "configmap-default-saved.yaml"),
        # A name is part of a path of the API, and could be a command to a shell.
        (
            "rbac.authorization.k8s.io/v1/clusterroles/-",
            "clusterrole",
            "saved:by the $(page)",
            "clusterrole-saved_by_the___page_.yaml",
        ),
    )
    for path, kind, name, file in cases:
        go(page, f"#/object/{path}/{quote(name, safe='')}/yaml")
        shows(page, f"name: {name}" if name == "saved" else name, "#yaml")
        saved = yaml.safe_load(download(page, file, tmp_path))
        printed = yaml.safe_load(cluster.kubectl("get", kind, name, "-o", "yaml"))
        assert saved == printed
        assert json.dumps(saved) == json.dumps(printed), "fields have the same order"
    assert page.complaints() == []


def test_secrets_are_hidden_until_asked_for(cluster: Cluster, page: Page, tmp_path: Path) -> None:
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "hidden", "namespace": "default"},
            "stringData": {"key": "value"},
        }
    )
    assert "dmFsdWU" in cluster.kubectl("get", "secret", "hidden", "-o", "yaml")
    for tab in ("summary", "yaml", "edit"):
        go(page, f"#/object/-/v1/secrets/default/hidden/{tab}")
        shows(page, {"summary": "Events", "yaml": "key: hidden", "edit": "Show and edit"}[tab])
        html = page.run("document.documentElement.outerHTML")
        # Neither as it is stored nor as kubectl apply noted it.
        assert encoded("value") not in html, tab
        assert '"value"' not in html, tab
    go(page, "#/kind/-/v1/secrets")
    shows(page, "hidden")
    assert encoded("value") not in page.run("document.documentElement.outerHTML")
    go(page, "#/object/-/v1/secrets/default/hidden/yaml")
    page.until("document.getElementById('show-values')")
    saved = download(page, "secret-default-hidden.yaml", tmp_path)
    assert saved.startswith("# The values are hidden")
    assert yaml.safe_load(saved)["data"] == {"key": "hidden"}
    assert encoded("value") not in saved
    assert '"value"' not in saved
    # Nobody overwrites a Secret with it by accident.
    (tmp_path / "hidden.yaml").write_text(saved)
    code, error = kubectl(cluster.exported, "replace", "-f", str(tmp_path / "hidden.yaml"))
    assert code != 0
    assert "illegal base64" in error
    (tmp_path / "hidden.yaml").unlink()
    page.run("document.getElementById('show-values').click()")
    shows(page, encoded("value"), "#yaml")
    saved = download(page, "secret-default-hidden.yaml", tmp_path)
    assert yaml.safe_load(saved)["data"] == {"key": encoded("value")}
    assert page.run("document.getElementById('show-values')") is None
    go(page, "#/object/-/v1/secrets/default/hidden/edit")
    page.until("document.getElementById('reveal')")
    page.run("document.getElementById('reveal').click()")
    page.until(f"document.querySelector('.editor').value.includes({encoded('value')!r})")


def test_a_deployment_is_scaled_rolled_out_and_back(cluster: Cluster, page: Page) -> None:
    cluster.apply(deployment("web", 2))
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    go(page, "#/object/apps/v1/deployments/default/web")
    shows(page, "Pods (2)", "#pods")
    click(page, "Scale…", "#actions")
    page.until("document.querySelector('dialog input[name=replicas]')?.value === '2'")
    page.run("document.querySelector('dialog input[name=replicas]').value = '3'")
    page.run("document.getElementById('confirm').click()")
    shows(page, "Pods (3)", "#pods")
    assert cluster.kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "3"
    click(page, "Restart", "#actions")
    shows(page, "A rollout has begun", "#toasts")
    click(page, "Pause", "#actions")
    click(page, "Resume", "#actions")
    shows(page, "Pause", "#actions")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    go(page, "#/object/apps/v1/deployments/default/web/revisions")
    page.until("document.querySelector('[data-undo=\"1\"]')")
    click(page, "Compare", "main")
    shows(page, "restartedAt", "#difference")
    page.run("document.querySelector('[data-undo=\"1\"]').click()")
    page.until("document.querySelector('dialog #confirm')")
    page.run("document.getElementById('confirm').click()")
    shows(page, "Going back to revision 1", "#toasts")
    shows(page, "3 (now)")
    template = ("get", "deployment", "web", "-o", "jsonpath={.spec.template.metadata}")
    assert "restartedAt" not in cluster.kubectl(*template)
    go(page, "#/kind/-/v1/pods")
    page.until(
        "[...document.querySelectorAll('.grid-row a')].some((a) => a.innerText.startsWith('web-'))"
    )
    page.run(
        "[...document.querySelectorAll('.grid-row a')]"
        ".find((a) => a.innerText.startsWith('web-')).click()"
    )
    shows(page, "ReplicaSet web-")
    shows(page, "← Deployment web")
    shows(page, "kubectl port-forward -n default pod/web-")
    cluster.kubectl("delete", "deployment", "web", "--wait=false")


def deployment(name: str, replicas: int) -> dict[str, object]:
    labels = {"app": name}
    spec = {"containers": [{"name": "c", "image": "x"}], "nodeSelector": {"hollow": "true"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def test_a_node_is_cordoned_drained_and_its_load_shown(cluster: Cluster, page: Page) -> None:
    def pod(name: str, **owner: str) -> dict[str, object]:
        container = {
            "name": "c",
            "image": "x",
            "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}},
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeName": "h3",
                "containers": [container],
                "terminationGracePeriodSeconds": 0,
            },
        }

    cluster.apply(pod("alone"))
    go(page, "#/nodes")
    shows(page, "1.50 requested", "#nodes")
    shows(page, "1.0 GiB requested", "#nodes")
    page.until("/[0-9]m used of 4/.test(document.getElementById('nodes').innerText)")
    go(page, "#/object/-/v1/nodes/-/h3")
    page.until("document.querySelector('#usage svg')")
    click(page, "Cordon", "#actions")
    click(page, "Uncordon", "#actions")
    # The button is Cordon again once the node has been uncordoned, not before.
    page.until("[...document.querySelectorAll('#actions button')].some("
               "(each) => each.textContent.trim() === 'Cordon')")  # fmt: skip
    click(page, "Drain…", "#actions")
    shows(page, "nobody would make it again", "#evicted")
    page.run("document.getElementById('alone').click()")
    shows(page, "1 of 1 pods go.", "#evicted")
    page.run("document.getElementById('confirm').click()")
    shows(page, "Done.", "#evicted")
    assert "alone" not in cluster.kubectl("get", "pods", "-o", "name")
    assert cluster.kubectl("get", "node", "h3", "-o", "jsonpath={.spec.unschedulable}") == "true"
    cluster.kubectl("uncordon", "h3")


def test_the_past_is_seen_by_the_slider_and_changes_come_first(
    cluster: Cluster, page: Page
) -> None:
    cluster.kubectl("create", "configmap", "bygone", "--from-literal=a=old")
    then = cluster.kubectl(
        "get", "configmap", "bygone", "-o", "jsonpath={.metadata.resourceVersion}"
    )
    cluster.kubectl("patch", "configmap", "bygone", "-p", '{"data":{"a":"new"}}')
    cluster.kubectl("delete", "configmap", "bygone")
    go(page, "#/changes")
    page.until("document.getElementById('filter')")
    page.run("document.getElementById('filter').value = 'default/bygone'")
    page.run("document.getElementById('filter').dispatchEvent(new Event('input'))")
    page.until("document.querySelectorAll('.grid-row').length === 3")
    rows = page.run(
        "[...document.querySelectorAll('.grid-row')]"
        ".sort((a, b) => a.dataset.index - b.dataset.index).map((each) => each.innerText)"
    )
    assert ["deleted" in rows[0], "changed" in rows[1], "created" in rows[2]] == [True] * 3
    assert "kubectl-patch" in rows[1]
    assert all(":" in each.split()[0] for each in rows), "each has its time"
    # As it was before it went, and when it was made.
    page.run("document.querySelector('.grid-row[data-index=\"0\"] a').click()")
    shows(page, "ConfigMap default/bygone")
    assert page.run("document.body.classList.contains('past')")
    page.press("y")
    shows(page, "a: new", "#yaml")
    assert not page.run("document.querySelector('#actions button')")
    page.run(f"document.getElementById('moment').value = {then!r}")
    page.run("document.getElementById('timeline').requestSubmit()")
    shows(page, "a: old", "#yaml")
    go(page, f"#/at/{then}/kind/-/v1/configmaps")
    shows(page, "bygone")
    page.run("document.getElementById('now').click()")
    page.until("location.hash === '#/kind/-/v1/configmaps'")
    page.until(
        "document.querySelector('.grid-row')"
        " && !document.querySelector('.grid-place').innerText.includes('bygone')"
    )
    # By the slider one comes to the changes first, then to any view.
    page.until("document.getElementById('timeline') && !document.getElementById('timeline').hidden")
    page.run("document.getElementById('slider').value = 990")
    page.run("document.getElementById('slider').dispatchEvent(new Event('input'))")
    page.until("document.getElementById('when').textContent.includes('ago')")
    page.run("document.getElementById('slider').dispatchEvent(new Event('change'))")
    page.until("/^#\\/at\\/20.*\\/changes$/.test(location.hash)")
    page.until("document.querySelectorAll('.grid-row').length > 0")
    click(page, "Overview", "nav")
    shows(page, "at 20")
    shows(page, "of the present alone")
    go(page, "#/at/2001-01-01T00:00:00Z/kind/-/v1/pods")
    shows(page, "The oldest available time is", "#state")


def test_objects_are_created_after_a_dry_run(cluster: Cluster, page: Page) -> None:
    go(page, "#/create")
    page.until("document.getElementById('manifest')")
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: made-{}\n{}data: {{a: b}}\n"
    both = text.format(1, "") + "---\n" + text.format(2, "  namespace: kube-public\n")

    def write(manifest: str, button: str) -> None:
        page.run(f"document.getElementById('manifest').value = {json.dumps(manifest)}")
        page.run(f"document.getElementById({button!r}).click()")

    write(both, "try")
    shows(page, "would take it", "#toasts")
    write(both.replace("made-2", "Bad_Name"), "make")
    shows(page, "Bad_Name", "#problem")
    # The second is bad: the first was not made either.
    assert "made-" not in cluster.kubectl("get", "configmaps", "-o", "name")
    write(both, "make")
    shows(page, "ConfigMap made-2 is created", "#results")
    assert "made-1" in cluster.kubectl("get", "configmaps", "-o", "name")
    assert "made-2" in cluster.kubectl("get", "configmaps", "-n", "kube-public", "-o", "name")
    write("kind: Nothing\napiVersion: v1\n", "try")
    shows(page, "no kind Nothing", "#problem")


def test_custom_resources_and_metrics_are_kinds_like_others(cluster: Cluster, page: Page) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    column = {"name": "Size", "type": "string", "jsonPath": ".spec.size"}
    cluster.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "boats.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "boats", "kind": "Boat", "shortNames": ["bt"]},
                "versions": [{
                    "name": "v1", "served": True, "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "additionalPrinterColumns": [column],
                }],
            },
        }
    )  # fmt: skip
    cluster.kubectl(
        "wait",
        "crd",
        "boats.example.com",
        "--for=jsonpath={.status.acceptedNames.kind}=Boat",
        "--timeout=60s",
    )
    cluster.apply(
        {
            "apiVersion": "example.com/v1",
            "kind": "Boat",
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"size": "12m"},
        }
    )
    page.call("Page.reload")
    sign_in(page, cluster.token)
    page.press(":")
    page.until("document.getElementById('chooser')")
    page.write("bt")
    page.press("Enter")
    page.until("location.hash === '#/kind/example.com/v1/boats'")
    shows(page, "12m")
    shows(page, "Size")
    # It has no watch, and is shown all the same.
    go(page, "#/kind/metrics.k8s.io/v1/nodes")
    shows(page, "h1")
