"""Plans of changes to a shop, for tests."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from typing_extensions import override

from kvstack.agents.client.resource_type import ResourceType
from kvstack.clusters.comparison.comparison import compare
from kvstack.clusters.contents import Contents
from kvstack.clusters.forks.fork_settings import ForkSettings
from kvstack.clusters.plan.change import Change, Outcome, Site
from kvstack.clusters.plan.file_change import FileChange
from kvstack.clusters.plan.plan_run import PlanResult, PlanSettings, run_plan
from kvstack.clusters.sources.manifest_files import manifests_of
from kvstack.clusters.sources.manifests import ManifestSource
from kvstack.clusters.sources.source import ReadOptions, Silent
from kvstack.component.line_log.line_logger import LineLogger

WEBHOOK = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: check}
webhooks:
- name: check.example.com
  clientConfig: {url: "https://192.0.2.1/check"}
  rules: [{apiGroups: [apps], apiVersions: [v1], operations: ["*"], resources: [deployments]}]
  sideEffects: None
  failurePolicy: Fail
  admissionReviewVersions: [v1]
"""
SHOP = Path(__file__).with_name("shop.yaml")
TIME_S = 1_800_000_000.0
SETTINGS = PlanSettings(fork=ForkSettings(ready_after_s=5.0))


def contents_of(path: Path) -> Contents:
    """Return the contents of files."""
    contents = asyncio.run(ManifestSource([path]).read(ReadOptions(), Silent()))
    return replace(contents, time_s=TIME_S)


def plan(
    contents: Contents,
    change: Change,
    settings: PlanSettings = SETTINGS,
    directory: Path | None = None,
) -> PlanResult:
    """Return what comes of a change; directory: where keys are that many plans can have."""
    with nullcontext(directory) if directory else TemporaryDirectory() as used:
        log = LineLogger([], "fatal")
        return run_plan(contents, change, settings, Path(used), log, Silent())


def at_rest(contents: Contents) -> Contents:
    """Return the contents once everything that they ask for has happened."""
    return without_events(plan(contents, FileChange([])).before)


def without_events(contents: Contents) -> Contents:
    """Return contents that others can begin with: the leases of Events are not among them."""
    return replace(contents, rows=[kv for kv in contents.rows if not kv.lease])


def applied(text: str) -> FileChange:
    """Return a change by a text of YAML."""
    return FileChange(list(manifests_of(text, "change.yaml")))


class Deletion(Change):
    """Deletes an object."""

    def __init__(self, resource: ResourceType, namespace: str, name: str) -> None:
        self._what = resource, namespace, name

    @override
    async def make(self, site: Site) -> Outcome:
        await site.api.delete(*self._what)
        return Outcome(site.writes.passed_s)


def edited(*edits: tuple[str, str], kind: str, name: str = "") -> Callable[[], Any]:
    """Return what makes a change: an object of the shop with parts of its text replaced."""

    def make() -> FileChange:
        for document in SHOP.read_text().split("---\n"):
            if f"kind: {kind}\n" in document and (not name or f"name: {name}" in document):
                for old, new in edits:
                    assert old in document, old
                    document = document.replace(old, new)
                return applied(document)
        raise AssertionError(kind)

    return make


def differences(before: Contents, after: Contents) -> Counter[tuple[str, ...]]:
    """Return what is different; of names that are made up, how they begin."""
    found: Counter[tuple[str, ...]] = Counter()
    for each in compare(before, after).differences:
        obj = each.after or each.before or {}
        name = each.name
        if each.kind == "Pod" or obj.get("metadata", {}).get("generateName"):
            name = name.rpartition("-")[0]
        texts = sorted({field.path[0] for field in each.fields})
        found[each.change.value, each.kind, each.namespace, name, *texts] += 1
    return found
