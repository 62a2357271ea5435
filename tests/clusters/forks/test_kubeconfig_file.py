"""The user's kubeconfig: what others wrote stays, in whatever form, and whenever they write."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstack.clusters.forks import kubeconfig_file
from kvstack.clusters.forks.kubeconfig_file import (
    ForkContext,
    KubeconfigFile,
    KubeconfigFileError,
)
from kvstack.clusters.forks.kubeconfig_text import with_entry, without_entry

WRITTEN = """\
# mine: do not touch
apiVersion: v1
kind: Config   # as always
preferences: {}
clusters:
  # production
  - name: "prod"
    cluster: {server: 'https://prod:6443', insecure-skip-tls-verify: true}
  - cluster:
      server: https://dev:6443   # a comment
    name: dev
users:
- name: me
  user:
    token: 0123          # an octal, as YAML has it
    client-key-data: |-
      aaaa
      bbbb
- name: other
  user:
    exec: {apiVersion: x, args: [a, "b"], command: c}
contexts:
- context:
    cluster: prod
    user: me
    extensions: [{name: a, extension: {when: 2020-01-01}}]
  name: prod
current-context: prod
"""
CONTEXT = ForkContext("prod-1", "https://127.0.0.1:7443", b"ca", b"cert", b"key", "shop")


def test_a_context_comes_and_goes_and_the_text_is_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(WRITTEN)
    path.chmod(0o644)
    file = KubeconfigFile(path)
    file.add(CONTEXT)
    added = yaml.safe_load(path.read_text())
    assert added["contexts"][0] == {
        "name": "prod-1",
        "context": {
            "cluster": "kvstack-fork-prod-1",
            "user": "kvstack-fork-prod-1",
            "namespace": "shop",
        },
    }
    assert added["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:7443",
        "certificate-authority-data": "Y2E=",
    }
    assert added["users"][0]["user"]["client-key-data"] == "a2V5"
    assert set(WRITTEN.splitlines()) <= set(path.read_text().splitlines())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert file.has("prod-1")
    assert not file.has("prod-2")
    with pytest.raises(KubeconfigFileError, match="there is an entry 'prod-1' in contexts already"):
        file.add(CONTEXT)
    file.remove("prod-1", then="prod")
    assert path.read_text() == WRITTEN
    assert os.listdir(tmp_path) == ["config"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"apiVersion": "v1", "kind": "Config", "contexts": [{"name": "a", "context": {}}]}',
        "kind: Config\nclusters: []\nusers: null\ncontexts:\n",
        "kind: Config\ncontexts:\n- name: a\n  context: {}",
        "kind: Config\ncontexts:\n    -   name: a\n        context:\n            cluster: b\n",
    ],
)
def test_whatever_form_a_file_has(tmp_path: Path, text: str) -> None:
    path = tmp_path / "new" / "config"
    if text:
        path.parent.mkdir()
        path.write_text(text)
    before = yaml.safe_load(text or "{}")
    file = KubeconfigFile(path)
    file.add(CONTEXT)
    file.add(CONTEXT._replace(name="other"))
    names = [each["name"] for each in yaml.safe_load(path.read_text())["contexts"]]
    assert set(names) == {"prod-1", "other", *(e["name"] for e in before.get("contexts") or ())}
    file.remove("prod-1", then="")
    file.remove("other", then="")
    after = yaml.safe_load(path.read_text())
    assert {key: value for key, value in after.items() if value} | {
        "apiVersion": "v1",
        "kind": "Config",
    } == {key: value for key, value in before.items() if value} | {
        "apiVersion": "v1",
        "kind": "Config",
    }


def test_the_current_context_is_led_back(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(WRITTEN)
    file = KubeconfigFile(path)
    file.add(CONTEXT)
    text = path.read_text().replace("current-context: prod", "current-context: prod-1")
    path.write_text(text)
    file.remove("prod-1", then="prod")
    assert path.read_text() == WRITTEN


def test_a_link_stays_a_link_and_a_file_that_is_none_stays_as_it_is(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "config"
    real.write_text(WRITTEN)
    link.symlink_to(real)
    KubeconfigFile(link).add(CONTEXT)
    assert link.is_symlink()
    assert "prod-1" in real.read_text()
    for text in ("- a\n", "a: [", "clusters: 3\n", "contexts: [1]\n"):
        real.write_text(text)
        with pytest.raises(KubeconfigFileError, match=str(real)):
            KubeconfigFile(link).add(CONTEXT)
        assert real.read_text() == text
    assert sorted(os.listdir(tmp_path)) == ["config", "real"]


def test_a_lock_that_stays_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeconfig_file, "LOCK_WAIT_S", 0.0)
    path = tmp_path / "config"
    (tmp_path / "config.lock").touch()
    with pytest.raises(KubeconfigFileError, match=r"config\.lock is there for \d+ s"):
        KubeconfigFile(path).add(CONTEXT)
    assert not path.exists()


def test_many_write_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(WRITTEN)
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from kvstack.clusters.forks.kubeconfig_file import ForkContext, KubeconfigFile\n"
        "path, number = Path(sys.argv[1]), sys.argv[2]\n"
        "for turn in range(10):\n"
        "    file = KubeconfigFile(path)\n"
        "    file.add(ForkContext(f'f-{number}-{turn}', 'https://x', b'a', b'b', b'c'))\n"
        "    if turn % 2:\n"
        "        file.remove(f'f-{number}-{turn}', then='prod')\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(path), str(each)]) for each in range(3)
    ]
    assert [each.wait(120) for each in writers] == [0, 0, 0]
    left = {each["name"] for each in yaml.safe_load(path.read_text())["contexts"]}
    kept = {f"f-{number}-{turn}" for number in range(3) for turn in range(0, 10, 2)}
    assert left == {"prod", *kept}


def test_an_editor_that_takes_no_lock_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config"
    path.write_text(WRITTEN)
    real = with_entry
    turns = iter(range(1))

    def edited(*given: object) -> str:
        if next(turns, None) is not None:
            path.write_text(WRITTEN + "# the editor was here\n")
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(kubeconfig_file, "with_entry", edited)
    KubeconfigFile(path).add(CONTEXT)
    assert "# the editor was here" in path.read_text()
    assert "prod-1" in path.read_text()


NAMES = st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=1, max_size=8)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), NAMES, st.text(max_size=12)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)
CONFIGS = st.fixed_dictionaries(
    {"kind": st.just("Config"), "contexts": st.lists(NAMES, unique=True, max_size=4)},
    optional={"other": VALUES},
)


@settings(deadline=None)
@given(CONFIGS, VALUES, st.booleans(), st.sampled_from([None, True, False]))
def test_any_file_is_what_it_was(
    config: dict[str, object],
    value: object,
    is_sorted: bool,  # noqa: FBT001
    flow: bool | None,  # noqa: FBT001
) -> None:
    names = config["contexts"]
    assert isinstance(names, list)
    entries = [{"context": value, "name": each} for each in names]
    whole = {**config, "contexts": entries}
    text = yaml.safe_dump(whole, sort_keys=is_sorted, default_flow_style=flow, allow_unicode=True)
    added = with_entry(text, "contexts", {"name": " new ", "context": value})
    found = yaml.safe_load(added)
    assert found.pop("contexts") == [{"name": " new ", "context": value}, *entries]
    assert found == {key: each for key, each in config.items() if key != "contexts"}
    removed = yaml.safe_load(without_entry(added, "contexts", " new "))
    assert [each["name"] for each in removed["contexts"] or ()] == names


def test_threads_share_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "config"
    threads = [
        threading.Thread(
            target=lambda name=str(each): KubeconfigFile(path).add(CONTEXT._replace(name=name))
        )
        for each in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    names = {each["name"] for each in yaml.safe_load(path.read_text())["contexts"]}
    assert names == set("01234567")
